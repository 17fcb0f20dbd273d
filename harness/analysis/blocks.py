"""Blocks that methods selected, counted from the notes of points, next to chance."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.base.messages import amount
from harness.models.blocks import GROUPED_KINDS, HEAD_KINDS, KINDS, BlockPlace, block_order, block_place, kinds_among
from harness.records.results import Results, TrialResults

COLUMNS = (
    "model", "variant", "label", "block", "kind", "layer", "head", "selections", "rounds", "trials", "share", "chance",
)  # fmt: skip


def selected_blocks(results: Results) -> pd.DataFrame:
    """Return a row for each candidate block of each model and variant; names that are no block's are left out.

    A round is one epoch of one trial, counted once; seeds and replicates are summed. `selections` of `rounds` contain
    the block. `share` is its share of all selections, `chance` the mean share if blocks were drawn from all candidates
    (NaN where the notes do not list them).
    """
    trials_by_row: dict[tuple[str, str], list[TrialResults]] = {}
    for trial in results.trials:
        if any(_rounds(trial)):
            trials_by_row.setdefault((trial.spec.table_model, trial.spec.variant), []).append(trial)
    frames = []
    for (model, variant), trials in trials_by_row.items():
        rounds = [names for trial in trials for names in _rounds(trial)]
        counts = Counter(name for names in rounds for name in names)
        among = _candidate_names(trials)
        names = sorted({*counts, *among}, key=lambda name: (-counts[name], *block_order(name)))
        places = [place for name in names if (place := block_place(name))]
        frame = pd.DataFrame(places, columns=list(BlockPlace._fields)).astype({"head": "Int64"})
        frame = frame.assign(block=names, selections=[counts[name] for name in names])
        about: dict[str, Any] = {"model": model, "variant": variant, "label": trials[0].spec.label}
        about |= {"rounds": len(rounds), "trials": len(trials), "chance": 1 / len(among) if among else None}
        frames.append(frame.assign(**about, share=frame["selections"] / counts.total())[[*COLUMNS]])
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))


def _rounds(trial: TrialResults) -> list[set[str]]:
    by_epoch: dict[Any, Sequence[Any]] = {}
    for point in trial.points:
        notes = point.made.notes if point.made else {}
        if "selected_blocks" in notes:
            by_epoch[notes.get("epoch", point.strength)] = notes["selected_blocks"]
        by_epoch |= enumerate(notes.get("selected_by_epoch", ()), start=1)
    rounds = []
    for entries in by_epoch.values():
        names = {str(entry.get("block") if isinstance(entry, Mapping) else entry) for entry in entries}
        rounds.append({name for name in names if block_place(name)})
    return rounds


def _candidate_names(trials: Sequence[TrialResults]) -> list[str]:
    points = [point for trial in trials for point in trial.points]
    all_notes = [point.made.notes for point in points if point.made and "candidate_blocks" in point.made.notes]
    counts = all_notes[0]["candidate_blocks"] if all_notes else {}
    names = []
    for kind in kinds_among(counts):
        counts_L = counts.get(kind, ())
        is_shared = kind in GROUPED_KINDS and max(counts_L, default=0) < max(counts.get("W_q", ()), default=0)
        for layer, count in enumerate(counts_L):
            ends = [f".{'G' if is_shared else 'H'}{head}" for head in range(count)] if kind in HEAD_KINDS else [""]
            names += [f"L{layer}.{kind}{end}" for end in ends[:count]]
    return names


def selection_heading(frame: pd.DataFrame) -> str:
    """Return the number of a variant's selections on a model."""
    first, total = frame.iloc[0], int(frame["selections"].sum())
    trials = f" of {first['trials']} trials, summed" if first["trials"] > 1 else ""
    return f"{first['label']} on {first['model']}: {amount(first['rounds'], 'round')}{trials}, {total} selections."


def selection_grid(frame: pd.DataFrame) -> tuple[Any, list[str]]:
    """Return one variant's counts (layers, columns), NaN where there is no such block, and each column's kind."""
    counts = frame.assign(head=frame["head"].fillna(0))
    wide = counts.pivot_table("selections", "layer", ["kind", "head"], aggfunc="sum", observed=True)
    kinds = [kind for kind in KINDS if kind in wide.columns.get_level_values(0)]
    wide = wide.reindex(index=range(int(wide.index.max()) + 1))[kinds]
    return wide.to_numpy(dtype=float, na_value=float("nan")), list(wide.columns.get_level_values(0))
