"""Every number that anything shows of a sweep, computed once: tables, rankings, comparisons, caveats."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from harness.analysis.answer import Answer, answer
from harness.analysis.attacks import attack_curves, attack_frame
from harness.analysis.blocks import selected_blocks
from harness.analysis.caveats import HumanReading, caveats, human_readings
from harness.analysis.evidence import Evidence, read_evidence
from harness.analysis.exact_match import agreement_frame
from harness.analysis.main_table import reasoning_frame
from harness.analysis.metrics import MetricInfo, metric_info
from harness.analysis.published import published_frame
from harness.analysis.ranking import RankedTable, head, rank
from harness.analysis.table import table
from harness.records.results import PointResults, Results


class Analysis:
    """What was made of a sweep's results. Each property is computed when it is first asked for, and then kept."""

    def __init__(self, results: Results) -> None:
        """Take a sweep's results."""
        self.results = results

    @cached_property
    def info(self) -> MetricInfo:
        """What its evaluator declared of each metric, in the order of the table's columns."""
        return metric_info(self.results)

    @cached_property
    def evidence(self) -> Evidence:
        """The items behind each number."""
        return read_evidence(self.results)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row for every measured point: table.csv.

        Raises:
            DataError: It would mix definitions.
        """
        return table(self.results, self.info, self.evidence)

    @cached_property
    def ranked(self) -> RankedTable:
        """The table with the ranks of every variant.

        Raises:
            DataError: A variant and seed has two ranked rows.
        """
        return rank(self.table, self.info, self.evidence)

    @cached_property
    def head(self) -> RankedTable:
        """The rows that a page has room for."""
        return head(self.ranked)

    @property
    def points(self) -> pd.DataFrame:
        """The points that a page shows, with erasure as it is ranked."""
        return self.head.table

    @cached_property
    def sampled(self) -> list[PointResults]:
        """The points whose texts are shown: the models as they are, and those that are ranked, of one seed."""
        ranked = set(self.points.loc[self.points["ranked"], "point_id"])
        first_seed = min((point.spec.seed for point in self.results.measured), default=0)
        sampled = []
        for point in self.results.measured:
            is_sampled = point.spec.is_reference or point.spec.point_id(point.strength) in ranked
            if is_sampled and point.spec.seed == first_seed and not point.spec.is_of_unseen:
                sampled.append(point)
        return sampled

    @cached_property
    def caveats(self) -> list[str]:
        """Everything that limits what the numbers can carry, in sentences."""
        return caveats(self.results, self.ranked, self.head, self.readings)

    @cached_property
    def readings(self) -> list[HumanReading]:
        """What the judges make of human text."""
        return human_readings(self.results.measured, self.info)

    @cached_property
    def answer(self) -> Answer:
        """What each method pays for erasing to a level, and what is wrong with it."""
        return answer(self.results, self.ranked)

    @cached_property
    def published(self) -> pd.DataFrame:
        """The published table that the sweep reproduces, next to ours."""
        return published_frame(self.results, self.ranked)

    @cached_property
    def attacks(self) -> pd.DataFrame:
        """What attacks get out of each model beyond what they get out of the retrained one."""
        return attack_frame(self.head)

    @cached_property
    def measured_curves(self) -> pd.DataFrame:
        """The curves that evaluators measured, of the references and the ranked points, or those of the last target."""
        return attack_curves(self.results, self.points, self.ranked.info)

    @cached_property
    def agreements(self) -> pd.DataFrame:
        """What is left of memorised and of other sequences."""
        return agreement_frame(self.head) if self.results.plan.erases else pd.DataFrame()

    @cached_property
    def answers(self) -> pd.DataFrame:
        """Each row's accuracies on reasoning tasks."""
        return reasoning_frame(self.head)

    @cached_property
    def blocks(self) -> tuple[pd.DataFrame, list[str]]:
        """How often each block was selected, and a sentence for each epoch whose notes were not understood."""
        return selected_blocks(self.results)
