"""What kinds of block, and which layers, a method selects more often than chance would."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis.blocks.selection import BlockSelection
from harness.models.blocks import KINDS

SELECTION_COLUMNS = (
    "model", "variant", "label", "block", "kind", "layer", "head", "selections", "rounds", "trials", "share", "chance"
)  # fmt: skip


@dataclass(frozen=True)
class Share:
    """How many of the selections, and what choosing among the candidates by chance would give on average."""

    count: int
    total: int
    chance: float
    """A fraction; NaN where the candidates are not known."""

    @property
    def fraction(self) -> float:
        """Return the share; NaN without any selection."""
        return self.count / self.total if self.total else math.nan


def kind_shares(selection: BlockSelection, kinds: Sequence[str]) -> tuple[Share, ...]:
    """Return the share of each of these kinds among the selections that have one; of one that is not there, 0."""
    layers = range(layer_count(selection))
    return tuple(_share_of(selection, (kind,), layers) for kind in kinds)


def layer_shares(selection: BlockSelection) -> tuple[Share, ...]:
    """Return the share of each layer, the shallowest first; as far as was selected where the candidates are unknown."""
    return tuple(_share_of(selection, KINDS, range(layer, layer + 1)) for layer in range(layer_count(selection)))


def first_third(selection: BlockSelection) -> Share | None:
    """Return the share of the first third of the layers, rounded; None where it is not known how many there are.

    Example:
        >>> counts = {"L0.C_fc": 3, "L2.W_v.H0": 1}
        >>> candidates = {kind: (1, 1, 1) for kind in ("W_q", "W_v", "C_fc")}
        >>> first_third(BlockSelection("m", "v", "V", (), 2, 2, (2,), counts, candidates)).fraction
        0.75
    """
    if selection.candidates is None:
        return None
    return _share_of(selection, KINDS, range(third_of(layer_count(selection))))


def third_of(layers: int) -> int:
    """Return how many layers the first third has: 4 of 12, 8 of 24, 11 of 32, 1 of 4."""
    return max(1, round(layers / 3))


def layer_count(selection: BlockSelection) -> int:
    """Return how many layers the model has; where that is not known, how many lead to the deepest selected block."""
    if selection.candidates is not None:
        return len(selection.candidates[KINDS[0]])
    return 1 + max((place.layer for place in selection.places.values()), default=-1)


def _share_of(selection: BlockSelection, kinds: Sequence[str], layers: range) -> Share:
    """Return the share of these kinds in these layers."""
    count = total = 0
    for name, place in selection.places.items():
        total += selection.counts[name]
        if place.kind in kinds and place.layer in layers:
            count += selection.counts[name]
    among = selection.candidates
    if among is None:
        return Share(count, total, math.nan)
    chosen_from = 0
    for kind in kinds:
        chosen_from += sum(among.get(kind, ())[layers.start : layers.stop])
    return Share(count, total, chosen_from / sum(map(sum, among.values())))


def pooled(shares: Sequence[Share]) -> Share:
    """Return one share over several selections; by chance each would choose among its own candidates.

    Example:
        >>> pooled([Share(1, 2, 0.5), Share(5, 8, 0.25)])
        Share(count=6, total=10, chance=0.3)
    """
    count = total = 0
    by_chance = 0.0
    for share in shares:
        count += share.count
        total += share.total
        by_chance += share.total * share.chance
    return Share(count, total, by_chance / total if total else math.nan)


def selection_frame(selections: Sequence[BlockSelection]) -> pd.DataFrame:
    """Return a row for each block that was ever selected, with the columns of selected_blocks.csv.

    `selections` is in how many of the `rounds` the block was selected, `share` of all selections, and `chance` what
    one block among all candidates has. `head` is the group's number where heads share a W_k or W_v.
    """
    rows = []
    for one in selections:
        candidates = sum(map(sum, one.candidates.values())) if one.candidates else 0
        for name, count in one.counts.items():
            kind, layer, head, chance = "", None, None, math.nan
            if place := one.places.get(name):
                kind, layer, head = place.kind, place.layer, place.head
                chance = 1 / candidates if candidates else math.nan
            block = one.model, one.variant, one.label, name, kind, layer, head
            rows.append((*block, count, one.rounds, len(one.specs), count / one.total, chance))
    return pd.DataFrame(rows, columns=SELECTION_COLUMNS).astype({"layer": "Int64", "head": "Int64"})


def rounds_text(count: int) -> str:
    """Return a number of rounds in words: `7 rounds`, `1 round`."""
    return f"{count} round" if count == 1 else f"{count} rounds"
