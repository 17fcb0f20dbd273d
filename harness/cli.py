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
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.paths import folder_argument
from harness.base.terminal import lost_output, tell
from harness.commands.command import run_command
from harness.errors import DataError, LetheError, ModelError, StorageError

if TYPE_CHECKING:
    from pandas import DataFrame

Verb = Callable[[Sequence[str]], int]

VERBS = {
    "audit": ("harness.commands.audit:main", "measure whether a model recites texts; nothing is erased"),
    "init": ("harness.commands.init:main", "write a commented sweep file for a model and texts"),
    "sweep": ("harness.sweep:main", "run what is missing of a sweep, and write its report"),
    "prefetch": ("harness.commands.prefetch:main", "fetch every model and data set of the hub that a sweep names"),
    "collate": ("harness.collate:main", "make tables and report again, from a journal or a table.csv"),
    "verify": ("harness.commands.verify:main", "hold a sweep's results against the published table that it reproduces"),
    "index": ("harness.commands.index:main", "write one page that links the reports of all sweeps"),
    "check": ("harness.commands.check:main", "try one method or evaluator against all that it must keep, in sentences"),
    "pretrain": (
        "harness.commands.pretrain:main",
        "rebuild the miniature's checkpoints, or make more from other seeds",
    ),
    "plugins": ("harness.cli:plugins", "print every method and evaluator with its settings, and every metric"),
    "export": (
        "harness.commands.export:main",
        "write any point's model as a from_pretrained folder, with tokenizer and card",
    ),
    "diff": ("harness.commands.diff:main", "tell what differs between two results: settings, versions, numbers"),
    "items": ("harness.cli:items", "print what each sequence, prompt and question has of a point's metrics"),
    "figure": ("harness.commands.figure:main", "draw the paper's appendix figures: losses, and a head's attention"),
    "track": ("harness.commands.track:main", "fill MLflow in from a sweep's journal: what it lacks, and nothing twice"),
    "dashboard": ("harness.cli:dashboard", "browse the runs of all sweeps in MLflow, on 127.0.0.1"),
}
"""Where each verb is, imported only when used, and what it does."""


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
    module, _, function = VERBS[verb.name][0].partition(":")
    run: Verb = getattr(import_module(module), function)
    try:
        return run(rest)
    except LetheError as error:
        tell(f"{type(error).__name__}: {error}", is_error=True)
        return 2 if isinstance(error, DataError | ModelError) else 1


def _parser() -> argparse.ArgumentParser:
    layout = partial(argparse.HelpFormatter, max_help_position=16, width=100)
    usage = "lethe VERB [ARGS]"
    parser = argparse.ArgumentParser(
        prog="lethe", usage=usage, epilog="lethe VERB --help says more.", formatter_class=layout
    )
    parser.add_argument("--version", action="store_true", help="print the versions of Lethe and of what it runs on")
    verbs = parser.add_subparsers(dest="name", metavar="VERB [ARGS]", required=True, title="verbs")
    for name, (_, about) in VERBS.items():
        verbs.add_parser(name, help=about, add_help=False)  # What follows a verb is its own to read.
    return parser


def version_text() -> str:
    """Return the versions of Lethe, with its commit where it runs from a checkout, and of what it runs on."""
    from harness.records.tracking.runs import commit_tag

    commit = next(iter(commit_tag().values()), "")
    lines = [f"Lethe {version('lethe')}{commit and f', commit {commit}'}", f"Python {platform.python_version()}"]
    return "\n".join([*lines, *(f"{package} {version(package)}" for package in ("torch", "transformers", "ray"))])


def plugins(argv: Sequence[str]) -> int:
    """Print every method and evaluator with its settings, and every metric."""
    _verb_parser("plugins").parse_args(argv)
    from harness.commands.plugins import catalogue

    tell(catalogue())
    return 0


def dashboard(argv: Sequence[str]) -> int:
    """Serve MLflow's page of all sweeps on 127.0.0.1."""
    parser = _verb_parser("dashboard")
    parser.add_argument(
        "--results", type=folder_argument, default=Path("results"), help="folder of all sweeps' results"
    )
    parser.add_argument("--port", type=int, default=5000, help="where the page is served: http://127.0.0.1:PORT")
    arguments = parser.parse_args(argv)
    from harness.records.tracking.database import serve_dashboard

    serve_dashboard(arguments.results, arguments.port)


def items(argv: Sequence[str]) -> int:
    """Print what each item has of a point's metrics, as CSV: a table for each kind of items."""
    parser = _verb_parser("items")
    parser.add_argument("folder", type=folder_argument, help="a sweep's results: results/tradeoff")
    parser.add_argument("--point", required=True, help="the point's id, as table.csv has it (point_id)")
    arguments = parser.parse_args(argv)
    from harness.base.csv_text import csv_text
    from harness.library import load_results

    of_point = load_results(arguments.folder).items(arguments.point)
    if of_point.empty:
        raise DataError(
            f"the point {arguments.point} keeps no items: it was measured before Lethe kept them, or by nothing that "
            f"has any. Remove its trial's file from {arguments.folder}/journal and run the sweep again to have them."
        )
    tables: dict[tuple[str, ...], DataFrame] = {}
    for metric, rows in of_point.groupby("metric", sort=False):
        table = tables.setdefault(tuple(rows["item"]), rows[["item", "cluster"]].reset_index(drop=True))
        table[str(metric)] = rows["value"].to_numpy()
    tell("\n".join(map(csv_text, tables.values())), end="")
    if why := lost_output():
        raise StorageError(f"the items could not be printed whole: {why}. Print them to another place.")
    return 0


def _verb_parser(name: str) -> argparse.ArgumentParser:
    about = VERBS[name][1]
    return argparse.ArgumentParser(prog=f"lethe {name}", description=f"{about[0].upper()}{about[1:]}.")


if __name__ == "__main__":
    main()
