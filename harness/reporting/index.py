"""The index: one page that links the reports of all sweeps in a results folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.records.results import Results
from harness.reporting.content_policy import content_policy
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

    @property
    def title(self) -> str:
        """Return the sweep's question; its name where that cannot be read."""
        return self.results.plan.question if self.results else self.folder

    @property
    def state(self) -> str:
        """Return how far the sweep has come: `12 of 14 trials done, 1 failed`; or why that cannot be told."""
        if self.results is None:
            return self.fault
        statuses = Counter(trial.status for trial in self.results.trials)
        failed = f", {statuses['failed']} failed" if statuses["failed"] else ""
        searches = f", {self.searches_left} of {len(self.results.studies)} searches unfinished" * bool(
            self.searches_left
        )
        return f"{statuses['done']} of {statuses.total()} trials done{failed}{searches}"

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left to run."""
        return (
            self.results is not None
            and not self.searches_left
            and all(trial.status == "done" for trial in self.results.trials)
        )

    @property
    def models(self) -> str:
        """Return the models' names."""
        return ", ".join(dict.fromkeys(trial.spec.model.id for trial in self.results.trials)) if self.results else ""


def index_page(entries: Sequence[IndexEntry]) -> str:
    """Return the page: for each sweep its question, how far it has come, its picture and links to what it left."""
    return html_templates().get_template("index.html.j2").render(entries=entries, content_policy=content_policy)
