"""What limits the numbers: read right after the answer."""

from harness.reporting.section import Section


class Caveats(Section):
    """The sentences that the analysis warns with; none where there are none."""
