"""How much more of the erased texts an attack gets out of a model than out of one that never saw them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis.cells import NOTHING, Cell, interval_cell
from harness.analysis.evidence import REPLICATE, Evidence
from harness.analysis.grouping import LEVEL, Letters, significance_groups, split_rows
from harness.analysis.metrics import MetricInfo, mean_over
from harness.analysis.ranking import RankedTable
from harness.analysis.seeds import points_by_target, ranked_rows, strengths
from harness.contracts import Metric
from harness.specs import ORIGINAL, RETRAINED
from harness.statistics.contrasts import paired_contrast
from harness.statistics.significance import holm

ONE_RUN = "That is so of one training run: what another seed would give is not known."


@dataclass(frozen=True)
class Excess:
    """One metric of one row, against the retrained model under the same attack."""

    value: float
    """What was measured."""
    difference: float
    """Above 0 more is left than in the retrained model: of a metric that is better higher it is the retrained model's
    value less this one. NaN without a retrained model."""
    low: float
    """The ends of its 95 % interval, over items and training seeds."""
    high: float
    p: float
    """Of no difference, over the same items; NaN where that is not known."""

    def cell(self, letters: str = "") -> Cell:
        """Return it as printed: the difference with its sign.

        Example:
            >>> Excess(0.5, 0.125, 0.1, 0.15, 0.001).cell("a")
            Cell(text='+0.125', mark='', interval='+0.100 to +0.150', letters='a')
            >>> Excess(0.5, math.nan, math.nan, math.nan, math.nan).cell()
            Cell(text='–', mark='', interval='', letters='')
        """
        if math.isnan(self.difference):
            return Cell(NOTHING, "")
        ends = "" if math.isnan(self.low) else f"{_signed(self.low)} to {_signed(self.high)}"
        return Cell(_signed(self.difference), "", ends, letters)


@dataclass(frozen=True)
class AttackedRow:
    """One model under every attack: the original, or a method's point that is ranked or stands for a target."""

    variant: str
    label: str
    strength: str
    """`epochs 7`; '' for the original."""
    excesses: tuple[Excess, ...]
    """One for each metric of the table."""
    cells: tuple[Cell, ...]
    """The same as printed; without a retrained model what was measured."""
    collapsed: bool
    point_ids: tuple[str, ...]
    """Of each seed and replicate."""


@dataclass(frozen=True)
class AttackTable:
    """One model's rows under every attack; of a tuned sweep those that stand for one of its targets."""

    model: str
    target: str
    """`MA at most 0.75`; '' where nothing was tuned."""
    metrics: tuple[Metric, ...]
    """Those that declare an attack, in the order of the table's columns."""
    retrained: tuple[float, ...]
    """What each of them is of the retrained model; NaN without one."""
    has_retrained: bool
    rows: tuple[AttackedRow, ...]
    """The original first, then the methods as they rank."""
    sentences: tuple[str, ...]
    """What comes back, and of which method nothing does."""


def attack_tables(ranked: RankedTable) -> list[AttackTable]:
    """Return the table of every model that was attacked, in a tuned sweep one for each target, the first target first.

    None where no evaluator measured an attack.
    """
    metrics = attack_metrics(ranked.info)
    tables = []
    for model, rows in ranked.table.groupby("model", sort=False) if metrics else ():
        order = list(ranked.ranking.loc[ranked.ranking["model"] == model, "variant"])
        for target, points in (points_by_target(rows) or {"": ranked_rows(rows)}).items():
            by_variant = {str(name): seeds for name, seeds in points.groupby("variant", sort=False)}
            in_order = sorted(by_variant, key=lambda name: order.index(name) if name in order else len(order))
            by_variant = {name: by_variant[name] for name in in_order}
            text = target_text(target, ranked.info)
            tables.append(_attack_table(str(model), text, rows, by_variant, metrics, ranked))
    return tables


def target_text(target: str, info: MetricInfo) -> str:
    """Return a level of `until` in words.

    Example:
        >>> about = dict(better="lower", unit="", low=0.0, high=1.0, group="", source="", title="MA")
        >>> target_text("ma=retrained", {"ma": Metric(name="ma", **about)}), target_text("", {})
        ('MA retrained', '')
    """
    name, _, level = target.partition("=")
    return f"{info[name].title} {level}" if target else ""


def _attack_table(
    model: str,
    target: str,
    rows: pd.DataFrame,
    by_variant: Mapping[str, pd.DataFrame],
    metrics: Sequence[Metric],
    ranked: RankedTable,
) -> AttackTable:
    twins, originals = rows[rows["method"] == RETRAINED], rows[rows["method"] == ORIGINAL]
    letters = significance_groups(by_variant, metrics, ranked.evidence, ranked.aims)
    attacked = [_attacked_row(originals, twins, metrics, ranked.evidence, {})] if len(originals) else []
    for seeds in by_variant.values():
        attacked.append(_attacked_row(seeds, twins, metrics, ranked.evidence, letters))
    levels = tuple(mean_over(twins, metric) for metric in metrics)
    sentences = _what_comes_back(attacked, metrics)
    if sentences and max(map(len, by_variant.values())) == 1:
        sentences = (*sentences, ONE_RUN)
    return AttackTable(model, target, tuple(metrics), levels, len(twins) > 0, tuple(attacked), sentences)


def attack_metrics(info: MetricInfo) -> list[Metric]:
    """Return the metrics that the table of attacks has; none where nothing was attacked, but measured as it is."""
    declared = [metric for metric in info.values() if metric.attack]
    return declared if any(metric.group != "erasure" for metric in declared) else []


def excess_of(rows: pd.DataFrame, twins: pd.DataFrame, metric: Metric, evidence: Evidence) -> Excess:
    """Return how much more is left in one variant than in the retrained model, over the seeds that both have.

    Args:
        rows: Of the variant, one for each seed and replicate.
        twins: Of the retrained model, alike.
        metric: A plain mean over items.
        evidence: The items of both.
    """
    value, repeats = mean_over(rows, metric), [REPLICATE, "seed"]
    shared = rows[repeats].merge(twins[repeats]).sort_values(repeats)
    if not len(shared):
        return Excess(value, *[math.nan] * 4)
    own, twin = shared.merge(rows, how="left"), shared.merge(twins, how="left")
    sign = -1.0 if metric.better == "higher" else 1.0
    difference = sign * (mean_over(own, metric) - mean_over(twin, metric))
    values = evidence.of(pd.concat([own, twin]), metric)
    contrast = paired_contrast(*split_rows(values, len(shared))) if values is not None else None
    if contrast is None:
        return Excess(value, difference, math.nan, math.nan, math.nan)
    low, high = contrast.interval()
    return Excess(value, difference, *((low, high) if sign > 0 else (-high, -low)), contrast.p)


def _attacked_row(
    rows: pd.DataFrame, twins: pd.DataFrame, metrics: Sequence[Metric], evidence: Evidence, letters: Letters
) -> AttackedRow:
    first = rows.iloc[0]
    variant, excesses, cells = str(first["variant"]), [], []
    for metric in metrics:
        excess = excess_of(rows, twins, metric, evidence)
        excesses.append(excess)
        of_metric = letters.get((variant, metric.name), "")
        if len(twins):
            cells.append(excess.cell(of_metric))
        else:
            cells.append(interval_cell(excess.value, *evidence.interval(rows, metric), metric, of_metric))
    return AttackedRow(
        variant=variant,
        label=str(first["label"]),
        strength=f"{first['strength_name']} {strengths(list(rows['strength']))}".strip(),
        excesses=tuple(excesses),
        cells=tuple(cells),
        collapsed=bool(rows["collapsed"].eq(True).any()),
        point_ids=tuple(rows["point_id"]),
    )


def _what_comes_back(rows: Sequence[AttackedRow], metrics: Sequence[Metric]) -> tuple[str, ...]:
    """Return which methods' texts come back beyond chance (Holm over the model's tests), and of which none is seen to.

    Only attacks that make a model recite count, metrics that are better lower: a trace, such as membership, is no text.
    """
    tests: dict[tuple[str, str], Excess] = {}
    labels: dict[str, str] = {}
    for row in rows:
        for metric, excess in zip(metrics, row.excesses, strict=True):
            recites = metric.better == "lower" and metric.group != "erasure"
            if recites and row.strength and not row.collapsed:
                tests[row.variant, metric.attack.lower()] = excess
                labels[row.variant] = row.label
    back: dict[str, list[str]] = {variant: [] for variant in labels}
    unknown: set[str] = set()
    corrected = holm([excess.p for excess in tests.values()])
    for ((variant, attack), excess), p in zip(tests.items(), corrected, strict=True):
        if math.isnan(p):
            unknown.add(variant)
        elif p < LEVEL and excess.difference > 0:
            back[variant].append(attack)
    said, quiet = [], []
    for variant, attacks in back.items():
        if attacks:
            said.append(f"{labels[variant]}: more comes back than from the retrained model ({', '.join(attacks)}).")
        elif variant not in unknown:
            quiet.append(labels[variant])
    if quiet:
        said.append(f"Of {', '.join(quiet)} none of these attacks is found to bring back more; that proves nothing.")
    return tuple(said)


def attack_frame(tables: Sequence[AttackTable]) -> pd.DataFrame:
    """Return attacks.csv: a row for each model, row and attack."""
    records: list[Mapping[str, object]] = []
    for table in tables:
        for row in table.rows:
            for metric, level, excess, cell in zip(
                table.metrics, table.retrained, row.excesses, row.cells, strict=True
            ):
                records.append(
                    {
                        "model": table.model,
                        "target": table.target,
                        "variant": row.variant,
                        "strength": row.strength,
                        "attack": metric.attack,
                        "metric": metric.name,
                        "value": excess.value,
                        "retrained": level,
                        "excess": excess.difference,
                        "excess_low": excess.low,
                        "excess_high": excess.high,
                        "letters": cell.letters,
                        "collapsed": row.collapsed,
                    }
                )
    return pd.DataFrame(records)


def _signed(number: float) -> str:
    text = f"{number:+.3f}".replace("-", "−")
    return text if float(text[1:]) else text[1:]  # What rounds to 0 has no sign.
