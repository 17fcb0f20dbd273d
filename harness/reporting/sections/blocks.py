"""Which blocks of the weights were selected: tables, heat maps, and what they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from matplotlib.figure import Figure

from harness.analysis.blocks.published import PublishedSelection, differs, published_selection
from harness.analysis.blocks.selection import (
    BlockSelection,
    Share,
    first_third,
    kind_shares,
    layer_count,
    layer_shares,
    pooled,
    selection_frame,
    third_of,
)
from harness.analysis.cells import NOTHING, strength_text
from harness.base.csv_text import csv_text
from harness.base.messages import amount
from harness.models.blocks import kinds_among
from harness.records.results import PointResults
from harness.reporting.figures.blocks import described, figure_names, heat_maps
from harness.reporting.section import Section

SHOWN = 20
"""Blocks of one table; selected_blocks.csv has all."""


class SelectedBlocks(Section):
    """How often each block was selected, by kind and by layer, beside what chance and the paper have."""

    stems = ("selected_blocks",)
    has_many_figures = True

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """A heat map for each variant and model."""
        return heat_maps(self.analysis.blocks[0])

    def files(self) -> dict[str, str]:
        """Return the counts as CSV."""
        selections, _ = self.analysis.blocks
        return {"selected_blocks.csv": csv_text(selection_frame(selections))} if selections else {}

    def context(self) -> dict[str, Any]:
        """Return the tables, and the blocks of every round: by trial, for each strength."""
        rounds: dict[str, list[tuple[PointResults, Any]]] = {}
        for point in self.analysis.shown.measured:
            chosen = point.made.notes.get("selected_blocks") if point.made else None
            if isinstance(chosen, list | tuple) and point.strength is not None:
                rounds.setdefault(point.spec.trial_id, []).append((point, chosen))
        section = block_section(*self.analysis.blocks, published_selection())
        return {"blocks": section, "rounds": rounds, "strength_text": strength_text}


@dataclass(frozen=True)
class FrequencyRow:
    """How often one block was selected."""

    block: str
    ours: str
    published: str = ""
    difference: str = ""


@dataclass(frozen=True)
class FrequencyTable:
    """The paper's Table 4 for one variant and model, with its heat map's name and words."""

    title: str
    counted: str
    """Rounds, selections and trials in words, and what of them is not known."""
    rows: tuple[FrequencyRow, ...]
    has_published: bool
    more: str
    """What the table leaves out; '' where it is whole."""
    figure: str
    """The heat map's name, whether or not it was drawn."""
    description: str


@dataclass(frozen=True)
class ShareCell:
    """A share, as printed."""

    text: str
    below: str
    """The count, and what chance would give."""


@dataclass(frozen=True)
class ShareRow:
    """The shares of one variant on one model, or on all of them."""

    label: str
    model: str
    rounds: int
    selections: int
    cells: tuple[ShareCell, ...]


@dataclass(frozen=True)
class BlockSection:
    """All that the report's section on the selected blocks has."""

    frequencies: tuple[FrequencyTable, ...]
    kind_names: tuple[str, ...]
    kinds: tuple[ShareRow, ...]
    """A cell for each of `kind_names`, and one for the first third of the layers."""
    layers: tuple[ShareRow, ...]
    most_layers: int
    sentences: tuple[str, ...]


def block_section(
    selections: Sequence[BlockSelection], unreadable: Sequence[str], published: PublishedSelection | None
) -> BlockSection | None:
    """Return the report's section on selected blocks; None where no method noted any.

    Args:
        selections: Of all variants and models.
        unreadable: A sentence for each point whose notes were not understood.
        published: What a paper has, if it is at hand.
    """
    if not selections and not unreadable:
        return None
    variants = [selection.variant for selection in selections]
    shown = sorted(selections, key=lambda selection: variants.index(selection.variant))
    if published and any(not differs(ours, published) for ours in selections):
        shown.append(published.selection)
    kind_names = kinds_among([kind for one in shown for kind in one.kinds])
    frequencies, layers = [], []
    for ours, figure in zip(selections, figure_names(selections), strict=True):
        frequencies.append(_frequencies(ours, figure, published))
    for one in shown:
        layers.append(_share_row(one, layer_shares(one)))
    return BlockSection(
        frequencies=tuple(frequencies),
        kind_names=kind_names,
        kinds=tuple(_kind_rows(shown, kind_names)),
        layers=tuple(layers),
        most_layers=max(map(layer_count, shown), default=0),
        sentences=(*_what_is_not_known(selections), *unreadable, *_not_beside(selections, published)),
    )


def _frequencies(ours: BlockSelection, figure: str, published: PublishedSelection | None) -> FrequencyTable:
    theirs = published.selection.counts if published and not differs(ours, published) else None
    names = dict.fromkeys([*list(ours.counts)[:SHOWN], *(theirs or ())])
    rows = []
    for name in names:
        count = ours.counts.get(name, 0)
        if theirs is None:
            rows.append(FrequencyRow(name, str(count)))
        else:
            difference = f"{count / len(ours.specs) - theirs.get(name, 0):+.3g}".replace("-", "−")
            rows.append(FrequencyRow(name, str(count), str(theirs.get(name, 0)), difference))
    left_out = [count for name, count in ours.counts.items() if name not in names]
    more = f"{len(left_out)} other blocks, selected {sum(left_out)} times together, are in selected_blocks.csv."
    sizes = " or ".join(map(str, ours.sizes))
    trials = f" of {len(ours.specs)} trials, summed" if len(ours.specs) > 1 else ""
    blocks = "block" if ours.sizes == (1,) else "blocks"
    counted = f"{amount(ours.rounds, 'round')}{trials}, {sizes} {blocks} a round: {ours.total} selections."
    return FrequencyTable(
        title=f"{ours.label} on {ours.model}",
        counted=counted,
        rows=tuple(rows),
        has_published=theirs is not None,
        more=more if left_out else "",
        figure=figure,
        description=described(ours),
    )


def _kind_rows(shown: Sequence[BlockSelection], kinds: Sequence[str]) -> list[ShareRow]:
    """Return the rows by kind; below a variant on several models, one over all of them."""
    rows: list[ShareRow] = []
    groups: dict[tuple[str, bool], list[BlockSelection]] = {}
    for one in shown:
        groups.setdefault((one.variant, bool(one.specs)), []).append(one)
    for models in groups.values():
        shares = []
        for one in models:
            shares.append((*kind_shares(one, kinds), first_third(one)))
            rows.append(_share_row(one, shares[-1], third_of(layer_count(one))))
        if len(models) > 1:
            cells = []
            for column in zip(*shares, strict=True):
                known = [share for share in column if share is not None]
                cells.append(_share_cell(pooled(known) if len(known) == len(column) else None))
            rounds, total = sum(one.rounds for one in models), sum(one.total for one in models)
            rows.append(ShareRow(models[0].label, "all models", rounds, total, tuple(cells)))
    return rows


def _share_row(one: BlockSelection, shares: Sequence[Share | None], third: int = 0) -> ShareRow:
    cells = [_share_cell(share) for share in shares]
    if third and shares[-1] is not None:
        until = f"layers 0 to {third - 1}" if third > 1 else "layer 0"
        cells[-1] = ShareCell(cells[-1].text, f"{cells[-1].below}; {until} of {layer_count(one)}")
    return ShareRow(one.label, one.model, one.rounds, one.total, tuple(cells))


def _share_cell(share: Share | None) -> ShareCell:
    if share is None or not share.total:
        return ShareCell(NOTHING, "")
    by_chance = "" if math.isnan(share.chance) else f", by chance {_percent(share.chance)}"
    return ShareCell(_percent(share.fraction), f"{share.count}{by_chance}")


def _percent(fraction: float) -> str:
    """Return a share in per cent, with a decimal where it is small.

    Example:
        >>> _percent(0.5), _percent(0.0167), _percent(0.0)
        ('50 %', '1.7 %', '0 %')
    """
    return f"{100 * fraction:.1f} %" if 0 < fraction < 0.0995 else f"{100 * fraction:.0f} %"


def _what_is_not_known(selections: Sequence[BlockSelection]) -> list[str]:
    """Return a sentence on all that lack candidates, and one for each variant that selects what is no block."""
    sentences = []
    names = [f"{one.label} on {one.model}" for one in selections if one.candidates is None]
    if names:
        sentences.append(
            f"The records of {', '.join(names)} do not say among how many blocks it chose: what chance would give, and "
            "how many layers there are, is not known."
        )
    for one in selections:
        if one.unplaced:
            others = " and others" if len(one.unplaced) > 5 else ""
            sentences.append(
                f"{one.label} on {one.model} selected {', '.join(one.unplaced[:5])}{others}: no names of blocks "
                "(L2.W_v.H11, L2.C_proj), so they count in no share of kinds or layers."
            )
    return sentences


def _not_beside(selections: Sequence[BlockSelection], published: PublishedSelection | None) -> list[str]:
    """Return the sentence that says why the published frequencies are not shown beside some of ours."""
    if published is None:
        return []
    theirs = published.selection
    reasons = dict.fromkeys(differs(ours, published) for ours in selections)
    reasons.pop("", None)
    if not reasons:
        return []
    return [
        f"The published frequencies ({published.source}) are {theirs.model}'s over {amount(theirs.rounds, 'round')} of "
        f"{theirs.sizes[0]} blocks, and stand beside no other: {'; '.join(reasons)}."
    ]
