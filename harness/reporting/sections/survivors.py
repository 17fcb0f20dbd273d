"""Which sequences survive which method."""

from __future__ import annotations

from typing import Any

from harness.reporting.section import Section
from harness.specs import HOLDOUT, RETRAINED, STAND_IN

UNSEEN_NAMES = {RETRAINED: "of the retrained model's", HOLDOUT: "of unseen texts'", STAND_IN: "of validation texts'"}


class SurvivingSequences(Section):
    """The sequences of which most is left, by their ids."""

    needs_points = True

    def context(self) -> dict[str, Any] | None:
        """Return a table for each model and metric."""
        tables = self.analysis.survivors
        return {"survivors": tables, "unseen_names": UNSEEN_NAMES} if tables else None
