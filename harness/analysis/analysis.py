"""Everything that reports contain about a sweep, each part computed once."""

from functools import cached_property

import pandas as pd

from harness.analysis import main_table, metrics, ranking
from harness.analysis.answer import Answer, answer
from harness.analysis.attacks import attack_frame
from harness.analysis.blocks import selected_blocks
from harness.analysis.caveats import HumanReading, caveats, human_readings
from harness.analysis.evidence import Evidence, read_evidence
from harness.analysis.published import published_frame
from harness.analysis.table import table
from harness.records.results import PointResults, Results


class Analysis:
    """Results of a sweep and everything derived from them; properties are computed on first use and cached."""

    def __init__(self, results: Results) -> None:
        self.results = results

    @cached_property
    def info(self) -> metrics.MetricInfo:
        """Declarations of the measured metrics, in the order of the table's columns."""
        return metrics.metric_info(self.results)

    @cached_property
    def evidence(self) -> Evidence:
        """The items behind each number."""
        return read_evidence(self.results)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row for every measured point: table.csv.

        Raises:
            DataError: The results mix definitions.
        """
        return table(self.results, self.info, self.evidence)

    @cached_property
    def ranked(self) -> ranking.RankedTable:
        """The table with the ranks of every variant.

        Raises:
            DataError: A variant and seed has two ranked rows.
        """
        return ranking.rank(self.table, self.info, self.evidence)

    @property
    def shown(self) -> ranking.RankedTable:
        """The ranked rows, with erasure as it is ranked."""
        return self.ranked.on_recited_texts

    @property
    def points(self) -> pd.DataFrame:
        """The points, with erasure as it is ranked."""
        return self.shown.table

    @cached_property
    def sampled(self) -> list[PointResults]:
        """The points whose texts are shown: references and ranked points of the first seed."""
        ranked = set(self.points.loc[self.points["ranked"], "point_id"])
        first_seed = min((point.spec.seed for point in self.results.measured), default=0)
        points = [point for point in self.results.measured if point.spec.seed == first_seed]
        points = [point for point in points if not point.spec.is_unseen_row]
        return [point for point in points if point.spec.is_reference or point.spec.point_id(point.strength) in ranked]

    @cached_property
    def caveats(self) -> list[str]:
        """Limits of the numbers, as sentences."""
        return caveats(self.results, self.ranked, self.readings)

    @cached_property
    def readings(self) -> list[HumanReading]:
        """Perplexity that each judge gives to human text."""
        return human_readings(self.results.measured, self.info)

    @cached_property
    def answer(self) -> Answer:
        """Price of each method at each level."""
        return answer(self.results, self.ranked)

    @cached_property
    def published(self) -> pd.DataFrame:
        """Published table next to ours."""
        return published_frame(self.results, self.ranked)

    @cached_property
    def attacks(self) -> pd.DataFrame:
        """Text that attacks recover from each model beyond the retrained model's."""
        return attack_frame(self.shown)

    @cached_property
    def agreements(self) -> pd.DataFrame:
        """Agreement with the original on memorised and on other sequences."""
        return main_table.agreement_frame(self.shown) if self.results.plan.erases else pd.DataFrame()

    @cached_property
    def blocks(self) -> pd.DataFrame:
        """Selections of each block."""
        return selected_blocks(self.results)
