"""Measure whether a model recites texts. Nothing is erased, and nothing is kept.

    lethe audit miniature-m miniature
    lethe audit EleutherAI/gpt-neo-125m letters.jsonl --unseen other_letters.jsonl --report audit.html
    lethe audit miniature-m miniature --attacks

An audit is a sweep without methods, on the texts alone.

Exit codes: 0 measured, whatever the answer; 1 measuring failed; 2 the model or the texts cannot be used; 130 after
Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.files import write_whole, writing
from harness.base.messages import printable, shown
from harness.base.paths import folder_argument, path_argument
from harness.base.terminal import tell
from harness.commands.command import Command, print_ranking
from harness.commands.model_and_texts import add_model_and_texts, read_model_and_texts

if TYPE_CHECKING:
    from harness.plans import Plan
    from harness.records.results import Results

MOST_TEXTS = 256
"""Used unless the user says otherwise: MA is then known to 0.01, and a table takes a minute."""
SMALL_BYTES = 100_000_000
"""Of weights: a smaller model gains nothing from a second thread."""


class AuditCommand(Command):
    """`lethe audit`."""

    interrupted = "Nothing is measured."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the model, the texts, and what is written."""
        add_model_and_texts(parser)
        parser.add_argument("--sequence-tokens", type=int, help="after how many tokens longer texts are cut")
        about = f"how many texts, drawn at random ({MOST_TEXTS}, or all there are)"
        parser.add_argument("--sequences", type=int, help=about)
        about = "also sample, shift the prefixes and round the weights: what greedy decoding alone does not show"
        parser.add_argument("--attacks", action="store_true", help=about)
        parser.add_argument("--report", type=path_argument, help="write a page here: audit.html")
        about = "keep the measurements in a folder, as a sweep does (default: keep nothing)"
        parser.add_argument("--results", type=folder_argument, help=about)

    def run(self, arguments: argparse.Namespace) -> int:
        """Measure the model on the texts, and print what it recites."""
        from harness.analysis.analysis import Analysis
        from harness.drafting.given_texts import faults_of_given
        from harness.planning.plan import plan_of
        from harness.planning.sweep_file import sweep_file_of
        from harness.reporting.page import page

        with faults_of_given(arguments.texts, arguments.unseen, arguments.model), ExitStack() as stack:
            planned = plan_of(sweep_file_of(audit_file(arguments), Path("audit.yaml")))
            root = arguments.results
            if root is None:
                with writing(Path(tempfile.gettempdir()), "the audit's temporary folder; TMPDIR names another place"):
                    root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lethe-audit-")))
            results = _measure_in(root.resolve(), planned)
            for trial in results.unfinished:
                reason = f": {shown(trial.failure.reason)}" if trial.failure else ""
                tell(f"{trial.status}: {trial.spec.label}{reason}", is_error=True)
            if results.unfinished:
                return 1
            analysis = Analysis(results)
            report = page(analysis, is_kept=arguments.results is not None)
        print_ranking(analysis)
        if any(recitation.needs_unseen_texts for recitation in analysis.ranked.recitations.values()):
            tell("For a surer answer, name texts of that kind that the model never saw: --unseen FILE.")
        if arguments.report is not None:
            tell(f"The report: {write_whole(arguments.report, report, 'the report')}")
        return 0


def audit_file(arguments: argparse.Namespace) -> str:
    """Return the sweep file that the audit runs.

    Raises:
        DataError: The texts cannot be used.
        ModelError: The model or its tokenizer cannot be loaded.
    """
    from harness.drafting.file_templates import filled, flow
    from harness.drafting.given_texts import named_source
    from harness.planning.machine import this_machine
    from harness.planning.memory import weights_bytes

    cut = {"sequences": arguments.sequences, "sequence_tokens": arguments.sequence_tokens}
    model, texts, settings = read_model_and_texts(arguments, MOST_TEXTS, **cut)
    if texts.sampled_of:
        count = texts.forget["sequences"]
        tell(f"{arguments.texts} has {texts.sampled_of:,} texts: {count} of them are used, drawn at random.")
    utility = named_source(arguments.texts, arguments.field)
    machine = this_machine()
    cpus = 1 if weights_bytes(model) < SMALL_BYTES else os.cpu_count() or 1
    return filled(
        "audit.yaml.j2",
        question=printable(f"Does {arguments.model} recite {arguments.texts}?"),
        utility=flow(utility | {"prompts": 1, "prompt_tokens": 1, "reference_tokens": 1}),
        attacks=arguments.attacks,
        resources=flow({"cpus": cpus, "gpus": min(1, machine.gpus) if machine else 0}),
        **settings,
    )


def _measure_in(root: Path, planned: Plan) -> Results:
    """Run what is missing of the audit, in this process, and return everything that is measured."""
    from harness.execution.inline import run_inline
    from harness.execution.job import Folders
    from harness.execution.jobs import jobs_for
    from harness.execution.progress import Progress
    from harness.planning.memory import refuse_unfit
    from harness.records.journal import Journal
    from harness.records.results import read_results

    refuse_unfit(Path("audit.yaml"), planned.trials)
    folders = Folders.of_sweep(root, planned.sweep)
    journal = Journal(folders.results / "journal")
    with journal.held():
        journal.write_plan(planned)
        jobs = jobs_for(read_results(planned, journal), folders)
        with Progress(jobs) as progress:
            run_inline(jobs, folders, progress)
        return read_results(planned, journal)


main = AuditCommand()
