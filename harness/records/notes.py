"""Notes, which a plugin fills with what it likes: what reports read of them has one form, and all of it a bound."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from types import UnionType
from typing import Any

from harness.contracts import Json, MeasuredCurve

MOST_CHARACTERS = 4_000_000
"""Of one record's notes, as JSON."""
MOST_WARNINGS = 100
_MOST_LISTED = 10


def _is_number(value: Any, kinds: type | UnionType = float | int) -> bool:
    # A journal's line has what is not finite as {"float": "nan"}.
    if isinstance(value, Mapping):
        return value.keys() == {"float"} and kinds is not int
    return isinstance(value, kinds) and not isinstance(value, bool)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_number(number) for number in value.values())


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


def _are_curves(value: Any) -> bool:
    """Return whether these are `MeasuredCurve`s as plain data, each with as many ys as xs."""
    names = {field.name for field in fields(MeasuredCurve)}
    for curve in value if isinstance(value, list | tuple) else [None]:
        if not isinstance(curve, Mapping) or curve.keys() != names:
            return False
        xs, ys = curve["xs"], curve["ys"]
        are_lists = isinstance(xs, list | tuple) and isinstance(ys, list | tuple) and len(xs) == len(ys)
        if not are_lists or not all(map(_is_number, (*xs, *ys))):
            return False
    return True


_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "curves": (_are_curves, "what `Evaluation.curves` makes of it"),
    "erasure_warnings": (_are_texts, "a list of strings"),
    "human_perplexity": (_are_numbers, "a dictionary of numbers"),
    "prompts": (partial(_is_number, kinds=int), "a whole number"),
    "standard_errors": (_are_numbers, "a dictionary of numbers"),
    "total_steps": (partial(_is_number, kinds=int), "a whole number"),
    "warnings": (_are_texts, "a list of strings"),
}
"""What reports read of any plugin's notes."""


def in_form(notes: Mapping[str, Json], added: Sequence[str] = ()) -> dict[str, Json]:
    """Return the notes without what has not the form that reports read; a warning in them says so.

    Twice is the same as once.

    Args:
        notes: A record's.
        added: Warnings to add to the notes' own.

    Example:
        >>> in_form({"prompts": "many", "loss": [1.0]})
        {'loss': [1.0], 'warnings': ["the note 'prompts' was left out: it is a str, and reports read a whole number"]}
    """
    kept, new = dict(notes), []
    for name, (is_right, form) in _FORMS.items():
        if name in notes and not is_right(notes[name]):
            kept.pop(name)
            new.append(f"the note '{name}' was left out: it is a {type(notes[name]).__name__}, and reports read {form}")
    new += added
    own = list(kept.get("warnings", ()))
    if (excess := len(own) + len(new) - MOST_WARNINGS) > 0:
        own = [*own[: -excess - 1], f"{excess + 1:,} more warnings were left out"]
    return {**kept, "warnings": [*own, *new]} if own or new else kept


def bounded(notes: dict[str, Json]) -> tuple[dict[str, Json], list[str]]:
    """Return plain notes without the largest, as far as all are too long together, and warnings of what is left out."""
    lengths = {name: len(json.dumps(value)) + len(name) for name, value in notes.items()}
    total, gone = sum(lengths.values()), set()
    for name in sorted(lengths, key=lambda name: -lengths[name]):
        if total <= MOST_CHARACTERS:
            break
        total -= lengths[name]
        gone.add(name)
    kept: dict[str, Json] = {}
    warnings: list[str] = []
    for name, value in notes.items():
        if name not in gone:
            kept[name] = value
        elif len(warnings) < _MOST_LISTED:
            warnings.append(f"the note '{name[:100]}' was left out: it has {lengths[name]:,} characters")
    if len(gone) > _MOST_LISTED:
        warnings.append(f"{len(gone) - _MOST_LISTED:,} more notes were left out")
    return kept, warnings
