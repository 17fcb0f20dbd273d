"""Published tables: where their figures lie, what they were measured on, and how far they can be trusted."""

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
"""In Lethe's own repository, wherever a sweep's results are."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """Which row of a sweep a row of a published table is."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    label: str
    """As printed there."""
    method: str
    """The plugin's name, or a reference row's."""
    settings: Mapping[str, Json] = field(default_factory=dict)
    """Those that differ from the method's defaults."""
    strength: Number | None = None
    """Of a cumulative method the most that it reaches; None: of a reference row."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a published table was measured on.

    Texts and judges that are left out may be any. A setting of training that is left out has its default, so that one
    which is added later is compared too.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    title: str
    definition: Definition
    models: Mapping[str, str]
    """The name of each model in the table, and its id on the hub."""
    rows: Mapping[str, PublishedRow]
    """By what the table has in `row_column`, in the order of the source."""
    row_column: str | None = None
    """None: a table with one row for each model."""
    measured_as: Mapping[str, str] = field(default_factory=dict)
    """The table's columns that are called otherwise here, and what they are called."""
    forget: Mapping[str, Json] = field(default_factory=dict)
    """Fields of `harness.settings.Source`: its digest alone, which names the texts as they are cut."""
    about_forget: str = ""
    """The forget set in words."""
    utility: Mapping[str, Json] = field(default_factory=dict)
    """Fields of `harness.settings.Source` but its defaults, as in the next two."""
    retain: Mapping[str, Json] = field(default_factory=dict)
    validation: Mapping[str, Json] = field(default_factory=dict)
    judges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Role to the names under which a sweep may have that judge."""
    training: Mapping[str, Json] = field(default_factory=dict)
    """Fields of `harness.contracts.Training`."""
    memorized_model: Mapping[str, Json] = field(default_factory=dict)
    """Fields of `harness.settings.MemorizedModel`."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far a figure may lie from the published one."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    why: str
    """What differs by about as much among published figures themselves."""
    difference: float = 0.0
    share: float = 0.0
    """Of the published figure."""

    def at(self, published: float) -> float:
        """Return the tolerance around a figure.

        Example:
            >>> Tolerance(difference=0.05, why="").at(0.6), Tolerance(share=0.1, why="").at(30.0)
            (0.05, 3.0)
        """
        return self.difference + self.share * abs(published)


@cache
def published_conditions() -> dict[str, Conditions]:
    """Return what each table that a sweep can reproduce was measured on, by the table's name.

    Raises:
        DataError: The file of them is gone, or is not what it should be.
    """
    return _published_file("conditions.yaml", dict[str, Conditions])


@cache
def published_tolerances() -> dict[str, Tolerance]:
    """Return the tolerance of each metric, by its name.

    Raises:
        DataError: The file of them is gone, or is not what it should be.
    """
    return _published_file("tolerances.yaml", dict[str, Tolerance])


def _published_file(name: str, kind: type[T]) -> T:
    file = PUBLISHED / name
    try:
        given: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        return TypeAdapter(kind).validate_python(given)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        raise DataError(f"{file}, which is part of Lethe's repository, cannot be read: {error}.") from error
