"""Which blocks a method selected and how often, from the notes of its points, and the shares of kinds and layers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from harness.analysis.cells import strength_text
from harness.contracts import Json, Number
from harness.models.blocks import KINDS, BlockPlace, block_place, kinds_among
from harness.records.results import PointResults, Results
from harness.specs import TrialSpec

SELECTION_COLUMNS = (
    "model", "variant", "label", "block", "kind", "layer", "head", "selections", "rounds", "trials", "share", "chance"
)  # fmt: skip
Candidates = Mapping[str, tuple[int, ...]]
"""Of each kind, how many blocks there are to choose from in each layer."""
MOST_BLOCKS = 999
"""The most layers, and the most heads of one, that a note is believed to speak of."""


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
        >>> first_third(BlockSelection("m", "v", "V", (), 2, (2,), counts, candidates)).fraction
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


@dataclass(frozen=True)
class BlockSelection:
    """What one variant selected on one model, over all its trials: a round is an epoch of one of them."""

    model: str
    variant: str
    label: str
    specs: tuple[TrialSpec, ...]
    """Of its trials, that is its seeds and the model's replicates; none for published figures."""
    rounds: int
    """Those whose selection is known."""
    sizes: tuple[int, ...]
    """How many blocks a round selects, each number once, rising."""
    counts: Mapping[str, int]
    """In how many rounds each block was selected, the most frequent first; two of one round count as two selections."""
    candidates: Candidates | None
    """None where the notes do not say, or contradict what was selected."""

    @property
    def total(self) -> int:
        """Return how many selections there are."""
        return sum(self.counts.values())

    @cached_property
    def places(self) -> Mapping[str, BlockPlace]:
        """Return where each selected block is, by its name; names that are not a block's are left out."""
        known = {}
        for name in self.counts:
            if place := block_place(name):
                known[name] = place
        return known

    @property
    def unplaced(self) -> tuple[str, ...]:
        """Return the names that are not a block's: they have no kind and no layer."""
        return tuple(name for name in self.counts if name not in self.places)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of block that the model has, as far as is known: C_gate where its MLPs are gated."""
        return kinds_among(self.candidates or [place.kind for place in self.places.values()])

    @property
    def is_grouped(self) -> bool:
        """Return whether groups of heads share their W_k and W_v, as far as is known."""
        if any(place.is_group for place in self.places.values()):
            return True
        of = self.candidates
        return of is not None and 0 < max(of["W_k"], default=0) < max(of["W_q"], default=0)


@dataclass
class _TrialRounds:
    """What the notes of one trial's points say, gathered point by point."""

    spec: TrialSpec
    rounds: dict[Number, tuple[str, ...]] = field(default_factory=dict)
    """The names of the selected blocks, by epoch."""
    unreadable: dict[Number, str] = field(default_factory=dict)
    """A sentence for each epoch whose notes could not be read."""
    candidates: list[Candidates] = field(default_factory=list)

    def add(self, point: PointResults, notes: Mapping[str, Json]) -> None:
        """Add what a point's notes say of epochs that no other point notes."""
        for epoch, chosen in _selections_by_epoch(point, notes):
            names = _block_names(chosen)
            if names is not None:
                self.rounds.setdefault(epoch, names)
                continue
            spec, strength = self.spec, strength_text(self.spec.strength_name, float(point.strength or 0))
            where = f"{spec.label} on {spec.model.id}, seed {spec.seed}, {strength}"
            why = "the notes hold no list of blocks under selected_blocks, so that round is not counted."
            self.unreadable.setdefault(epoch, f"{where}: {why}")
        if candidates := _candidates(notes.get("candidate_blocks")):
            self.candidates.append(candidates)


def block_selections(results: Results) -> tuple[list[BlockSelection], list[str]]:
    """Return what each variant selected on each model, and a sentence for each point whose notes cannot be read.

    A trial's points share their history: each of its epochs counts once, as the point of the highest strength notes it.
    Nothing comes back of a sweep in which no method notes `selected_blocks`.
    """
    together: dict[tuple[str, str], list[_TrialRounds]] = {}
    unreadable = []
    for trial in results.trials:
        noted = _TrialRounds(trial.spec)
        for point in reversed(trial.points):
            if point.made and point.strength is not None:
                noted.add(point, point.made.notes)
        for epoch in sorted(noted.unreadable.keys() - noted.rounds.keys()):
            unreadable.append(noted.unreadable[epoch])
        if noted.rounds:
            together.setdefault((trial.spec.table_model, trial.spec.variant), []).append(noted)
    selections = map(_selection, together.values())
    return [selection for selection in selections if selection.total], unreadable


def _selections_by_epoch(point: PointResults, notes: Mapping[str, Json]) -> Iterator[tuple[Number, Json]]:
    """Yield the selections that a point notes, each with its epoch: its own, and those before it."""
    if "selected_blocks" in notes:
        epoch: Number = notes["epoch"] if _is_block_count(notes.get("epoch")) else point.strength or 0
        yield epoch, notes["selected_blocks"]
    history = notes.get("selected_by_epoch")
    if isinstance(history, list | tuple) and None not in map(_block_names, history):
        yield from enumerate(history, start=1)


def _block_names(chosen: Json) -> tuple[str, ...] | None:
    """Return the names of a round's blocks, each once; None if it is not a list of blocks."""
    if not isinstance(chosen, list | tuple):
        return None
    names: dict[str, None] = {}
    for entry in chosen:
        name = entry.get("block") if isinstance(entry, Mapping) else entry
        if not isinstance(name, str) or not name:
            return None
        names[name] = None
    return tuple(names)


def _candidates(noted: Json) -> Candidates | None:
    """Return the candidates that a note lists; None if it lists none, or is something else."""
    if not isinstance(noted, Mapping) or not set(noted) <= set(KINDS):
        return None
    for layers in noted.values():
        if not isinstance(layers, list | tuple) or not all(map(_is_block_count, layers)):
            return None
    lengths = set(map(len, noted.values()))
    if len(lengths) != 1 or max(lengths) > MOST_BLOCKS or not any(map(any, noted.values())):
        return None
    return {kind: tuple(noted.get(kind, (0,) * max(lengths))) for kind in kinds_among(noted)}


def _is_block_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_BLOCKS


def _selection(trials: Sequence[_TrialRounds]) -> BlockSelection:
    spec = trials[0].spec
    rounds: list[tuple[str, ...]] = []
    known: list[Candidates] = []
    for trial in trials:
        rounds += trial.rounds.values()
        known += trial.candidates
    counts: Counter[str] = Counter()
    for names in rounds:
        counts.update(names)
    is_known = bool(known) and known.count(known[0]) == len(known) and _all_among(counts, known[0])
    return BlockSelection(
        model=spec.table_model,
        variant=spec.variant,
        label=spec.label,
        specs=tuple(trial.spec for trial in trials),
        rounds=len(rounds),
        sizes=tuple(sorted(set(map(len, rounds)))),
        counts={name: counts[name] for name in sorted(counts, key=lambda name: (-counts[name], *_layer_order(name)))},
        candidates=known[0] if is_known else None,
    )


def _layer_order(name: str) -> tuple[int, int, int, str]:
    """Return a sort key: by layer, kind and head; names that are not a block's come last."""
    place = block_place(name)
    return (place.layer, KINDS.index(place.kind), place.head or 0, "") if place else (MOST_BLOCKS + 1, 0, 0, name)


def _all_among(names: Iterable[str], candidates: Candidates) -> bool:
    for place in map(block_place, names):
        layers = candidates.get(place.kind, ()) if place else ()
        if place and not (place.layer < len(layers) and (place.head or 0) < layers[place.layer]):
            return False
    return True
