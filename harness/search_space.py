"""What a search may vary of a setting: declared where the setting is, as an annotation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class LogUniform:
    """A range that is searched on a logarithmic scale: of whole numbers if both of its ends are.

    Of a cumulative strength only `high` counts: a candidate walks that far and is probed on its way.
    """

    low: float | int
    high: float | int
    """Both ends are included; `low` is above 0 and below `high`."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A few values without an order."""

    values: tuple[Any, ...]


Dimension = LogUniform | Choice
