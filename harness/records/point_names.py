"""What people call a measured point: its id, a beginning of the id, or `emso@3`, its variant at its strength."""

from __future__ import annotations

from collections.abc import Sequence

from harness.contracts import Number
from harness.errors import DataError
from harness.records.results import PointResults

NAMES_SHOWN = 8
"""How many points a message lists."""


def point_name(point: PointResults) -> str:
    """Return a point's name within its sweep: `emso@3`, or `original`."""
    return point.spec.variant if point.strength is None else f"{point.spec.variant}@{point.strength:g}"


def points_called(name: str, measured: Sequence[PointResults]) -> list[PointResults]:
    """Return the points that a name may mean: several seeds, models and settings can share one."""
    variant, at, strength = name.rpartition("@")
    called = []
    for point in measured:
        is_variant = not at and name == point.spec.variant
        is_at_strength = bool(at) and variant == point.spec.variant and _is_same(strength, point.strength)
        has_id = bool(name) and point.spec.point_id(point.strength).startswith(name)
        if is_variant or is_at_strength or has_id:
            called.append(point)
    return called


def _is_same(text: str, strength: Number | None) -> bool:
    try:
        return strength is not None and (text == f"{strength:g}" or float(text) == strength)
    except ValueError:
        return False


def only_point(name: str, called: Sequence[tuple[str, PointResults]], measured: Sequence[PointResults]) -> int:
    """Return the place of the one point that a name means.

    Args:
        name: As the user gave it.
        called: The points that it may mean, each with the name of its sweep.
        measured: All points among which they were looked for, for the message.

    Raises:
        DataError: There is none, or more than one.
    """
    if len(called) == 1:
        return 0
    if called:
        lines = []
        for sweep, point in called[:NAMES_SHOWN]:
            spec = point.spec
            about = f"{point_name(point)} on {spec.model.id}, seed {spec.seed}"
            lines.append(f"  {sweep}:{spec.point_id(point.strength)}  ({about})")
        more = [f"  and {len(called) - NAMES_SHOWN} more"] if len(called) > NAMES_SHOWN else []
        raise DataError("\n".join([f"'{name}' means {len(called)} points. Name one:", *lines, *more]))
    variant = name.rpartition(":")[2].rpartition("@")[0]
    strengths = {point.strength for point in measured if point.spec.variant == variant and point.strength is not None}
    if strengths:
        listed = ", ".join(f"{strength:g}" for strength in sorted(strengths))
        raise DataError(f"'{name}' was not measured: {variant} was at {listed}.")
    variants = ", ".join(dict.fromkeys(point.spec.variant for point in measured)) or "nothing"
    raise DataError(
        f"no measured point is called '{name}'. A name is SWEEP:VARIANT@STRENGTH, such as tradeoff:emso@3, or an id of "
        f"table.csv (point_id). Measured: {variants}."
    )
