"""What kinds of block, and which layers, a method selects more often than chance would."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis.blocks.selection import BlockSelection
from harness.models.blocks import KINDS, block_place


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
    return tuple(_share(selection, (kind,), None) for kind in kinds)


def layer_shares(selection: BlockSelection) -> tuple[Share, ...]:
    """Return the share of each layer, the shallowest first; as far as was selected where the candidates are unknown."""
    return tuple(_share(selection, KINDS, range(layer, layer + 1)) for layer in range(layer_count(selection)))


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
    return _share(selection, KINDS, range(third_of(layer_count(selection))))


def third_of(layers: int) -> int:
    """Return how many layers the first third has: 4 of 12, 8 of 24, 11 of 32, 1 of 4."""
    return max(1, round(layers / 3))


def layer_count(selection: BlockSelection) -> int:
    """Return how many layers the model has; where that is not known, how many lead to the deepest selected block."""
    if selection.candidates is not None:
        return len(selection.candidates[KINDS[0]])
    return 1 + max((place.layer for name in selection.counts if (place := block_place(name))), default=-1)


def _share(selection: BlockSelection, kinds: Sequence[str], layers: range | None) -> Share:
    """Return the share of these kinds in these layers; in all of them for None."""
    places = [(place, count) for name, count in selection.counts.items() if (place := block_place(name))]
    count = sum(count for place, count in places if place.kind in kinds and (layers is None or place.layer in layers))
    chance = math.nan
    if selection.candidates is not None:
        among = selection.candidates
        of_layers = slice(None) if layers is None else slice(layers.start, layers.stop)
        chance = sum(sum(among.get(kind, ())[of_layers]) for kind in kinds) / sum(map(sum, among.values()))
    return Share(count, sum(count for _, count in places), chance)


def pooled(shares: Sequence[Share]) -> Share:
    """Return one share over several selections; by chance each would choose among its own candidates.

    Example:
        >>> pooled([Share(1, 2, 0.5), Share(5, 8, 0.25)])
        Share(count=6, total=10, chance=0.3)
    """
    total = sum(share.total for share in shares)
    chance = sum(share.total * share.chance for share in shares) / total if total else math.nan
    return Share(sum(share.count for share in shares), total, chance)


def selection_frame(selections: Sequence[BlockSelection]) -> pd.DataFrame:
    """Return a row for each block that was ever selected, with the columns of selected_blocks.csv.

    `selections` is in how many of the `rounds` the block was selected, `share` of all selections, and `chance` what
    one block among all candidates has. `head` is the group's number where heads share a W_k or W_v.
    """
    columns = ("model", "variant", "label", "block", "kind", "layer", "head", "selections", "rounds", "trials")
    rows = []
    for selection in selections:
        total = sum(map(sum, selection.candidates.values())) if selection.candidates else 0
        for name, count in selection.counts.items():
            place = block_place(name)
            rows.append(
                {
                    **{"model": selection.model, "variant": selection.variant, "label": selection.label},
                    **{"block": name, "kind": place.kind if place else "", "layer": place.layer if place else None},
                    **{"head": place.head if place else None, "selections": count, "rounds": selection.rounds},
                    **{"trials": len(selection.specs), "share": count / selection.total},
                    **{"chance": 1 / total if total and place else math.nan},
                }
            )
    return pd.DataFrame(rows, columns=[*columns, "share", "chance"]).astype({"layer": "Int64", "head": "Int64"})


def rounds_text(count: int) -> str:
    """Return a number of rounds in words: `7 rounds`, `1 round`."""
    return f"{count} round" if count == 1 else f"{count} rounds"
