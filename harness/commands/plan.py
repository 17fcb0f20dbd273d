"""The terminal's view of a plan: `lethe sweep FILE --plan`."""

from __future__ import annotations

from pathlib import Path

from harness.base.messages import console
from harness.errors import ConfigError
from harness.execution.job import Folders
from harness.execution.waves import shared_jobs
from harness.planning.machine import this_machine
from harness.planning.memory import memory_needs, needs_warning, unfit
from harness.records.journal import Journal
from harness.records.setting_changes import changed_sentences, replaced_rows, replaced_sentence
from harness.records.tuned import largest_candidate, read_tuned, specs_left
from harness.reporting.plan import needs_table, studies_table, trials_table
from harness.settings import Plan


def print_plan(file: Path, planned: Plan, results: Path) -> None:
    """Print every trial with its state and its need of memory; refuse one that cannot fit this machine."""
    folders = Folders.of_sweep(results, planned.sweep)
    journal = Journal(folders.results / "journal")
    measured = read_tuned(planned, journal)
    to_memorize = [job.spec for job in shared_jobs(measured, folders) if job.kind == "memorize"]
    terminal = console(width=120)
    terminal.print(trials_table(measured.plan, measured.statuses, len(to_memorize)), "")
    if measured.studies:
        terminal.print(studies_table(measured.studies), "")
    trials = [*measured.plan.trials, *(largest_candidate(study) for study in planned.studies)]
    machine = this_machine()
    needs = memory_needs(trials, machine)
    faults, doubts = unfit(specs_left(measured), machine, needs)
    terminal.print(needs_table(trials, needs))
    replaced = replaced_sentence(replaced_rows(planned, journal), folders.results, planned.sweep)
    for sentence in filter(None, (replaced, *changed_sentences(measured), needs_warning(doubts) if doubts else "")):
        terminal.print(sentence, style="yellow", markup=False, highlight=False)
    if faults:
        raise ConfigError(str(file), faults)
