"""The schema of the `tune` and `compare` blocks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, MinLen, doc
from pydantic import BeforeValidator, Field

from harness.planning.validation import Strict, quoted
from harness.plans import Compare
from harness.specs import RETRAINED


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _targets(value: Any) -> tuple[float | Literal["retrained"], ...]:
    """Return what one metric is to be brought to: a number or `retrained`, or several of them."""
    targets = value if isinstance(value, list | tuple) else [value]
    for target in targets:
        is_number = type(target) in (int, float) and 0 <= target < 1
        if not is_number and target != RETRAINED:
            raise ValueError(
                f"must be a number of at least 0 and below 1, or {RETRAINED} (what the retrained model has), or a list "
                f"of these; got {quoted(target)}."
            )
    if not targets:
        raise ValueError("is an empty list, which asks for nothing: give at least one target, for instance 0.9.")
    if len(set(targets)) < len(targets):
        raise ValueError("names a target twice: remove one.")
    return tuple(targets)


Targets = Annotated[tuple[float | Literal["retrained"], ...], BeforeValidator(_targets)]
Names = Annotated[list[str], MinLen(1), BeforeValidator(_as_list), doc("a metric's name, or a list of names")]


class Tune(Strict):
    """How the settings of each method are searched, instead of given."""

    trials: Annotated[int, Ge(1), Le(10_000)]
    """Candidates for each method: the same for all."""
    erasure: Annotated[dict[str, Targets], MinLen(1), doc("a mapping of a metric to what it is to reach")] = Field(
        description="how far to erase?", examples=["erasure: {ma: [0.9, 0.75, retrained]}"]
    )
    utility: str = "perplexity"
    search: Literal["optuna", "random"] = "optuna"
    space: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By row: what is searched besides, or instead of, what its method declares."""


class CompareAxes(Strict):
    """The metrics by which methods are compared at equal utility, and at equal erasure."""

    utility: Names = Field(default_factory=lambda: list(Compare.utility))
    erasure: Names = Field(default_factory=lambda: list(Compare.erasure))
