"""Published tables: their conditions and tolerances."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from harness.base.settings import Strict
from harness.contracts import Definition, Json, Number

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "published"
"""Part of Lethe's repository, not of a sweep's results folder."""


class PublishedRow(Strict):
    """The row of a sweep that a published row corresponds to."""

    label: str
    method: str
    """Name of a plugin or reference row."""
    settings: Mapping[str, Json] = {}
    """Settings that differ from the method's defaults."""
    strength: Number | None = None
    """The last strength of a cumulative method; None for a reference row."""


class Conditions(Strict):
    """Conditions of a published table.

    Texts and judges left out may be any. Training settings left out have their defaults, so settings added later are
    compared too.
    """

    title: str
    definition: Definition
    models: Mapping[str, str]
    """Name of each model in the table to its id on the hub."""
    rows: Mapping[str, PublishedRow]
    """By value of `row_column`, in the source's order."""
    row_column: str | None = None
    """None: one row for each model."""
    measured_as: Mapping[str, str] = {}
    """The table's column names to Lethe's, where they differ."""
    forget: Mapping[str, Json] = {}
    """Only the `digest` of `harness.settings.Source`, which identifies the texts as cut."""
    about_forget: str = ""
    """Description of the forget set."""
    utility: Mapping[str, Json] = {}
    """Fields of `harness.settings.Source` without defaults, as in the next two."""
    retain: Mapping[str, Json] = {}
    validation: Mapping[str, Json] = {}
    judges: Mapping[str, list[str]] = {}
    """Names that a sweep may give the judge, by role."""
    training: Mapping[str, Json] = {}
    """Fields of `harness.contracts.Training`."""
    memorized_model: Mapping[str, Json] = {}
    """Fields of `harness.settings.MemorizedModel`."""


class Tolerance(Strict):
    """Allowed distance from a published figure."""

    why: str
    """Published figures that differ by about as much."""
    difference: float = 0.0
    share: float = 0.0
    """Share of the published figure."""

    def at(self, published: float) -> float:
        """Return the absolute tolerance around a figure.

        Example:
            >>> Tolerance(difference=0.05, why="").at(0.6), Tolerance(share=0.1, why="").at(30.0)
            (0.05, 3.0)
        """
        return self.difference + self.share * abs(published)


@cache
def published_conditions() -> dict[str, Conditions]:
    """Return the conditions of each reproducible table by its name."""
    entries: Any = yaml.safe_load((PUBLISHED / "conditions.yaml").read_text(encoding="utf-8"))
    return {name: Conditions(**fields) for name, fields in entries.items()}


@cache
def published_tolerances() -> dict[str, Tolerance]:
    """Return the tolerance of each metric by its name."""
    entries: Any = yaml.safe_load((PUBLISHED / "tolerances.yaml").read_text(encoding="utf-8"))
    return {name: Tolerance(**fields) for name, fields in entries.items()}
