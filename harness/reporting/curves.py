"""What a trade-off figure draws, as plain numbers: a curve for each variant through its strengths."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

import pandas as pd

from harness.contracts import Metric
from harness.reporting.facts import Facts, ranked_metrics
from harness.reporting.seeds import mean_and_interval
from harness.specs import REFERENCE_ROWS

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#7A5195", "#8C6D31", "#5A6B7B")
"""Told apart with any common colour blindness, and none of them the red of a collapse."""
MARKERS = "os^vPXph"
_SALT = "lethe-1349:"
"""Chosen so that the seven shipped methods do not meet."""


@dataclass(frozen=True)
class Spot:
    """One point of a curve: the mean over its seeds."""

    strength: float
    x: float
    y: float
    x_half: float
    """Half the 95 % interval over the seeds; NaN for one seed."""
    y_half: float
    collapsed: bool
    """On any seed."""


@dataclass(frozen=True)
class Curve:
    """A variant's points by rising strength; a reference row's single point."""

    method: str
    variant: str
    label: str
    spots: tuple[Spot, ...]

    @property
    def is_reference(self) -> bool:
        """Return whether this is the original or the retrained model."""
        return self.method in REFERENCE_ROWS


def curves(table: pd.DataFrame, model: str, x: str, y: str) -> list[Curve]:
    """Return a model's curves in the plane of two metrics; points where either is missing are left out."""
    found = []
    for variant, rows in table[table["model"] == model].groupby("variant", sort=False):
        spots = [_spot(seeds, x, y) for _, seeds in rows.groupby("strength", dropna=False)]
        drawn = tuple(spot for spot in spots if math.isfinite(spot.x) and math.isfinite(spot.y))
        if drawn:
            found.append(Curve(str(rows["method"].iloc[0]), str(variant), str(rows["label"].iloc[0]), drawn))
    return found


def _spot(seeds: pd.DataFrame, x: str, y: str) -> Spot:
    (x_mean, x_half), (y_mean, y_half) = (mean_and_interval(list(seeds[name])) for name in (x, y))
    strength = float(seeds["strength"].iloc[0])
    return Spot(strength, x_mean, y_mean, x_half, y_half, bool(seeds["collapsed"].eq(True).any()))


def panels(table: pd.DataFrame, facts: Facts) -> list[tuple[Metric, Metric]]:
    """Return the (x, y) metrics of the paper's Figure 4, as far as they were measured.

    MA and EL_n, each against MAUVE and against perplexity.
    """
    erasure = [metric for metric in ranked_metrics(facts, "erasure") if metric.name in table.columns]
    ys = [m for m in erasure if m.name == "ma"] + [m for m in erasure if m.name.startswith("el_")][:1]
    xs = [facts[name] for name in ("mauve", "perplexity") if name in facts and name in table.columns]
    return [(x, y) for y in ys for x in xs]


def looks(methods: Iterable[str], variants: Iterable[str] = ()) -> dict[str, tuple[str, str]]:
    """Return a colour and a marker for each name: the same in every figure, as far as possible.

    A name's place in the palette comes from the name alone; where two meet, the later one moves on
    (variants later than methods). Beyond the palette's length colours repeat, with another marker.
    """
    found: dict[str, tuple[str, str]] = {}
    size = len(PALETTE)
    for name in dict.fromkeys([*sorted(set(methods)), *sorted(set(variants))]):
        start, lap = crc32(f"{_SALT}{name}".encode()) % size, len(found) // size
        taken = set(list(found.values())[lap * size :])
        options = [(PALETTE[place % size], MARKERS[(place + 3 * lap) % size]) for place in range(start, start + size)]
        found[name] = next(look for look in options if look not in taken)
    return found


def better_corner(x: Metric, y: Metric) -> str:
    """Return the arrow to the corner where both metrics are best."""
    to_right, to_top = x.better == "higher", y.better == "higher"
    return ("↗" if to_top else "↘") if to_right else ("↖" if to_top else "↙")
