"""What the command line adds to a sweep file: `--set path=value` changes it, `--only key=value` picks its trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.errors import unknown
from harness.planning.document import parse
from harness.planning.faults import Faults
from harness.planning.words import shown
from harness.specs import UNSEEN_ROWS, TrialSpec

NAMED_THINGS = ("models", "judges")
"""Where a name stands for settings with that `id`, which an override may add to."""
KEYS: Mapping[str, Callable[[TrialSpec], set[str]]] = {
    "method": lambda spec: {spec.method},
    "model": lambda spec: {spec.model.id},
    "variant": lambda spec: {spec.variant, spec.variant.partition("(")[0]},
    "seed": lambda spec: {str(spec.seed)},
}
"""What a trial can be chosen by, and the words that choose it."""
ABOUT_METHODS = ("method", "variant")
ABOUT_RUNS = (*ABOUT_METHODS, "seed")


def override(raw: dict[str, Any], changes: Sequence[str], faults: Faults) -> None:
    """Make each change (`data.forget.sequences=64`) in `raw`.

    A path may go through list indices and may name settings that the file leaves out; whether they
    exist is checked with the file's own.
    """
    for change in changes:
        path, equals, text = change.partition("=")
        parts = path.strip().split(".")
        if not equals or not all(parts):
            faults.add(f"--set {change}", "is not path=value. For example: --set data.forget.sequences=64.")
            continue
        value, wrong = parse(text, f"--set {path}")
        faults += wrong
        if not wrong:
            _assign(raw, parts, value, faults)


def _assign(raw: dict[str, Any], parts: Sequence[str], value: Any, faults: Faults) -> None:
    place: Any = raw
    for depth, part in enumerate(parts):
        path, above = f"--set {'.'.join(parts)}", ".".join(parts[:depth])
        if not isinstance(place, list | dict):
            faults.add(path, f"'{above}' is {shown(place)}, which has no '{part}'.")
            return
        if isinstance(place, list) and (not part.isdecimal() or int(part) >= len(place)):
            numbers = f"numbered 0 to {len(place) - 1}" if place else "an empty list"
            faults.add(path, f"'{above}' has no entry '{part}': it is {numbers}.")
            return
        key: Any = int(part) if isinstance(place, list) else part
        if depth == len(parts) - 1:
            place[key] = value
            return
        inner = place[key] if isinstance(place, list) else place.get(key)
        if inner is None:
            place[key] = {}
        elif isinstance(inner, str) and depth == 1 and parts[0] in NAMED_THINGS:
            place[key] = {"id": inner}
        place = place[key]


def only_those(trials: Sequence[TrialSpec], only: Sequence[str], faults: Faults) -> list[TrialSpec]:
    """Return the trials that every key allows; of one key, any of its values.

    Reference rows stay whatever the method, and those of unseen texts whatever the seed, since there is one for all:
    nothing can be compared without them.
    """
    wanted: dict[str, set[str]] = {}
    for choice in only:
        key, equals, value = choice.partition("=")
        if not equals or key not in KEYS:
            example = "Say method=, model=, variant= or seed=, for instance --only method=emso."
            faults.add(f"--only {choice}", f"chooses by nothing that a trial has. {example}")
            continue
        known = {word for spec in trials for word in KEYS[key](spec)}
        if known and value not in known:
            faults.add(f"--only {choice}", unknown(f"{key} of this sweep", value, known))
        wanted.setdefault(key, set()).add(value)
    return [spec for spec in trials if _chosen(spec, wanted)]


def _chosen(spec: TrialSpec, wanted: Mapping[str, set[str]]) -> bool:
    return all(
        (spec.method in UNSEEN_ROWS and key in ABOUT_RUNS)
        or (spec.is_reference and key in ABOUT_METHODS)
        or not values.isdisjoint(KEYS[key](spec))
        for key, values in wanted.items()
    )
