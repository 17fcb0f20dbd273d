"""`lethe audit MODEL TEXTS`: does this model recite these texts at all? Nothing is erased, and nothing is kept.

    lethe audit miniature-m miniature
    lethe audit EleutherAI/gpt-neo-125m letters.jsonl --unseen other_letters.jsonl --report audit.html

It is a sweep without methods, on the texts alone. Exit codes: 0 measured, whatever came out; 1 measuring failed; 2 the
model or the texts cannot be used; 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.files import write_whole
from harness.base.messages import printable, shown
from harness.base.paths import folder_argument, named_argument, path_argument
from harness.base.storage import writing
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.execution.guard.interruption import INTERRUPTION, Interrupted

if TYPE_CHECKING:
    from harness.plans import Plan
    from harness.records.results import Results

MOST_TEXTS = 256
"""Used unless the user says otherwise: MA is then known to 0.01, and a table takes a minute."""
SMALL_BYTES = 100_000_000
"""Of weights: a smaller model gains nothing from a second thread."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    with INTERRUPTION.watched(signals=True):
        try:
            return _COMMAND(argv)
        except KeyboardInterrupt as error:
            INTERRUPTION.heard()
            tell("\nInterrupted: nothing is measured.", is_error=True)
            return error.exit_code if isinstance(error, Interrupted) else 130


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=named_argument, help="a miniature's name, a folder or a hub id")
    parser.add_argument(
        "texts",
        type=named_argument,
        help='JSON lines ({"text": ...}), token ids (.npy), or "miniature" for the embedded forget set',
    )
    parser.add_argument(
        "--unseen", type=named_argument, help="texts of the same kind that the model never saw, to compare with"
    )
    parser.add_argument("--field", default="text", help="of each line of JSON (%(default)s)")
    parser.add_argument(
        "--tokenizer", type=named_argument, help="the model's tokenizer folder, if it is not with the model"
    )
    parser.add_argument("--prefix-tokens", type=int, help="how long a beginning the model is given")
    parser.add_argument("--sequence-tokens", type=int, help="where longer texts are cut")
    parser.add_argument("--sequences", type=int, help="how many texts, drawn at random (256, or all there are)")
    parser.add_argument("--report", type=path_argument, help="write a page here: audit.html")
    parser.add_argument(
        "--results", type=folder_argument, help="keep what is measured in a folder, as a sweep does (nothing is kept)"
    )


def _run(arguments: argparse.Namespace) -> int:
    from harness.drafting.given_texts import faults_of_given

    with faults_of_given(arguments.texts, arguments.unseen, arguments.model):
        return _audit(arguments)


def _audit(arguments: argparse.Namespace) -> int:
    from harness.analysis.analysis import Analysis
    from harness.planning.plan import plan_of
    from harness.planning.sweep_file import sweep_file_of
    from harness.reporting.page import page
    from harness.reporting.text_tables import ranking_table, table_console

    planned = plan_of(sweep_file_of(_file_text(arguments), Path("audit.yaml")))
    with ExitStack() as stack:
        if arguments.results is None:
            base = Path(tempfile.gettempdir())
            with writing(base, "the audit's temporary folder; TMPDIR names another place"):
                root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lethe-audit-")))
        else:
            root = arguments.results
        results = _measured(planned, root.resolve())
        if results.unfinished:
            for trial in results.unfinished:
                reason = f": {shown(trial.failure.error)}" if trial.failure else ""
                tell(f"{trial.status}: {trial.spec.label}{reason}", is_error=True)
            return 1
        analysis = Analysis(results)
        report = page(analysis, is_kept=arguments.results is not None)
    table_console().print(ranking_table(analysis.shown_table))
    if any(recitation.needs_unseen_texts for recitation in analysis.ranked.recitations.values()):
        tell("To be surer, name texts of that kind that the model never saw: --unseen FILE.")
    if arguments.report is not None:
        tell(f"The report: {write_whole(arguments.report, report, 'the report')}")
    return 0


def _file_text(arguments: argparse.Namespace) -> str:
    """Return the sweep file that the audit runs."""
    from harness.drafting.file_templates import filled, flow
    from harness.drafting.given_texts import given_texts, named_source
    from harness.models.loading import check_model
    from harness.planning.resolve import resolve_original
    from harness.planning.schema import ModelEntry
    from harness.sizing.estimate import weights_bytes
    from harness.sizing.machine import this_machine

    named = {"id": arguments.model, **({"tokenizer": arguments.tokenizer} if arguments.tokenizer else {})}
    model = resolve_original(ModelEntry(**named))
    check_model(model)
    texts = given_texts(
        model,
        arguments.texts,
        field=arguments.field,
        most_texts=MOST_TEXTS,
        sequences=arguments.sequences,
        prefix_tokens=arguments.prefix_tokens,
        sequence_tokens=arguments.sequence_tokens,
    )
    if texts.warning:
        tell(texts.warning, is_error=True)
    if texts.sampled_of:
        tell(f"{arguments.texts} has {texts.sampled_of:,} texts: {texts.forget['sequences']} of them, drawn at random.")
    source = named_source(arguments.texts, arguments.field)
    machine = this_machine()
    cpus = 1 if weights_bytes(model) < SMALL_BYTES else os.cpu_count() or 1
    return filled(
        "audit.yaml.j2",
        question=printable(f"Does {arguments.model} recite {arguments.texts}?"),
        model=flow(named if arguments.tokenizer else arguments.model),
        forget=flow(dict(texts.forget)),
        holdout=flow(named_source(arguments.unseen, arguments.field)) if arguments.unseen else "",
        utility=flow({**source, "prompts": 1, "prompt_tokens": 1, "reference_tokens": 1}),
        resources=flow({"cpus": cpus, "gpus": min(1, machine.gpus) if machine else 0}),
    )


def _measured(planned: Plan, root: Path) -> Results:
    """Run what is missing of the audit, in this process, and return all that is measured."""
    from harness.execution.inline import run_inline
    from harness.execution.job import Folders
    from harness.execution.jobs import jobs_for
    from harness.execution.progress import Progress
    from harness.records.journal import Journal
    from harness.records.results import read_results
    from harness.reporting.plan import refuse_unfit

    refuse_unfit(Path("audit.yaml"), planned.trials)
    folders = Folders.of_sweep(root, planned.sweep)
    journal = Journal(folders.results / "journal")
    with journal.held():
        journal.write_plan(planned)
        jobs = jobs_for(read_results(planned, journal), folders)
        with Progress(jobs) as progress:
            run_inline(jobs, folders, progress)
        return read_results(planned, journal)


_COMMAND = Command("audit", __doc__, _add_arguments, _run)
