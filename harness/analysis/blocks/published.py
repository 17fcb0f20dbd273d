"""The published block frequencies, beside ours where both count the same."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from harness.analysis.blocks.selection import BlockSelection
from harness.base.messages import amount
from harness.contracts import Json
from harness.errors import DataError
from harness.models.blocks import HEAD_KINDS, kinds_among
from harness.records.published import PUBLISHED

FILE = PUBLISHED / "emso_block_frequency.csv"
"""In a checkout; an installed package has no results."""


@dataclass(frozen=True)
class PublishedSelection:
    """How often each block was selected in a paper, and what was selected from, with which settings."""

    source: str
    method: str
    settings: Mapping[str, Json]
    selection: BlockSelection


def published_selection(file: Path = FILE) -> PublishedSelection | None:
    """Return the published frequencies; None where there is no such file.

    Args:
        file: A CSV of `block,frequency`; beside it an `.origin.yaml` says what was counted.

    Raises:
        DataError: A file is damaged, or the other one is missing.
    """
    if not file.exists():
        return None
    try:
        origin = yaml.safe_load(file.with_suffix(".origin.yaml").read_text(encoding="utf-8"))
        with file.open(encoding="utf-8", newline="") as rows:
            counts = {row["block"]: int(row["frequency"]) for row in csv.DictReader(rows)}
        layers, heads, settings = origin["layers"], origin["heads"], origin["settings"]
        selection = BlockSelection(
            model=origin["model"],
            variant=origin["method"],
            label=f"published ({origin['source']})",
            specs=(),
            rounds=origin["rounds"],
            sizes=(settings["k"],),
            counts=counts,
            # GPT-Neo's MLPs have no gates.
            candidates={kind: (heads if kind in HEAD_KINDS else 1,) * layers for kind in kinds_among(())},
        )
        return PublishedSelection(origin["source"], origin["method"], settings, selection)
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise DataError(
            f"{file}, with the .origin.yaml beside it, is damaged ({type(error).__name__}: {error}). "
            "Copy both files again from Lethe's repository."
        ) from error


def differs(ours: BlockSelection, published: PublishedSelection) -> str:
    """Return why the published frequencies do not stand beside ours; '' where both count the same.

    A model is known by its name: the hub's id, or a folder whose last part is that of the id.
    """
    theirs = published.selection
    if ours.model.rstrip("/").rsplit("/", 1)[-1].lower() != theirs.model.rsplit("/", 1)[-1].lower():
        return f"{ours.model} is another model"
    for spec in ours.specs:
        if spec.method != published.method:
            return f"{ours.label} is another method"
        other = [name for name, value in published.settings.items() if spec.settings.get(name) != value]
        if other:
            return f"{ours.label} has another {' and '.join(other)}"
    if ours.rounds != theirs.rounds * len(ours.specs):
        return (
            f"{ours.label} ran {amount(ours.rounds, 'round')} in {len(ours.specs)} trials, not {theirs.rounds} in each"
        )
    return ""
