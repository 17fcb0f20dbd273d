"""`lethe`: one command with verbs, most of which are also modules to run with `python -m`."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

from harness.base.terminal import tell
from harness.commands.command import run_command

if TYPE_CHECKING:
    pass

Verb = Callable[[Sequence[str]], int]

VERBS = {
    "audit": "measure whether a model recites texts; nothing is erased",
    "init": "write a commented sweep file for a model and texts",
    "sweep": "run what is missing of a sweep, and write its report",
    "prefetch": "fetch every model and data set of the hub that a sweep names",
    "collate": "make tables and report again, from a journal or a table.csv",
    "verify": "hold a sweep's results against the published table that it reproduces",
    "index": "write one page that links the reports of all sweeps",
    "check": "try one method or evaluator against all that it must keep, in sentences",
    "pretrain": "rebuild the miniature's checkpoints, or make more from other seeds",
    "plugins": "print every method and evaluator with its settings, and every metric",
    "export": "write any point's model as a from_pretrained folder, with tokenizer and card",
    "diff": "tell what differs between two results: settings, versions, numbers",
    "items": "print what each sequence, prompt and question has of a point's metrics",
    "figure": "draw the paper's appendix figures: losses, and a head's attention",
    "track": "fill MLflow in from a sweep's journal: what it lacks, and nothing twice",
    "dashboard": "browse the runs of all sweeps in MLflow, on 127.0.0.1",
}
"""Each verb, a module of `harness.commands` that is imported when it is used, and what it does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `lethe VERB ...` and return its exit code."""
    if argv is None:  # The command itself: a plugin may have left a thread that would go on for ever.
        run_command(partial(main, sys.argv[1:]))
    arguments = list(argv) or ["--help"]
    parser = _parser()
    if arguments[0] == "--version":
        tell(version_text())
        return 0
    if not arguments[0].startswith("-") and arguments[0] not in VERBS:
        near = get_close_matches(arguments[0], VERBS, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        tell(f"lethe has no verb '{arguments[0]}'.{hint}\n\n{parser.format_help()}", is_error=True)
        return 2
    verb, rest = parser.parse_known_args(arguments)
    run: Verb = import_module(f"harness.commands.{verb.name}").main
    return run(rest)


def _parser() -> argparse.ArgumentParser:
    layout = partial(argparse.HelpFormatter, max_help_position=16, width=100)
    usage = "lethe VERB [ARGS]"
    parser = argparse.ArgumentParser(
        prog="lethe", usage=usage, epilog="lethe VERB --help says more.", formatter_class=layout
    )
    parser.add_argument("--version", action="store_true", help="print the versions of Lethe and of what it runs on")
    verbs = parser.add_subparsers(dest="name", metavar="VERB [ARGS]", required=True, title="verbs")
    for name, about in VERBS.items():
        verbs.add_parser(name, help=about, add_help=False)  # What follows a verb is its own to read.
    return parser


def version_text() -> str:
    """Return the versions of Lethe, with its commit where it runs from a checkout, and of what it runs on."""
    from harness.records.tracking.runs import commit_tag

    commit = next(iter(commit_tag().values()), "")
    lines = [f"Lethe {version('lethe')}{commit and f', commit {commit}'}", f"Python {platform.python_version()}"]
    return "\n".join([*lines, *(f"{package} {version(package)}" for package in ("torch", "transformers", "ray"))])


if __name__ == "__main__":
    main()
