"""`python -m harness.sweep FILE`: run what is missing of a sweep, and write its report.

    python -m harness.sweep sweeps/tradeoff.yaml
    python -m harness.sweep sweeps/tradeoff.yaml --plan
    python -m harness.sweep sweeps/tradeoff.yaml --set seeds=[0,1,2] --only method=emso

Exit codes: 0 all is done, 1 a trial failed or Ray died, 2 the sweep file is wrong; 130 after Ctrl-C, 143 after SIGTERM,
129 after SIGHUP. The first of these signals ends what is running and writes the report of what is measured; a second
one ends everything at once. Whatever ended it: the same command continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.base.messages import shown
from harness.base.paths import folder_argument, path_argument
from harness.base.terminal import lasting_streams, tell

# What takes long to import is imported when it is used: a signal during that is already ours.
from harness.errors import ConfigError, ExecutorError, LetheError, StorageError
from harness.execution.guard.interruption import INTERRUPTION

if TYPE_CHECKING:
    from harness.execution.job import Event, Executor, Folders, Job, Watcher
    from harness.library import SweepResults
    from harness.plans import Plan, StudySpec
    from harness.records.journal import Journal
    from harness.records.results import Results
    from harness.records.tracking.live import LiveTracking
    from harness.reporting.live import LiveReport

ExecutorName = Literal["ray", "inline"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    with INTERRUPTION.watched(signals=True):
        return _main(_parser().parse_args(argv))


def _main(arguments: argparse.Namespace) -> int:
    choice = {"overrides": arguments.set, "only": arguments.only, "results": arguments.results}
    try:
        if arguments.plan:
            _show_plan(arguments.file, **choice)
            return 0
        return _tell(run_sweep(arguments.file, executor=arguments.executor, **choice))
    except ConfigError as error:
        tell(error, is_error=True)
        return 2
    except LetheError as error:
        kept = " What is measured is kept." if isinstance(error, StorageError) else ""
        tell(f"{type(error).__name__}: {error}{kept}", *getattr(error, "__notes__", ()), is_error=True)
        return 1
    except (KeyboardInterrupt, Exception) as error:
        if not INTERRUPTION.led_to(error):
            raise
        INTERRUPTION.heard()
        words = "\nInterrupted. What is measured is kept: run the same command again to continue."
        tell(words, *getattr(error, "__notes__", ()), is_error=True)
        return INTERRUPTION.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m harness.sweep", description="Run what is missing of a sweep.")
    parser.add_argument("file", type=path_argument, help="the sweep file, such as sweeps/tradeoff.yaml")
    parser.add_argument("--plan", action="store_true", help="show every trial and its state, and run nothing")
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="change a setting: seeds=[0,1] (repeatable)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="run some trials: method=, model=, variant= or seed= (repeatable)",
    )
    parser.add_argument(
        "--executor",
        choices=["ray", "inline"],
        default="ray",
        help="inline: in this process, one after the other and not isolated from each other (docs/sweeps.md)",
    )
    parser.add_argument(
        "--results", type=folder_argument, default=Path("results"), help="folder of all sweeps' results"
    )
    return parser


def run_sweep(
    file: str | PathLike[str],
    *,
    overrides: Sequence[str] = (),
    only: Sequence[str] = (),
    executor: ExecutorName = "ray",
    results: str | PathLike[str] = "results",
) -> SweepResults:
    """Run what is missing of a sweep, write its report, and return all that it has measured.

    Args:
        file: The sweep file.
        overrides: Settings changed, as for `--set`: `seeds=[0,1]`.
        only: Trials chosen, as for `--only`: `method=emso`.
        executor: `ray`, or `inline`: in this process, one trial after the other, none isolated from it.
        results: The folder of all sweeps' results.

    Raises:
        ConfigError: The sweep file is wrong, or a trial cannot run on this machine, or a cluster's node lacks what
            it needs; it lists every fault.
        DataError: Another run of this sweep is at work, or its numbers cannot be ranked together.
        ExecutorError: Ray died; what was measured before is kept, and in the report.
    """
    from harness.planning.plan import plan
    from harness.records.journal import Journal
    from harness.records.tracking.live import LiveTracking

    planned = plan(Path(file), overrides, only)
    folders = _folders(results, planned)
    journal = Journal(folders.results / "journal")
    with lasting_streams(), journal.held(), LiveTracking(folders.results) as tracking:
        return _run(Path(file), planned, executor, folders, tracking)


def _run(file: Path, planned: Plan, executor: ExecutorName, folders: Folders, tracking: LiveTracking) -> SweepResults:
    from harness.execution.ray_settings import IS_LOCAL
    from harness.planning.studies import largest_candidate, read_tuned, unfinished_studies
    from harness.records.journal import Journal
    from harness.reporting.plan import one_step_epochs, refuse_unfit

    before = read_tuned(planned, Journal(folders.results / "journal"))
    left = [trial.spec for trial in before.unfinished]
    left += [largest_candidate(study.spec) for study in unfinished_studies(before)]
    refuse_unfit(file, left)
    for sentence in one_step_epochs(planned) if left else ():
        tell(sentence, is_error=True)
    if not left or executor == "inline" or IS_LOCAL:
        return _run_missing(planned, before, executor, folders, tracking)
    from harness.execution.ray.cluster import cluster_checked

    with cluster_checked(str(file), folders, left) as checked:
        return _run_missing(planned, before, executor, checked, tracking)


def _run_missing(
    planned: Plan, before: Results, executor: ExecutorName, folders: Folders, tracking: LiveTracking
) -> SweepResults:
    from harness.analysis.analysis import Analysis
    from harness.execution.jobs import jobs_for
    from harness.execution.progress import Progress
    from harness.library import SweepResults
    from harness.planning.studies import read_tuned, unfinished_studies
    from harness.records.journal import Journal
    from harness.reporting.files import write, write_measured
    from harness.reporting.live import LiveReport
    from harness.reporting.point_tags import point_tags

    journal = Journal(folders.results / "journal")
    searched = [study.spec for study in unfinished_studies(before)]
    journal.write_plan(before.plan)
    tracking.start()

    def run(results: Results, studies: Sequence[StudySpec]) -> Results:
        if (jobs := jobs_for(results, folders)) or studies:
            left = sum(study.spec.trials - len(study.candidates) for study in unfinished_studies(results))
            with (
                Progress(jobs, candidates=left if studies else 0) as progress,
                LiveReport(planned, journal, folders.results, progress.say) as report,
            ):
                watch = _watched(progress, results.plan, jobs, journal, tracking, report)
                _executor(executor)(jobs, folders, watch, studies)
        return read_tuned(planned, journal)

    try:
        measured = run(before, searched)
        if searched:  # What they chose is known now, and measured like any other trial; what failed is not run again.
            journal.write_plan(measured.plan)
            new = tuple(trial for trial in measured.trials if trial.spec.trial_id not in before.statuses)
            measured = run(replace(measured, trials=new, studies=()), ())
    except (KeyboardInterrupt, Exception) as error:
        if isinstance(error, ExecutorError) or INTERRUPTION.led_to(error):
            with INTERRUPTION.deferred():
                INTERRUPTION.heard()
                error.add_note(write_measured(planned, journal, folders.results))
        raise
    with INTERRUPTION.deferred():
        analysis = Analysis(measured)
        written = write(analysis, folders.results)
    tracking.finish(measured, point_tags(analysis.ranked.table), written)
    return SweepResults(folders.results, analysis)


def _show_plan(file: Path, *, overrides: Sequence[str], only: Sequence[str], results: str | PathLike[str]) -> None:
    from harness.base.terminal import console as terminal_console
    from harness.execution.jobs import jobs_for
    from harness.planning.plan import plan
    from harness.planning.studies import largest_candidate, read_tuned, unfinished_studies
    from harness.records.journal import Journal
    from harness.reporting.plan import needs_table, needs_warning, studies_table, trials_table
    from harness.sizing.fit_check import doubtful, sized, unfit
    from harness.sizing.machine import this_machine
    from harness.sizing.size_cache import SizeCache, cache_folder

    planned = plan(file, overrides, only)
    folders = _folders(results, planned)
    measured = read_tuned(planned, Journal(folders.results / "journal"))
    to_memorize = sum(job.kind == "memorize" for job in jobs_for(measured, folders))
    console = terminal_console(width=120)
    console.print(trials_table(measured.plan, measured.statuses, to_memorize))
    if measured.studies:
        console.print()
        console.print(studies_table(measured.studies))
    machine, known = this_machine(), SizeCache(cache_folder())
    trials = [*measured.plan.trials, *(largest_candidate(study) for study in planned.studies)]
    needs = sized(trials, machine, known)
    console.print()
    console.print(needs_table(trials, needs))
    if machine is not None:
        left = [trial.spec for trial in measured.unfinished]
        left += [largest_candidate(study.spec) for study in unfinished_studies(measured)]
        if doubts := doubtful(left, needs, machine, known):
            console.print(needs_warning(doubts), style="yellow", markup=False, highlight=False)
        if refused := unfit(left, needs, machine, known):
            raise ConfigError(str(file), refused)


def _folders(results: str | PathLike[str], planned: Plan) -> Folders:
    from harness.execution.job import Folders

    root = Path(results).resolve()
    return Folders(results=root / planned.sweep, artifacts=root / "artifacts")


def _watched(
    watch: Watcher, planned: Plan, jobs: Sequence[Job], journal: Journal, tracking: LiveTracking, report: LiveReport
) -> Watcher:
    """Return a watcher that also has MLflow and the report brought up to date whenever a trial is over."""
    from harness.records.results import trial_results

    specs = {job.name: job.spec for job in jobs if job.kind == "trial"}

    def watched(event: Event) -> None:
        watch(event)
        if event.kind in ("finished", "failed") and event.job in specs:
            spec = specs[event.job]
            tracking.log_trial(planned, trial_results(spec, journal.read(spec.trial_id)))
            report.refresh()

    return watched


def _executor(name: ExecutorName) -> Executor:
    if name == "inline":
        from harness.execution.inline import run_inline

        return run_inline
    from harness.execution.ray.tune import run_with_ray

    return run_with_ray


def _tell(outcome: SweepResults) -> int:
    """Print the ranking, what is unfinished and where the report is; return the exit code."""
    from harness.reporting.sections.published import published_table
    from harness.reporting.text_tables import console, ranking_table

    console().print(ranking_table(outcome.analysis.shown_table))
    for table in outcome.analysis.published:
        console().print(published_table(table))
    for trial in outcome.unfinished:
        spec, reason = trial.spec, f": {shown(trial.failure.error)}" if trial.failure else ""
        tell(f"{trial.status}: {spec.variant} on {spec.model.id}, seed {spec.seed} ({spec.trial_id}){reason}")
    for study in outcome.unfinished_studies:
        row, tried = study.spec.trial, f"{len(study.candidates)} of {study.spec.trials} candidates are tried"
        tell(
            f"missing: {row.variant} on {row.model.id}: {tried}, and nothing is chosen before all are ({row.trial_id})"
        )
    tell(f"The report: {outcome.report}")
    return 1 if outcome.unfinished or outcome.unfinished_studies else 0
