"""`lethe prefetch FILE`: bring here every model and data set of the hub that a sweep names, so that it runs offline.

    lethe prefetch sweeps/paper/main_table.yaml
    lethe prefetch sweeps/paper/main_table.yaml --check

Exit codes: 0 all is here, 1 something is missing, 2 the sweep file is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import hub
from harness.errors import ConfigError, LetheError
from harness.models.fetching import cache_state, fetch_model
from harness.planning.hub_contents import HubContent, hub_contents


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="lethe prefetch", description="Fetch what a sweep names on the hub.")
    parser.add_argument("file", type=Path, help="the sweep file")
    parser.add_argument("--check", action="store_true", help="only look: fetch and convert nothing")
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="change a setting (repeatable)"
    )
    arguments = parser.parse_args(argv)
    try:
        contents = hub_contents(arguments.file, arguments.set)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if not contents:
        print(f"{arguments.file} names nothing of the hub: it runs offline as it is.")
        return 0
    missing = sum(not _is_cached(content, check=arguments.check) for content in contents)
    if not missing:
        print("All is here: HF_HUB_OFFLINE=1 keeps every process from asking the hub.")
        return 0
    print(
        f"{missing} of {len(contents)} are missing." + (" Without --check they are fetched." if arguments.check else "")
    )
    return 1


def _is_cached(content: HubContent, *, check: bool) -> bool:
    """Print a line on one content, fetched first unless this is a check; return whether it is here."""
    reason, state = "", _state(content)
    if state != "here" and not check:
        try:
            reason, state = _fetch(content), "here"
        except LetheError as error:
            reason = str(error)
    elif state == "pickled":
        reason = "only a pickle is here (pytorch_model.bin): without --check it is converted"
    configuration = f" ({content.configuration})" if content.configuration else ""
    line = f"{state:<8} {content.path:<22} {content.repository.id}{configuration}"
    print(f"{line}: {reason}" if reason else line, flush=True)
    return state == "here"


def _state(content: HubContent) -> str:
    if content.repository.kind == "model":
        return cache_state(content.repository, weights=content.weights)
    return "here" if hub.cached_data_set(content.repository, content.configuration) else "missing"


def _fetch(content: HubContent) -> str:
    """Fetch a content and return what was done."""
    if content.repository.kind == "model":
        return fetch_model(content.repository, weights=content.weights)
    hub.fetch_data_set(content.repository, content.configuration)
    return "fetched"


if __name__ == "__main__":
    sys.exit(main())
