"""`lethe`: one command with verbs."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version

from harness.base.terminal import tell
from harness.commands.command import Command, run_command
from harness.errors import did_you_mean

VERBS = {
    "audit": "measure whether a model recites texts; nothing is erased",
    "init": "write a commented sweep file for a model and texts",
    "sweep": "run what is missing of a sweep, and write its report",
    "prefetch": "fetch every model and data set of the hub that a sweep names",
    "collate": "make tables and report again, from a journal or a table.csv",
    "verify": "compare a sweep's results with the published table that it reproduces",
    "check": "check whether a method or evaluator meets every requirement on plugins",
    "plugins": "print every method and evaluator with its settings, and every metric",
    "export": "write any point's model as a from_pretrained folder, with tokenizer and card",
    "diff": "show what differs between two results: settings, versions, numbers",
    "power": "say how many seeds, models and prompts would tell methods apart",
    "dashboard": "browse the runs of all sweeps in MLflow, on 127.0.0.1",
}
"""Each verb, a module of `harness.commands` that is imported when it is used, and what it does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `lethe VERB ...` and return its exit code."""
    if argv is None:  # The command itself: a plugin may have left a thread that would never end.
        run_command(partial(main, sys.argv[1:]))
    name, *rest = argv or ["--help"]
    if name in VERBS:
        command: Command = import_module(f"harness.commands.{name}").main
        return command(rest)
    if name == "--version":
        tell(version_text())
        return 0
    parser = _verbs_parser()
    if name.startswith("-"):
        parser.parse_args([name])  # It prints the help or the mistake, and exits.
    hint = did_you_mean(name, list(VERBS))
    tell(f"lethe has no verb '{name}'.{hint}\n\n{parser.format_help()}", is_error=True)
    return 2


def _verbs_parser() -> argparse.ArgumentParser:
    """Return a parser that lists the verbs; each verb has its own for what follows it."""
    parser = argparse.ArgumentParser(
        prog="lethe",
        usage="lethe VERB [ARGS]",
        epilog="lethe VERB --help says more.",
        formatter_class=partial(argparse.HelpFormatter, max_help_position=16, width=100),
    )
    parser.add_argument("--version", action="store_true", help="print the versions of Lethe and of what it runs on")
    verbs = parser.add_subparsers(metavar="VERB [ARGS]", required=True, title="verbs")
    for name, about in VERBS.items():
        verbs.add_parser(name, help=about)
    return parser


def version_text() -> str:
    """Return the versions of Lethe, with its commit where it runs from a checkout, and of what it runs on."""
    from harness.records.record import DIRTY, own_commit

    commit = own_commit().removesuffix(DIRTY)
    lines = [f"Lethe {version('lethe')}{commit and f', commit {commit}'}", f"Python {platform.python_version()}"]
    for package in ("torch", "transformers", "ray"):
        lines.append(f"{package} {version(package)}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
