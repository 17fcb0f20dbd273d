"""Published tables: their conditions and tolerances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from harness.contracts import Definition, Json, Number
from harness.errors import DataError

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "published"
"""Part of Lethe's repository, not of a sweep's results folder."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """The row of a sweep that a published row corresponds to."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    label: str
    method: str
    """Name of a plugin or reference row."""
    settings: Mapping[str, Json] = field(default_factory=dict)
    """Settings that differ from the method's defaults."""
    strength: Number | None = None
    """The last strength of a cumulative method; None for a reference row."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions of a published table.

    Texts and judges left out may be any. Training settings left out have their defaults, so settings added later are
    compared too.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    title: str
    definition: Definition
    models: Mapping[str, str]
    """Name of each model in the table to its id on the hub."""
    rows: Mapping[str, PublishedRow]
    """By value of `row_column`, in the source's order."""
    row_column: str | None = None
    """None: one row for each model."""
    measured_as: Mapping[str, str] = field(default_factory=dict)
    """The table's column names to Lethe's, where they differ."""
    forget: Mapping[str, Json] = field(default_factory=dict)
    """Only the `digest` of `harness.settings.Source`, which identifies the texts as cut."""
    about_forget: str = ""
    """Description of the forget set."""
    utility: Mapping[str, Json] = field(default_factory=dict)
    """Fields of `harness.settings.Source` without defaults, as in the next two."""
    retain: Mapping[str, Json] = field(default_factory=dict)
    validation: Mapping[str, Json] = field(default_factory=dict)
    judges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names that a sweep may give the judge, by role."""
    training: Mapping[str, Json] = field(default_factory=dict)
    """Fields of `harness.contracts.Training`."""
    memorized_model: Mapping[str, Json] = field(default_factory=dict)
    """Fields of `harness.settings.MemorizedModel`."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Allowed distance from a published figure."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

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
    """Return the conditions of each reproducible table by its name.

    Raises:
        DataError: The file is missing or malformed.
    """
    return _published_file("conditions.yaml", dict[str, Conditions])


@cache
def published_tolerances() -> dict[str, Tolerance]:
    """Return the tolerance of each metric by its name.

    Raises:
        DataError: The file is missing or malformed.
    """
    return _published_file("tolerances.yaml", dict[str, Tolerance])


def _published_file(name: str, kind: type[T]) -> T:
    file = PUBLISHED / name
    try:
        given: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        return TypeAdapter(kind).validate_python(given)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        raise DataError(f"{file}, which is part of Lethe's repository, cannot be read: {error}.") from error
