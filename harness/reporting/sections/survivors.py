"""Which sequences survive which method."""

from __future__ import annotations

from harness.reporting.section import Section


class SurvivingSequences(Section):
    """The sequences of which most is left, by their ids."""

    needs_points = True
