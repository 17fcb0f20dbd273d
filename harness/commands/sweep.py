"""Run what is missing of a sweep, and write its report.

    python -m harness.sweep sweeps/tradeoff.yaml
    python -m harness.sweep sweeps/tradeoff.yaml --plan
    python -m harness.sweep sweeps/tradeoff.yaml --set seeds=[0,1,2] --only method=emso

Exit codes: 0 all is done, 1 a trial failed or Ray died, 2 the sweep file is wrong; 130 after Ctrl-C, 143 after SIGTERM,
129 after SIGHUP. The first of these signals stops what is running and writes the report of what is measured; a second
one ends everything at once. After any of them, the same command continues.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.messages import shown
from harness.base.paths import path_argument
from harness.base.terminal import console, tell
from harness.commands.command import Command, add_results_argument, add_set_argument, print_ranking

# What takes long to import is imported when it is used: a signal during that is already handled.
from harness.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from harness.plans import Plan


class SweepCommand(Command):
    """`lethe sweep`."""

    input_errors = (ConfigError,)
    interrupted = "What is measured is kept: run the same command again to continue."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the sweep file, and what changes or restricts it."""
        parser.add_argument("file", type=path_argument, help="the sweep file, such as sweeps/tradeoff.yaml")
        parser.add_argument("--plan", action="store_true", help="show every trial and its state, and run nothing")
        add_set_argument(parser)
        only = "run only these trials: method=, model=, variant= or seed= (repeatable)"
        parser.add_argument("--only", action="append", default=[], metavar="KEY=VALUE", help=only)
        replace = "show rows measured under this name with other settings no longer (the journal keeps them)"
        parser.add_argument("--replace", action="store_true", help=replace)
        keep = "keep the numbers of a plugin whose file has changed since and whose version has not"
        parser.add_argument("--keep", action="store_true", help=keep)
        executor = "inline: in this process, one after the other and not isolated from each other (docs/sweeps.md)"
        parser.add_argument("--executor", choices=["ray", "inline"], default="ray", help=executor)
        add_results_argument(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Run what is missing and print the ranking, or show the plan."""
        from harness.planning.sweep_file import read_sweep_file

        file = read_sweep_file(arguments.file, arguments.set)  # What is no YAML is said before torch is imported.
        from harness.planning.plan import plan_of

        planned = plan_of(file, arguments.set, arguments.only)
        if arguments.plan:
            _show_plan(arguments.file, planned, arguments.results)
            return 0
        from harness.records.spending import share_spent
        from harness.running import run_planned  # It takes seconds: mistakes in the file are reported first.

        try:
            outcome = run_planned(
                arguments.file,
                planned,
                executor=arguments.executor,
                results=arguments.results,
                replace_rows=arguments.replace,
                keep=arguments.keep,
            )
        except StorageError as error:
            error.add_note("What is measured is kept.")
            raise
        print_ranking(outcome.analysis)
        for trial in outcome.unfinished:
            spec, reason = trial.spec, f": {shown(trial.failure.reason)}" if trial.failure else ""
            tell(f"{trial.status}: {spec.variant} on {spec.model.id}, seed {spec.seed} ({spec.trial_id}){reason}")
        for study in outcome.unfinished_studies:
            spec, tried = study.spec.trial, f"{len(study.candidates)} of {study.spec.trials} candidates are tried"
            if study.spec.cost is not None:
                tried = f"{len(study.candidates)} candidates took {share_spent(study.spec.cost, study.candidates)}"
            name = f"{spec.variant} on {spec.model.id}, {study.spec.seeds_text}, {study.spec.search} search"
            tell(f"missing: {name}: {tried}, and none is chosen until the search is over ({spec.trial_id})")
        tell(f"The report: {outcome.report}")
        return 1 if outcome.unfinished or outcome.unfinished_studies else 0


def _show_plan(file: Path, planned: Plan, results: Path) -> None:
    from harness.execution.job import Folders
    from harness.execution.waves import shared_jobs
    from harness.planning.machine import this_machine
    from harness.planning.memory import memory_needs, needs_warning, unfit
    from harness.records.code_changes import changed_sentences
    from harness.records.journal import Journal
    from harness.records.setting_changes import replaced_rows, replaced_sentence
    from harness.records.tuned import largest_candidate, read_tuned, specs_left
    from harness.reporting.plan import needs_table, studies_table, trials_table

    folders = Folders.of_sweep(results, planned.sweep)
    journal = Journal(folders.results / "journal")
    measured = read_tuned(planned, journal)
    to_memorize = [job.spec for job in shared_jobs(measured, folders) if job.kind == "memorize"]
    terminal = console(width=120)
    terminal.print(trials_table(measured.plan, measured.statuses, len(to_memorize)))
    if measured.studies:
        terminal.print()
        terminal.print(studies_table(measured.studies))
    trials = [*measured.plan.trials, *(largest_candidate(study) for study in planned.studies)]
    machine = this_machine()
    needs = memory_needs(trials, machine)
    faults, doubts = unfit(specs_left(measured), machine, needs)
    terminal.print()
    terminal.print(needs_table(trials, needs))
    if sentence := replaced_sentence(replaced_rows(planned, journal), folders.results, planned.sweep):
        terminal.print(sentence, style="yellow", markup=False, highlight=False)
    for sentence in changed_sentences(measured):
        terminal.print(sentence, style="yellow", markup=False, highlight=False)
    if doubts:
        terminal.print(needs_warning(doubts), style="yellow", markup=False, highlight=False)
    if faults:
        raise ConfigError(str(file), faults)


main = SweepCommand()
