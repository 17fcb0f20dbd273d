"""Audit of texts: a sweep without methods."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from harness.analysis.analysis import Analysis
from harness.base.files import writing
from harness.base.messages import printable, tell
from harness.drafting.given_texts import Given, faults_of_given, filled, flow, named_source, read_given
from harness.execution.job import Folders
from harness.execution.progress import SweepProgress
from harness.execution.waves import run_inline, run_waves
from harness.planning.machine import this_machine
from harness.planning.memory import refuse_unfit, weights_bytes
from harness.planning.plan import plan_of
from harness.planning.sweep_file import sweep_file_of
from harness.records.journal import Journal
from harness.records.results import read_results

FILE = Path("audit.yaml")
MAX_TEXTS = 256
"""Default number of texts: MA is then known to 0.01, in about a minute."""
SMALL_BYTES = 100_000_000
"""Bytes of weights below which a second thread does not help."""


@contextmanager
def audited(given: Given, results: Path | None, *, attacks: bool) -> Iterator[Analysis]:
    """Measure a model on texts in this process, in the results folder or a temporary one."""
    with writing(Path(tempfile.gettempdir()), "the audit's temporary folder; TMPDIR names another place"):
        temporary = None if results else tempfile.TemporaryDirectory(prefix="lethe-audit-")
    with temporary or nullcontext(str(results)) as root:
        with faults_of_given(given):
            planned = plan_of(sweep_file_of(audit_file(given, attacks=attacks), FILE))
            refuse_unfit(FILE, planned.trials)
        folders = Folders.of_sweep(Path(root).resolve(), planned.sweep)
        journal = Journal(folders.results / "journal")
        with journal.held():
            journal.write_plan(planned)
            with SweepProgress(len(planned.trials)) as progress:
                run_waves(read_results(planned, journal), folders, run_inline, progress)
            measured = read_results(planned, journal)
        yield Analysis(measured)


def audit_file(given: Given, *, attacks: bool = False) -> str:
    """Return the sweep file that the audit runs."""
    read = read_given(given, MAX_TEXTS)
    if read.sampled_of:
        count = read.forget["sequences"]
        tell(f"{given.texts} has {read.sampled_of:,} texts: {count} of them are used, drawn at random.")
    machine = this_machine()
    cpus = 1 if weights_bytes(read.model) < SMALL_BYTES else os.cpu_count() or 1
    utility = named_source(given.texts, given.field) | {"prompts": 1, "prompt_tokens": 1, "reference_tokens": 1}
    return filled(
        "audit.yaml.j2",
        question=printable(f"Does {given.model} recite {given.texts}?"),
        utility=flow(utility),
        attacks=attacks,
        resources=flow({"cpus": cpus, "gpus": min(1, machine.gpus) if machine else 0}),
        **read.settings(),
    )
