"""Where each method stands as a whole, against the retrained model."""

from __future__ import annotations

from harness.reporting.section import Section


class Standings(Section):
    """The share of the trade-off that a method covers, and how far its ranked point is from the retrained model."""

    needs_points = True
