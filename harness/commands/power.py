"""Say how many seeds, models and prompts would tell methods apart, from how far what was measured varies.

    lethe power results/tuned
    lethe power results/tuned --pair emso kl_divergence
    lethe power results/tuned --difference 0.1

Exit codes: 0 said; 2 the folder cannot be read, or no two methods of it can be compared at equal erasure.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from harness.analysis.analysis import Analysis
from harness.analysis.cells import NOTHING, duration_text, number
from harness.analysis.matched.power import PairPower, PowerTable, planned_contrasts, power_tables
from harness.analysis.matched.verdicts import VerdictTable, reference_variant, verdict_tables
from harness.analysis.seeds import seconds_per_seed
from harness.base.messages import printable
from harness.base.paths import folder_argument
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.errors import DataError, did_you_mean
from harness.library import read_folder, refuse_without_results
from harness.records.results import Results
from harness.reporting.text_tables import result_table, table_console
from harness.statistics.contrasts import POWER
from harness.statistics.power import MOST_REPLICATES

_MORE_SEEDS = 2
"""With these and the one that there is, the deviation between seeds is known of two degrees of freedom."""


class PowerCommand(Command):
    """`lethe power`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the results, the pair and the difference."""
        parser.add_argument("folder", type=folder_argument, help="a sweep's results: results/tuned")
        about = "two rows of the sweep file, the second as the reference (default: each method and compare.reference)"
        parser.add_argument("--pair", nargs=2, metavar=("A", "B"), help=about)
        about = "a difference to be found in place of the measured one: 0.1 for 10 %%"
        parser.add_argument("--difference", type=_difference_argument, metavar="SHARE", help=about)

    def run(self, arguments: argparse.Namespace) -> int:
        """Print what would tell the methods of a results folder apart."""
        refuse_without_results(arguments.folder)
        analysis = Analysis(read_folder(arguments.folder))
        planned = analysis.verdicts
        tests, asked = planned_contrasts(planned), planned
        if arguments.pair:
            asked = _contrasts_of_pair(analysis, *arguments.pair)
            tests += planned_contrasts(asked) if _is_unplanned(asked, planned) else 0
        margin = analysis.results.plan.compare.margin
        tables = power_tables(asked, tests, margin, arguments.difference)
        if not any(table.pairs for table in tables):
            raise DataError(_why_nothing_is_compared(arguments.folder, tables))
        for table in tables:
            if table.pairs:
                table_console().print(_power_table(table, tests, margin, arguments.difference))
                table_console().print()
        for model in dict.fromkeys(table.model for table in tables if table.replicates == 1):
            tell(_seeds_missing(model, analysis.results))
        if any(table.replicates > 1 for table in tables):
            tell(_READING)
        return 0


_READING = (
    f"Seeds and models: how many find the ratio in {POWER:.0%} of tries on the same prompts and sequences, by one test "
    "or among all planned contrasts. Where no number of them does, the last column says whether items are missing: "
    "so many prompts (there are), and as many times more sequences.\n"
    "A deviation of three replicates is itself known to a factor of about two: read the counts as sizes."
)


def _difference_argument(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is no difference: give a share above 0, such as 0.1 for 10 %")
    return share


def _contrasts_of_pair(analysis: Analysis, name: str, reference: str) -> list[VerdictTable]:
    """Return the contrasts of one row of the sweep file against another.

    Raises:
        DataError: The file has no such row, or both are the same.
    """
    variants = dict.fromkeys(row.variant for table in analysis.matched for row in table.rows)
    known = list(dict.fromkeys([*variants, *(variant.partition("(")[0] for variant in variants)]))
    for row in (name, reference):
        if row not in known:
            hint = did_you_mean(row, known)
            raise DataError(f"no row of this sweep is called '{row}'.{hint} It compares {', '.join(variants)}.")
    plan, tables = analysis.results.plan, []
    for table in verdict_tables(analysis.matched, reference_variant(plan, reference), plan.compare.margin):
        rows = [judged for judged in table.rows if name in (judged.row.variant, judged.row.variant.partition("(")[0])]
        tables.append(replace(table, rows=tuple(rows)))
    if not any(table.rows for table in tables):
        raise DataError(f"--pair names '{name}' and '{reference}': give two rows of the sweep that are not the same.")
    return tables


def _is_unplanned(asked: list[VerdictTable], planned: list[VerdictTable]) -> bool:
    pairs = {frozenset((table.reference.variant, judged.row.variant)) for table in planned for judged in table.rows}
    of_asked = {frozenset((table.reference.variant, judged.row.variant)) for table in asked for judged in table.rows}
    return not of_asked <= pairs


def _power_table(table: PowerTable, tests: int, margin: float, difference: float | None) -> Table:
    replicates = f"{table.replicates} {table.replicates_are if table.replicates > 1 else table.replicates_are[:-1]}"
    looked_for = "as measured" if difference is None else "asked for"
    missing = ", ".join(row.label for row in table.not_compared)
    terminal = result_table(
        f"{table.model}, {table.limit}, {table.metric.title}: {replicates}",
        f"Not compared with {table.reference.label}: {missing}." if missing else "",
    )
    terminal.add_column(Text(printable(f"against {table.reference.label}")), overflow="fold")
    for head in (
        f"Ratio\n{looked_for}",
        f"SD of\n{table.replicates_are} (log)",
        "Power\nalone",
        f"Power\namong {tests}",
        f"{table.replicates_are.title()}\nalone",
        f"{table.replicates_are.title()}\namong {tests}",
        f"Prompts\nfor {margin:.0%}",
    ):
        terminal.add_column(head, justify="right")
    for pair in table.pairs:
        terminal.add_row(Text(printable(pair.row.label)), *_power_cells(pair))
    return terminal


def _power_cells(pair: PairPower) -> list[str]:
    cells = [number(pair.ratio), number(pair.deviation)]
    cells += [NOTHING if math.isnan(share) else f"{share:.2f}" for share in (pair.power_alone, pair.power)]
    is_known = pair.contrast.replicates > 1
    for needed in (pair.needed_alone, pair.needed):
        cells.append(_count(needed, f"> {MOST_REPLICATES:,}") if is_known else NOTHING)
    return [*cells, f"{_count(pair.items_needed, 'no number')} ({pair.items:,})"]


def _count(needed: int | None, otherwise: str) -> str:
    return otherwise if needed is None else f"{needed:,}"


def _seeds_missing(model: str, results: Results) -> str:
    points = [point for point in results.measured if point.spec.table_model == model]
    studies = [study for study in results.studies if study.spec.trial.table_model == model]
    more = _MORE_SEEDS * seconds_per_seed(points, studies)
    used = max(point.spec.seed for point in points)
    seeds = sorted({point.spec.seed for point in points} | {used + 1, used + _MORE_SEEDS})
    takes = f" take about {duration_text(more)} of work on such a machine" if more > 0 else ""
    return (
        f"{model} has one seed, so how far another training run would be from it is not known, and neither is how many "
        f"seeds would do. Two more{takes}: lethe sweep FILE --set "
        f"'seeds={seeds}'"
    )


def _why_nothing_is_compared(folder: Path, tables: list[PowerTable]) -> str:
    if not tables:
        return (
            f"{folder} compares no two methods at equal erasure: that takes a method measured at several strengths, or "
            "a tuned one, and a reference (compare.reference; default: the first row of the sweep file)."
        )
    missing = dict.fromkeys(row.label for table in tables for row in table.not_compared)
    return (
        f"in {folder} no method can be compared with {tables[0].reference.label}: {', '.join(missing)} and it do not "
        "reach a common erasure, or have no items in common. Measure more strengths, or name another pair with --pair."
    )


main = PowerCommand()
