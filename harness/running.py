"""Runs a sweep from its file to its report."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Literal

from harness.analysis.analysis import Analysis
from harness.base.messages import tell
from harness.errors import ConfigError, ExecutorError, Fault, StorageError
from harness.execution import jobs
from harness.library import SweepResults
from harness.planning import plan, setting_changes
from harness.planning.memory import refuse_unfit
from harness.planning.sweep_file import read_sweep_file
from harness.records import mlflow
from harness.records.journal import Journal
from harness.records.results import Results, read_sweep_results, trial_results
from harness.reporting.files import point_tags, write, write_measured
from harness.reporting.plan import one_step_epochs
from harness.reporting.summary import answer_markdown
from harness.settings import Plan, replace

ExecutorName = Literal["ray", "inline"]


def run_sweep(
    file: str | PathLike[str],
    *,
    overrides: Sequence[str] = (),
    only: Sequence[str] = (),
    executor: ExecutorName = "ray",
    results: str | PathLike[str] = "results",
    replace: bool = False,
    keep: bool = False,
) -> SweepResults:
    """Run the unfinished trials of a sweep, write its report, and return all results.

    Args:
        file: The sweep file.
        overrides: Settings changed, as for `--set`: `seeds=[0,1]`.
        only: Trials to run, as for `--only`: `method=emso`; the report has all that are measured.
        executor: `ray`, or `inline`: in this process, one trial after the other.
        results: The folder of all sweeps' results.
        keep: Keep the numbers of plugins whose code has changed under the same version.
        replace: Hide rows that were measured under this name with other settings.

    Raises:
        ConfigError: The sweep file has faults (all are listed), its results have such rows, a trial cannot run on this
            machine, or a cluster's node lacks something.
        DataError: This sweep is running already, or its numbers cannot be ranked together.
        ExecutorError: Ray died; finished measurements are kept, and in the report.
    """
    sweep_file = read_sweep_file(Path(file), overrides)
    planned = plan.plan_sweep(sweep_file, overrides)
    part = plan.choose_trials(planned, only, sweep_file)
    root = Path(results)
    return run_planned(Path(file), planned, part, executor=executor, results=root, replace_rows=replace, keep=keep)


def run_planned(
    file: Path, planned: Plan, part: Plan, *, executor: ExecutorName, results: Path, replace_rows: bool, keep: bool
) -> SweepResults:
    """Run the unfinished trials of a `part` of a plan, as `run_sweep` does."""
    folders = jobs.Folders.locate(results, planned.sweep)
    journal = folders.journal
    tracking = mlflow.LiveCopy(folders.results)
    with journal.held():
        replaced = setting_changes.replaced_sentence(planned, journal)
        if replaced and not replace_rows:
            raise ConfigError(str(file), [Fault("name", replaced)])
        measured = read_sweep_results(planned, journal)
        if not keep and (changed := setting_changes.changed_code_sentence(measured)):
            raise ConfigError(str(file), [Fault("plugins", changed)])
        specs = read_sweep_results(part, journal).remaining_specs
        refuse_unfit(file, specs)
        for sentence in (*one_step_epochs(part), *planned.shared_texts) if specs else ():
            tell(sentence, is_error=True)
        journal.write_plan(measured.plan)
        try:
            if specs:
                _finish(planned, part, folders, executor, tracking)
        except (KeyboardInterrupt, ExecutorError, StorageError) as error:
            error.add_note(write_measured(planned, journal, folders.results))
            raise
        analysis = Analysis(read_sweep_results(planned, journal))
        files = write(analysis, folders.results)
        tags = point_tags(analysis.ranked.table, analysis.attacks)
        tracking.attempt(mlflow.copy_sweep, analysis.results, tags, files, answer_markdown(analysis))
        return SweepResults(folders.results, analysis)


def _finish(
    planned: Plan, part: Plan, folders: jobs.Folders, executor: ExecutorName, tracking: mlflow.LiveCopy
) -> None:
    remaining = measured = read_sweep_results(part, folders.journal)
    old_specs = set[str]()
    with _executor(executor) as execute, jobs.SweepProgress(jobs.count_jobs(remaining, folders)) as progress:
        while remaining.remaining_specs:
            watch = watch_trials(progress, remaining, folders.journal, tracking)
            execute(jobs.missing_jobs(remaining, folders, watch))
            old_specs |= {trial.spec.model_dump_json() for trial in measured.trials}
            measured = read_sweep_results(part, folders.journal)
            folders.journal.write_plan(read_sweep_results(planned, folders.journal).plan)
            # Choices are measured like other trials, and the strengths next to them; what failed is not run again.
            new = tuple(trial for trial in measured.trials if trial.spec.model_dump_json() not in old_specs)
            remaining = replace(measured, trials=new, studies=())


def _executor(name: ExecutorName) -> AbstractContextManager[jobs.Executor]:
    if name == "inline":
        from harness.execution import trial  # It imports transformers' models, which takes seconds.

        return nullcontext(trial.run_inline)
    from harness.execution.ray.tune import ray_executor  # It imports Ray.

    return ray_executor()


def watch_trials(watch: jobs.Watcher, results: Results, journal: Journal, tracking: mlflow.LiveCopy) -> jobs.Watcher:
    """Return a watcher that also updates MLflow after each trial."""
    spec_by_id = {trial.spec.trial_id: trial.spec for trial in results.trials}

    def watch_both(event: jobs.Event) -> None:
        watch(event)
        if event.trial_id in spec_by_id:
            records = journal.read(event.trial_id)
            tracking.attempt(mlflow.copy_trial, results.plan, trial_results(spec_by_id[event.trial_id], records))

    return watch_both
