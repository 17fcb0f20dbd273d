"""`python -m harness.sweep FILE`: run what is missing of a sweep, and write its report.

    python -m harness.sweep sweeps/tradeoff.yaml
    python -m harness.sweep sweeps/tradeoff.yaml --plan
    python -m harness.sweep sweeps/tradeoff.yaml --set seeds=[0,1,2] --only method=emso

Exit codes: 0 all is done, 1 a trial failed, 2 the sweep file is wrong, 130 interrupted (Ctrl-C).
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from harness.errors import ConfigError, LetheError
from harness.planning.describe import describe
from harness.planning.plan import plan
from harness.records.journal import Journal, Status, status
from harness.specs import Failed, Plan, Record, TrialSpec

if TYPE_CHECKING:
    from harness.execution.jobs import Event, Executor, Folders, Job, Watcher
    from harness.records.tracking import Tracker

Records = dict[str, list[Record]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)
    results = arguments.results.resolve()
    try:
        planned = plan(arguments.file, arguments.set, arguments.only)
        folders = _folders(results, planned)
        if arguments.plan:
            return _show(str(arguments.file), planned, folders)
        with Journal(folders.results / "journal").held():
            return _run(str(arguments.file), planned, arguments.executor, folders)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except LetheError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. What is measured is kept: run the same command again to continue.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m harness.sweep", description="Run what is missing of a sweep.")
    parser.add_argument("file", type=Path, help="the sweep file, such as sweeps/tradeoff.yaml")
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
    parser.add_argument("--executor", choices=["ray", "inline"], default="ray", help="inline: in this process")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of all sweeps' results")
    return parser


def _show(file: str, planned: Plan, folders: Folders) -> int:
    from harness.execution.jobs import jobs_for
    from harness.sizing.fit_check import doubtful, sized, unfit
    from harness.sizing.machine import this_machine
    from harness.sizing.needs_table import needs_table, warning
    from harness.sizing.size_cache import SizeCache, cache_folder

    found = Console()
    found = found if found.is_terminal else Console(width=120)
    records = _records(planned, Journal(folders.results / "journal"))
    states = _states(planned, records)
    memorize = [job for job in jobs_for(planned, records, folders) if job.kind == "memorize"]
    found.print(describe(planned, states, len(memorize)))
    machine, known = this_machine(), SizeCache(cache_folder())
    needs = sized(planned.trials, machine, known)
    found.print()
    found.print(needs_table(planned.trials, needs))
    if machine is not None:
        left = _left(planned, states)
        if doubts := doubtful(left, needs, machine, known):
            found.print(warning(doubts), style="yellow", markup=False, highlight=False)
        if refused := unfit(left, needs, machine, known):
            raise ConfigError(file, refused)
    return 0


def _refuse_unfit(file: str, trials: Sequence[TrialSpec], folders: Folders) -> None:
    """Stop before anything starts if a trial cannot run here; small models are not looked at closely."""
    from harness.sizing.fit_check import doubtful, large, sized, unfit
    from harness.sizing.machine import this_machine
    from harness.sizing.needs_table import warning
    from harness.sizing.size_cache import SizeCache, cache_folder

    machine, known = this_machine(), SizeCache(cache_folder())
    if machine is None:
        return
    needs = sized(large(trials, machine, known), machine, known)
    if doubts := doubtful(trials, needs, machine, known):
        print(warning(doubts), file=sys.stderr)
    if refused := unfit(trials, needs, machine, known):
        raise ConfigError(file, refused)


def _states(planned: Plan, records: Records) -> dict[str, Status]:
    return {spec.trial_id: status(spec, records[spec.trial_id]) for spec in planned.trials}


def _left(planned: Plan, states: Mapping[str, Status]) -> list[TrialSpec]:
    return [spec for spec in planned.trials if states[spec.trial_id] != "done"]


def _folders(results: Path, planned: Plan) -> Folders:
    from harness.execution.jobs import Folders

    return Folders(results=results / planned.sweep, artifacts=results / "artifacts")


def _run(file: str, planned: Plan, executor: str, folders: Folders) -> int:
    from harness.execution.jobs import jobs_for
    from harness.execution.progress import Progress
    from harness.records.tracking import Tracker

    journal, tracker = Journal(folders.results / "journal"), Tracker(folders.results.parent)
    records = _records(planned, journal)
    _refuse_unfit(file, _left(planned, _states(planned, records)), folders)
    journal.write_plan(planned)
    threading.Thread(target=tracker.prepare, daemon=True).start()
    jobs = jobs_for(planned, records, folders)
    if jobs:
        with Progress(jobs) as progress:
            _executor(executor)(jobs, folders, _tracked(progress, planned, jobs, journal, tracker))
    return _report(planned, journal, tracker, folders)


def _tracked(watch: Watcher, planned: Plan, jobs: Sequence[Job], journal: Journal, tracker: Tracker) -> Watcher:
    """Return a watcher that also brings MLflow up to date whenever a trial is over."""
    trials = {job.name: job.spec.trial_id for job in jobs if job.kind == "trial"}

    def watched(event: Event) -> None:
        watch(event)
        if event.kind in ("finished", "failed") and event.job in trials:
            trial_id = trials[event.job]
            tracker.log_point(planned, trial_id, journal.read(trial_id))

    return watched


def _executor(name: str) -> Executor:
    if name == "inline":
        from harness.execution.job_queue import run_inline

        return run_inline
    from harness.execution.ray_tune import run_with_ray

    return run_with_ray


def _report(planned: Plan, journal: Journal, tracker: Tracker, folders: Folders) -> int:
    from harness.reporting.facts import metric_facts
    from harness.reporting.ranking import rank
    from harness.reporting.table import table
    from harness.reporting.terminal import console, ranking_table
    from harness.reporting.write import write

    records = _records(planned, journal)
    found, facts = table(planned, records), metric_facts(planned, records)
    classes = found.groupby("trial_id")["collapse_class"].agg(lambda each: ", ".join(each.dropna().unique()))
    written = write(planned, records, folders.results)
    tracker.sync(planned, records, {str(trial_id): words for trial_id, words in classes.items() if words})
    tracker.finish(written)
    console().print(ranking_table(found, rank(found, facts), facts))
    states = _states(planned, records)
    unfinished = _left(planned, states)
    for spec in unfinished:
        why = next((f": {each.error}" for each in reversed(records[spec.trial_id]) if isinstance(each, Failed)), "")
        print(f"{states[spec.trial_id]}: {spec.variant} on {spec.model.id}, seed {spec.seed} ({spec.trial_id}){why}")
    print(f"The report: {folders.results / 'report.html'}")
    return 1 if unfinished else 0


def _records(planned: Plan, journal: Journal) -> Records:
    return {spec.trial_id: journal.read(spec.trial_id) for spec in planned.trials}


if __name__ == "__main__":
    sys.exit(main())
