"""The index: one page that links the reports of all sweeps in a results folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.records.results import Results
from harness.reporting.template import html_templates


@dataclass(frozen=True)
class IndexEntry:
    """One sweep of a results folder."""

    folder: str
    """Its name within the results folder."""
    results: Results | None
    """None where they cannot be read."""
    fault: str
    """Why not; '' where they can."""
    searches_left: int
    """Of a tuned sweep: what these choose is not among its trials yet."""
    has_report: bool
    has_picture: bool
    """Whether `tradeoff.png` was drawn."""


def index_page(entries: Sequence[IndexEntry]) -> str:
    """Return the page: for each sweep its question, how far it has come, its picture and links to what it left."""
    return html_templates().get_template("index.html.j2").render(entries=entries)
