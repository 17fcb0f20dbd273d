"""`--only key=value`: some of a sweep's trials, and the reference rows that they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.errors import Fault, unknown
from harness.specs import TrialSpec

KEYS: Mapping[str, Callable[[TrialSpec], set[str]]] = {
    "method": lambda spec: {spec.method},
    "model": lambda spec: {spec.model.id},
    "variant": lambda spec: {spec.variant, spec.variant.partition("(")[0]},
    "seed": lambda spec: {str(spec.seed)},
}
"""What a trial can be chosen by, and the words that choose it."""
ABOUT_METHODS = ("method", "variant")


def only_those(trials: Sequence[TrialSpec], only: Sequence[str], faults: list[Fault]) -> list[TrialSpec]:
    """Return the trials that every key allows; of one key, any of its values.

    Reference rows stay whatever the method: nothing can be compared without them.
    """
    wanted: dict[str, set[str]] = {}
    for choice in only:
        key, equals, value = choice.partition("=")
        if not equals or key not in KEYS:
            example = "Say method=, model=, variant= or seed=, for instance --only method=emso."
            faults.append(Fault(f"--only {choice}", f"chooses by nothing that a trial has. {example}"))
            continue
        known = {word for spec in trials for word in KEYS[key](spec)}
        if known and value not in known:
            faults.append(Fault(f"--only {choice}", unknown(f"{key} of this sweep", value, known)))
        wanted.setdefault(key, set()).add(value)
    return [spec for spec in trials if _chosen(spec, wanted)]


def _chosen(spec: TrialSpec, wanted: Mapping[str, set[str]]) -> bool:
    return all(
        (spec.is_reference and key in ABOUT_METHODS) or not values.isdisjoint(KEYS[key](spec))
        for key, values in wanted.items()
    )
