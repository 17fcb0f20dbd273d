"""Blocks that methods selected, counted from the notes of points, next to chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from harness.analysis.seeds import strength_text
from harness.base.messages import amount
from harness.contracts import Json, Number
from harness.models.blocks import GROUPED_KINDS, HEAD_KINDS, KINDS, block_order, block_place, kinds_among
from harness.records.results import PointResults, Results
from harness.settings import TrialSpec

COLUMNS = (
    "model", "variant", "label", "block", "kind", "layer", "head", "selections", "rounds", "trials", "share", "chance",
)  # fmt: skip
MAX_BLOCKS = 999
"""Largest valid layer, and head of a layer, in a note."""


def selected_blocks(results: Results) -> tuple[pd.DataFrame, list[str]]:
    """Return the selections of each block, and a sentence for each epoch whose notes are invalid.

    There is a row for each candidate of each model and variant. A round is one epoch of one trial, counted once; seeds
    and replicates are summed. `selections` of `rounds` contain the block. `share` is its share of all selections,
    `chance` the mean share if blocks were drawn from all candidates (NaN where the notes do not list them).
    """
    together: dict[tuple[str, str], list[tuple[TrialSpec, list[tuple[str, ...]]]]] = {}
    candidates: dict[tuple[str, str], list[Json]] = {}
    unread: list[str] = []
    for trial in results.trials:
        rounds: dict[Number, tuple[str, ...] | None] = {}
        key = trial.spec.table_model, trial.spec.variant
        for point in reversed(trial.points):
            notes = point.made.notes if point.made and point.strength is not None else {}
            for epoch, selection in _epoch_selections(point, notes):
                rounds[epoch] = rounds.get(epoch) or _block_names(selection)
            candidates.setdefault(key, []).extend([notes["candidate_blocks"]] if "candidate_blocks" in notes else [])
        for epoch in sorted(epoch for epoch, names in rounds.items() if names is None):
            where = f"{trial.spec.label} on {trial.spec.model.id}, seed {trial.spec.seed}"
            at = strength_text(trial.spec.strength_name, float(epoch))
            unread.append(f"{where}, {at}: selected_blocks holds no list of blocks, so that round is not counted.")
        selections = [names for names in rounds.values() if names is not None]
        if any(selections):
            together.setdefault(key, []).append((trial.spec, selections))
    frames = []
    for (model, variant), trials in together.items():
        specs, rounds_of_trials = zip(*trials, strict=True)
        every = [names for selections in rounds_of_trials for names in selections]
        counts = Counter(name for names in every for name in names)
        among = _candidate_names(candidates[model, variant])
        is_known = counts.keys() <= among.keys()
        names = [*counts, *(name for name in among if name not in counts)] if is_known else [*counts]
        frame = pd.DataFrame({"block": sorted(names, key=lambda name: (-counts[name], *_order(name)))})
        places = frame["block"].map(block_place)
        frame["kind"] = places.map(lambda place: place.kind if place else "")
        frame["layer"] = places.map(lambda place: place.layer if place else None).astype("Int64")
        frame["head"] = places.map(lambda place: place.head if place else None).astype("Int64")
        frame["selections"] = [counts[name] for name in frame["block"]]
        about = {"model": model, "variant": variant, "label": specs[0].label, "rounds": len(every)}
        about |= {"trials": len(specs), "share": frame["selections"] / counts.total()}
        frames.append(frame.assign(**about, chance=1 / len(among) if is_known and among else None)[[*COLUMNS]])
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS)), unread


def _epoch_selections(point: PointResults, notes: Mapping[str, Json]) -> Iterator[tuple[Number, Json]]:
    if "selected_blocks" in notes:
        yield (notes["epoch"] if _is_count(notes.get("epoch")) else point.strength or 0), notes["selected_blocks"]
    history = notes.get("selected_by_epoch")
    if isinstance(history, list | tuple) and None not in map(_block_names, history):
        yield from enumerate(history, start=1)


def _block_names(selection: Json) -> tuple[str, ...] | None:
    if not isinstance(selection, list | tuple):
        return None
    names: dict[str, None] = {}
    for entry in selection:
        name = entry.get("block") if isinstance(entry, Mapping) else entry
        if not isinstance(name, str) or not name:
            return None
        names[name] = None
    return tuple(names)


def _candidate_names(notes: Sequence[Json]) -> dict[str, None]:
    first = notes[0] if notes else None
    if not isinstance(first, Mapping) or not set(first) <= set(KINDS) or any(other != first for other in notes):
        return {}
    names: dict[str, None] = {}
    for kind in kinds_among(first):
        heads_by_layer = first.get(kind, ())
        if (
            not isinstance(heads_by_layer, list | tuple)
            or len(heads_by_layer) > MAX_BLOCKS
            or not all(map(_is_count, heads_by_layer))
        ):
            return {}
        shared = kind in GROUPED_KINDS and max(heads_by_layer, default=0) < max(first.get("W_q", ()), default=0)
        for layer, count in enumerate(heads_by_layer):
            ends = [f".{'G' if shared else 'H'}{head}" for head in range(count)] if kind in HEAD_KINDS else [""] * count
            names |= dict.fromkeys(f"L{layer}.{kind}{end}" for end in ends)
    return names


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_BLOCKS


def _order(name: str) -> tuple[int, str, int]:
    return block_order(name) if block_place(name) else (MAX_BLOCKS + 1, name, 0)


def selection_sentences(frame: pd.DataFrame) -> list[str]:
    """Return sentences about one variant's selections on one model: their number, kinds and depth."""
    first, total = frame.iloc[0], int(frame["selections"].sum())
    trials = f" of {first['trials']} trials, summed" if first["trials"] > 1 else ""
    sentences = [
        f"{first['label']} on {first['model']}: {amount(first['rounds'], 'round')}{trials}, {total} selections."
    ]
    placed = frame[frame["kind"] != ""]
    has_chance = placed["chance"].notna().all()

    def text(part: pd.DataFrame) -> str:
        chance = f" (by chance {100 * len(part) / len(placed):.0f} %)" if has_chance else ""
        return f"{100 * part['selections'].sum() / max(1, placed['selections'].sum()):.0f} %{chance}"

    selected_kinds = {*placed.loc[placed["selections"] > 0, "kind"]}
    kinds = [f"{kind} {text(placed[placed['kind'] == kind])}" for kind in KINDS if kind in selected_kinds]
    sentences += [f"By kind: {', '.join(kinds)}."] if kinds else []
    if has_chance and len(placed):
        layers = int(placed["layer"].max()) + 1
        shallow = placed[placed["layer"] < (third := max(1, round(layers / 3)))]
        sentences.append(f"In the first third of the layers ({third} of {layers}): {text(shallow)}.")
    if len(placed) < len(frame):
        others = ", ".join(frame.loc[frame["kind"] == "", "block"].head(5))
        sentences.append(f"{others}: no names of blocks (L2.W_v.H11, L2.C_proj), so they count in no share.")
    return sentences


def selection_grid(frame: pd.DataFrame) -> tuple[Any, list[str]]:
    """Return one variant's counts (layers, columns), NaN where there is no such block, and each column's kind."""
    placed = frame[frame["kind"] != ""].assign(head=frame["head"].fillna(0))
    wide = placed.pivot_table("selections", "layer", ["kind", "head"], aggfunc="sum", observed=True)
    kinds = [kind for kind in KINDS if kind in wide.columns.get_level_values(0)]
    wide = wide.reindex(index=range(int(wide.index.max()) + 1))[kinds]
    return wide.to_numpy(dtype=float, na_value=float("nan")), list(wide.columns.get_level_values(0))
