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
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.base.messages import shown
from harness.base.paths import folder_argument, path_argument
from harness.base.terminal import tell

# What takes long to import is imported when it is used: a signal during that is already ours.
from harness.errors import ConfigError, LetheError, StorageError
from harness.execution.guard.interruption import INTERRUPTION

if TYPE_CHECKING:
    from harness.library import SweepResults

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
        from harness.planning.plan import plan

        planned = plan(arguments.file, arguments.set, arguments.only)
        from harness.running import run_planned  # It takes seconds: a mistake in the file comes first.

        return _tell(run_planned(arguments.file, planned, executor=arguments.executor, results=arguments.results))
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


def _show_plan(file: Path, *, overrides: Sequence[str], only: Sequence[str], results: str | PathLike[str]) -> None:
    from harness.base.terminal import console as terminal_console
    from harness.execution.job import Folders
    from harness.execution.jobs import jobs_for
    from harness.planning.plan import plan
    from harness.records.journal import Journal
    from harness.records.tuned import largest_candidate, read_tuned, specs_left
    from harness.reporting.plan import needs_table, needs_warning, studies_table, trials_table
    from harness.sizing.fit_check import doubtful, sized, unfit
    from harness.sizing.machine import this_machine
    from harness.sizing.size_cache import SizeCache, cache_folder

    planned = plan(file, overrides, only)
    folders = Folders.of_sweep(results, planned.sweep)
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
        left = specs_left(measured)
        if doubts := doubtful(left, needs, machine, known):
            console.print(needs_warning(doubts), style="yellow", markup=False, highlight=False)
        if refused := unfit(left, needs, machine, known):
            raise ConfigError(str(file), refused)


def _tell(outcome: SweepResults) -> int:
    """Print the ranking, what is unfinished and where the report is; return the exit code."""
    from harness.reporting.sections.published import published_table
    from harness.reporting.text_tables import ranking_table, table_console

    table_console().print(ranking_table(outcome.analysis.shown_table))
    for table in outcome.analysis.published:
        table_console().print(published_table(table))
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
