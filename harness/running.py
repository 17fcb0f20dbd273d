"""Runs a sweep from its file to its report.

What only a report needs (scipy, matplotlib and more: a second) is imported when one is written: Ray starts before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.base.terminal import lasting_streams, tell
from harness.errors import ConfigError, ExecutorError, Fault
from harness.execution.guard.interruption import INTERRUPTION
from harness.execution.job import Event, Folders, Job, Watcher
from harness.execution.jobs import jobs_for
from harness.execution.progress import Progress
from harness.execution.ray_settings import IS_LOCAL
from harness.planning.memory import refuse_unfit
from harness.planning.plan import plan
from harness.plans import Plan, StudySpec
from harness.records.code_changes import changed_sentences
from harness.records.journal import Journal
from harness.records.mlflow import LiveCopy
from harness.records.results import Results, trial_results
from harness.records.setting_changes import replaced_rows, replaced_sentence
from harness.records.tuned import read_tuned, specs_left, unfinished_studies
from harness.reporting.live import LiveReport
from harness.reporting.plan import one_step_epochs
from harness.specs import TrialSpec

if TYPE_CHECKING:
    from harness.library import SweepResults

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
    """Run what is missing of a sweep, write its report, and return all that it has measured.

    Args:
        file: The sweep file.
        overrides: Settings changed, as for `--set`: `seeds=[0,1]`.
        only: Trials chosen, as for `--only`: `method=emso`.
        executor: `ray`, or `inline`: in this process, one trial after the other, none isolated from it.
        results: The folder of all sweeps' results.
        keep: Keep the numbers of plugins whose code has changed since under the same version.
        replace: Show rows that were measured under this name with other settings no longer, instead of asking for
            another name.

    Raises:
        ConfigError: The sweep file is wrong, its results have such rows, a trial cannot run on this machine, or a
            cluster's node lacks what it needs; it lists every fault.
        DataError: Another run of this sweep is at work, or its numbers cannot be ranked together.
        ExecutorError: Ray died; what was measured before is kept, and in the report.
    """
    planned = plan(Path(file), overrides, only)
    return run_planned(Path(file), planned, executor=executor, results=results, replace_rows=replace, keep=keep)


def run_planned(
    file: Path,
    planned: Plan,
    *,
    executor: ExecutorName = "ray",
    results: str | PathLike[str] = "results",
    replace_rows: bool = False,
    keep: bool = False,
) -> SweepResults:
    """Run what is missing of the plan of a sweep file; everything else is as in `run_sweep`."""
    folders = Folders.of_sweep(results, planned.sweep)
    journal = Journal(folders.results / "journal")
    with lasting_streams(), journal.held(), LiveCopy(folders.results) as tracking:
        if not replace_rows and (
            sentence := replaced_sentence(replaced_rows(planned, journal), folders.results, planned.sweep)
        ):
            raise ConfigError(str(file), [Fault("name", sentence)])
        before = read_tuned(planned, journal)
        if not keep and (sentences := changed_sentences(before)):
            raise ConfigError(str(file), [Fault("plugins", sentence) for sentence in sentences])
        left = specs_left(before)
        refuse_unfit(file, left)
        for sentence in (*one_step_epochs(planned), *planned.shared_texts) if left else ():
            tell(sentence, is_error=True)
        with _checked_cluster(str(file), folders, left, executor) as checked:
            run = _Run(planned, journal, checked, executor, tracking)
            with run.reported_if_ended():
                measured = run.finish(before)
        return _reported(measured, folders.results, tracking)


def _reported(measured: Results, folder: Path, tracking: LiveCopy) -> SweepResults:
    """Write the report, have MLflow brought up to date with it, and return all that is measured."""
    with INTERRUPTION.deferred():
        from harness.analysis.analysis import Analysis
        from harness.library import SweepResults
        from harness.reporting.files import write
        from harness.reporting.point_tags import point_tags
        from harness.reporting.sections.outcome import answer_markdown

        analysis = Analysis(measured)
        written = write(analysis, folder)
    tracking.finish(measured, point_tags(analysis.ranked.table, analysis.attacks), written, answer_markdown(analysis))
    return SweepResults(folder, analysis)


@contextmanager
def _checked_cluster(
    file: str, folders: Folders, left: Sequence[TrialSpec], executor: ExecutorName
) -> Iterator[Folders]:
    if not left or executor == "inline" or IS_LOCAL:
        yield folders
        return
    from harness.execution.ray.session import cluster_checked  # It imports Ray.

    with cluster_checked(file, folders, left) as checked:
        yield checked


@dataclass(frozen=True)
class _Run:
    """One run of a sweep."""

    planned: Plan
    journal: Journal
    folders: Folders
    executor: ExecutorName
    tracking: LiveCopy

    def finish(self, before: Results) -> Results:
        """Run what is missing, and then what finished studies chose; return all that is measured."""
        searched = [study.spec for study in unfinished_studies(before)]
        self.journal.write_plan(before.plan)
        self.tracking.start()
        measured = self._execute(before, searched)
        tried = {trial.spec.trial_id: trial.spec for trial in before.trials}
        while new := tuple(trial for trial in measured.trials if tried.get(trial.spec.trial_id) != trial.spec):
            # Choices are measured like other trials, and what follows from them; what failed is not run again.
            tried |= {trial.spec.trial_id: trial.spec for trial in new}
            self.journal.write_plan(measured.plan)
            measured = self._execute(replace(measured, trials=new, studies=()), ())
        return measured

    def _execute(self, results: Results, studies: Sequence[StudySpec]) -> Results:
        jobs = jobs_for(results, self.folders)
        if jobs or studies:
            candidates = sum(study.spec.trials - len(study.candidates) for study in unfinished_studies(results))
            with (
                Progress(jobs, candidates=candidates if studies else 0) as progress,
                LiveReport(self.planned, self.journal, self.folders.results, progress.say) as report,
            ):
                watch = watched(progress, results.plan, jobs, self.journal, self.tracking, report)
                if self.executor == "ray":
                    from harness.execution.ray.tune import run_with_ray  # It imports Ray.

                    run_with_ray(jobs, self.folders, watch, studies)
                else:
                    from harness.execution.inline import run_inline  # It imports what trials need, here not used else.

                    run_inline(jobs, self.folders, watch, studies)
        return read_tuned(self.planned, self.journal)

    @contextmanager
    def reported_if_ended(self) -> Iterator[None]:
        """Write the report of what is measured if a signal or Ray's death ends the run, and say where it is."""
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            if isinstance(error, ExecutorError) or INTERRUPTION.led_to(error):
                with INTERRUPTION.deferred():
                    from harness.reporting.files import write_measured

                    INTERRUPTION.heard()
                    error.add_note(write_measured(self.planned, self.journal, self.folders.results))
            raise


def watched(
    watch: Watcher, planned: Plan, jobs: Sequence[Job], journal: Journal, tracking: LiveCopy, report: LiveReport
) -> Watcher:
    """Return a watcher that also has MLflow and the report brought up to date whenever a trial is over."""
    specs = {job.name: job.spec for job in jobs if job.kind == "trial"}

    def watch_trials(event: Event) -> None:
        watch(event)
        if event.kind in ("finished", "failed") and event.job in specs:
            spec = specs[event.job]
            tracking.log_trial(planned, trial_results(spec, journal.read(spec.trial_id)))
            report.refresh()

    return watch_trials
