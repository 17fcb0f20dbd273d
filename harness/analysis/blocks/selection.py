"""Which blocks a method selected and how often, from the notes of its points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.cells import strength_text
from harness.contracts import Json, Number
from harness.models.blocks import KINDS, block_place, kinds_among
from harness.records.results import PointResults, Results, TrialResults
from harness.specs import TrialSpec

Candidates = Mapping[str, tuple[int, ...]]
"""Of each kind, how many blocks there are to choose from in each layer."""
MOST_BLOCKS = 999
"""The most layers, and the most heads of one, that a note is believed to speak of."""


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
    walked: int
    """All: an older journal holds the selections of the measured epochs alone."""
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

    @property
    def unplaced(self) -> tuple[str, ...]:
        """Return the names that are not a block's: they have no kind and no layer."""
        return tuple(name for name in self.counts if block_place(name) is None)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of block that the model has, as far as is known: C_gate where its MLPs are gated."""
        return kinds_among(self.candidates or {place.kind for name in self.counts if (place := block_place(name))})

    @property
    def is_grouped(self) -> bool:
        """Return whether groups of heads share their W_k and W_v, as far as is known."""
        if any(place.is_group for name in self.counts if (place := block_place(name))):
            return True
        of = self.candidates
        return of is not None and 0 < max(of["W_k"], default=0) < max(of["W_q"], default=0)


@dataclass(frozen=True)
class _Walk:
    """The rounds of one trial, by their epoch, and the points whose notes could not be read."""

    spec: TrialSpec
    rounds: Mapping[Number, tuple[str, ...]]
    walked: int
    candidates: tuple[Candidates, ...]
    unreadable: tuple[str, ...]


def block_selections(results: Results) -> tuple[list[BlockSelection], list[str]]:
    """Return what each variant selected on each model, and a sentence for each point whose notes cannot be read.

    A trial's points share their history: each of its epochs counts once. Nothing comes back of a sweep in which no
    method notes `selected_blocks`.
    """
    walks = [_walk(trial) for trial in results.trials]
    together: dict[tuple[str, str], list[_Walk]] = {}
    for walk in walks:
        if walk.rounds:
            together.setdefault((walk.spec.table_model, walk.spec.variant), []).append(walk)
    selections = [_selection(group) for group in together.values()]
    unreadable = [sentence for walk in walks for sentence in walk.unreadable]
    return [selection for selection in selections if selection.total], unreadable


def _walk(trial: TrialResults) -> _Walk:
    """Return a trial's rounds. Where points tell of one epoch twice, that of the longest walk stands."""
    rounds: dict[Number, tuple[str, ...]] = {}
    unreadable: dict[Number, str] = {}
    made = [(point, point.made.notes) for point in reversed(trial.points) if point.made and point.strength is not None]
    for point, notes in made:
        for epoch, chosen in _noted(point, notes):
            names = _names(chosen)
            if names is None:
                unreadable.setdefault(epoch, _unreadable(point))
            else:
                rounds.setdefault(epoch, names)
    epochs = [notes["epoch"] for _, notes in made if _is_count(notes.get("epoch"))]
    noted = (_candidates(notes.get("candidate_blocks")) for _, notes in made)
    return _Walk(
        spec=trial.spec,
        rounds=rounds,
        walked=max([len(rounds), *epochs]),
        candidates=tuple(candidates for candidates in noted if candidates),
        unreadable=tuple(unreadable[epoch] for epoch in sorted(unreadable.keys() - rounds.keys())),
    )


def _noted(point: PointResults, notes: Mapping[str, Json]) -> Iterator[tuple[Number, Json]]:
    """Yield the selections that a point's notes tell of, each with its epoch: its own, and those before it."""
    if "selected_blocks" in notes:
        epoch: Number = notes["epoch"] if _is_count(notes.get("epoch")) else point.strength or 0
        yield epoch, notes["selected_blocks"]
    history = notes.get("selected_by_epoch")
    if isinstance(history, list | tuple) and all(_names(chosen) is not None for chosen in history):
        yield from enumerate(history, start=1)


def _names(chosen: Json) -> tuple[str, ...] | None:
    """Return the names of a round's blocks, each once; None if it is not a list of blocks."""
    if not isinstance(chosen, list | tuple):
        return None
    names: list[Json] = [entry.get("block") if isinstance(entry, Mapping) else entry for entry in chosen]
    return tuple(dict.fromkeys(names)) if all(isinstance(name, str) and name for name in names) else None


def _unreadable(point: PointResults) -> str:
    spec, strength = point.spec, float(point.strength or 0)
    return (
        f"{spec.label} on {spec.model.id}, seed {spec.seed}, {strength_text(spec.strength_name, strength)}: the notes "
        "hold no list of blocks under selected_blocks, so that round is not counted."
    )


def _candidates(noted: Json) -> Candidates | None:
    """Return the candidates that a note tells of; None if it tells of none, or of something else."""
    if not isinstance(noted, Mapping) or not set(noted) <= set(KINDS):
        return None
    kinds = {kind: noted.get(kind, ()) for kind in KINDS if kind in noted}
    if not all(isinstance(layers, list | tuple) and all(map(_is_count, layers)) for layers in kinds.values()):
        return None
    lengths = {len(layers) for layers in kinds.values()}
    if len(lengths) != 1 or max(lengths) > MOST_BLOCKS or not any(map(any, kinds.values())):
        return None
    return {kind: tuple(kinds.get(kind, (0,) * max(lengths))) for kind in kinds_among(kinds)}


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_BLOCKS


def _selection(walks: Sequence[_Walk]) -> BlockSelection:
    spec = walks[0].spec
    rounds = [names for walk in walks for names in walk.rounds.values()]
    counts = Counter(name for names in rounds for name in names)
    told = {tuple(candidates.items()): candidates for walk in walks for candidates in walk.candidates}
    candidates = next(iter(told.values())) if len(told) == 1 else None
    return BlockSelection(
        model=spec.table_model,
        variant=spec.variant,
        label=spec.label,
        specs=tuple(walk.spec for walk in walks),
        rounds=len(rounds),
        walked=sum(walk.walked for walk in walks),
        sizes=tuple(sorted({len(names) for names in rounds})),
        counts={name: counts[name] for name in sorted(counts, key=lambda name: (-counts[name], *_order(name)))},
        candidates=candidates if candidates and all(_is_among(name, candidates) for name in counts) else None,
    )


def _order(name: str) -> tuple[int, int, int, str]:
    place = block_place(name)
    return (place.layer, KINDS.index(place.kind), place.head or 0, "") if place else (MOST_BLOCKS + 1, 0, 0, name)


def _is_among(name: str, candidates: Candidates) -> bool:
    place = block_place(name)
    if place is None:
        return True
    layers = candidates.get(place.kind, ())
    return place.layer < len(layers) and (place.head or 0) < layers[place.layer]
