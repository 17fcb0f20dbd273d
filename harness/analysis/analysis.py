"""Every number that anything shows of a sweep, computed once: tables, rankings, comparisons, caveats."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from harness.analysis.answer import Answer, answer
from harness.analysis.attacks.excess import AttackTable, attack_tables
from harness.analysis.attacks.measured_curves import CurvePanel, curve_panels
from harness.analysis.blocks.selection import BlockSelection, block_selections
from harness.analysis.caveats import HumanReading, caveats, human_readings
from harness.analysis.evidence import Evidence, read_evidence
from harness.analysis.exact_match import ModelAgreement, Survivors, agreements, survivors
from harness.analysis.layout import ModelTable
from harness.analysis.metrics import MetricInfo, metric_info
from harness.analysis.published.comparison import ComparedTable, compared_tables
from harness.analysis.ranking import RankedTable, rank
from harness.analysis.reasoning import Answers, answers
from harness.analysis.shown import POINTS, ShownTable, sampled_points, shown_results, shown_table
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
    def shown_table(self) -> ShownTable:
        """The rows that a person can read."""
        return shown_table(self.ranked)

    @cached_property
    def shown(self) -> Results:
        """The results of the points in the shown table."""
        return shown_results(self.results, self.shown_table)

    @property
    def points(self) -> pd.DataFrame:
        """The shown points, with erasure as it is ranked."""
        return self.shown_table.ranked.table

    @cached_property
    def listed(self) -> pd.DataFrame:
        """The shown points that are listed one by one: of each model as many as a page holds."""
        return self.points.groupby("model", sort=False).head(POINTS)

    @cached_property
    def sampled(self) -> list[PointResults]:
        """The points whose texts are shown."""
        return sampled_points(self.shown, self.points)

    @property
    def tables(self) -> list[ModelTable]:
        """The main table of every model."""
        return self.shown_table.tables

    @cached_property
    def caveats(self) -> list[str]:
        """Everything that limits what the numbers can carry, in sentences."""
        return caveats(self.results, self.shown, self.shown_table, self.readings)

    @cached_property
    def readings(self) -> list[HumanReading]:
        """What the judges make of human text."""
        return human_readings(self.results.measured, self.info)

    @cached_property
    def answer(self) -> Answer:
        """What each method pays for erasing to a level, and what is wrong with it."""
        return answer(self.results, self.ranked)

    @cached_property
    def published(self) -> list[ComparedTable]:
        """The published table that the sweep reproduces, beside ours."""
        return compared_tables(self.results, self.ranked)

    @cached_property
    def attacks(self) -> list[AttackTable]:
        """What attacks get out of each model beyond what they get out of the retrained one."""
        return attack_tables(self.shown_table.ranked)

    @cached_property
    def measured_curves(self) -> list[CurvePanel]:
        """The curves that evaluators measured, of the references and the ranked points, or those of the last target."""
        return curve_panels(self.shown, self.points, self.ranked.info)

    @cached_property
    def survivors(self) -> list[Survivors]:
        """Which sequences survive which method."""
        return survivors(self.shown_table.ranked)

    @cached_property
    def agreements(self) -> list[ModelAgreement]:
        """What is left of memorised and of other sequences."""
        return agreements(self.shown, self.shown_table.ranked) if self.results.plan.erases else []

    @cached_property
    def answers(self) -> dict[str, list[Answers]]:
        """Each model's accuracies on reasoning tasks."""
        return answers(self.points, self.info)

    @cached_property
    def blocks(self) -> tuple[list[BlockSelection], list[str]]:
        """Which blocks each method selected, and a sentence for each point whose notes were not understood."""
        return block_selections(self.shown)
