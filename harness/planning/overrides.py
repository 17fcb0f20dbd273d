"""`--set path=value`: changes to a sweep file from the command line, made before it is checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.errors import Fault
from harness.planning.document import parse
from harness.planning.words import shown

NAMED_THINGS = ("models", "judges")
"""Where a name stands for settings with that `id`, which an override may add to."""


def override(raw: dict[str, Any], changes: Sequence[str]) -> list[Fault]:
    """Make each change (`data.forget.sequences=64`) in `raw` and return what is wrong with them.

    A path may go through list indices and may name settings that the file leaves out; whether they
    exist is checked with the file's own.
    """
    faults = []
    for change in changes:
        path, equals, text = change.partition("=")
        parts = path.strip().split(".")
        if not equals or not all(parts):
            faults.append(Fault(f"--set {change}", "is not path=value. For example: --set data.forget.sequences=64."))
            continue
        value, wrong = parse(text, f"--set {path}")
        faults += wrong or _assign(raw, parts, value)
    return faults


def _assign(raw: dict[str, Any], parts: Sequence[str], value: Any) -> list[Fault]:
    place: Any = raw
    for depth, part in enumerate(parts):
        last, above = depth == len(parts) - 1, ".".join(parts[:depth])
        if isinstance(place, list):
            if not part.isdecimal() or int(part) >= len(place):
                numbers = f"numbered 0 to {len(place) - 1}" if place else "an empty list"
                reason = f"'{above}' has no entry '{part}': it is {numbers}."
                return [Fault(f"--set {'.'.join(parts)}", reason)]
            key: Any = int(part)
            inner = place[key]
        elif isinstance(place, dict):
            key, inner = part, place.get(part)
        else:
            return [Fault(f"--set {'.'.join(parts)}", f"'{above}' is {shown(place)}, which has no '{part}'.")]
        if last:
            place[key] = value
            return []
        if inner is None or (isinstance(inner, str) and depth == 1 and parts[0] in NAMED_THINGS):
            place[key] = {} if inner is None else {"id": inner}
        place = place[key]
    return []
