"""What is left of memorised and of other sequences: hand-worked groups, and where there is nothing to tell."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from harness.analysis.tradeoff.curves import styles
from harness.reporting.figures.exact_match import agreement_figure

from harness.analysis.evidence import Evidence, read_evidence
from harness.analysis.exact_match import GROUPS, agreements
from harness.analysis.metrics import metric_info
from harness.analysis.ranking import rank
from harness.analysis.table import table
from harness.contracts import Metric
from harness.records.items import MetricItems
from harness.records.results import Results, trial_results
from harness.reporting.figures.style import rendered
from harness.reporting.sections.exact_match import agreement_rows
from harness.specs import Source

ABOUT = {"better": "lower", "unit": "tokens", "low": 0.0, "high": math.inf, "group": "erasure", "source": ""}
SHARE = Metric(**ABOUT | {"high": 1.0}, name="share", title="Share", items="sequence")
TEXT, AGREES = (
    Metric(**ABOUT, name=f"as_{other}", title=other, items="sequence", ranked=False, agrees_with=other)
    for other in ("text", "original")
)
# Continuations of four tokens: five are recited wholly, and the next to its last token.
WHOLE = [4.0] * 10
RECITED = [4, 4, 4, 4, 4, 3, 3, 2, 0, 0]
ERASED = {1: [2, 3, 2, 3, 2, 4, 4, 3, 4, 3], 2: [0, 1, 0, 1, 0, 4, 4, 2, 4, 1]}


@pytest.fixture
def measured(make_plan, make_row, make_point, make_measurement):
    """Return a maker of results and ranked table from (trial, {strength: agreement with the original, by sequence})."""

    def make(*trials, recited=RECITED, whole=WHOLE, metrics=(SHARE, TEXT, AGREES), with_items=True):
        records, items = {}, {}
        for spec, points in trials:
            of_model = recited[spec.model.id] if isinstance(recited, dict) else recited
            for strength, agreeing in points.items():
                is_original = spec.method == "original"
                texts = of_model if is_original else [0.0] * len(agreeing)
                values = {"share": [0.5] * len(agreeing), "as_text": texts, "as_original": agreeing}
                ids = tuple(f"{spec.forget.path or ''}{row}" for row in range(len(agreeing)))
                point_id = spec.point_id(strength)
                items[point_id] = {
                    metric.name: MetricItems(ids, ids, np.array(values[metric.name], float), np.ones(len(ids)))
                    for metric in metrics
                }
                numbers = {metric.name: float(np.mean(values[metric.name])) for metric in metrics}
                told = {"numbers": numbers, "metrics": tuple(map(asdict, metrics))}
                kept = records.setdefault(spec.trial_id, [])
                kept += [make_point(spec, strength), make_measurement(spec, strength, **told)]
        plan = make_plan(*(spec for spec, _ in trials), ranked_at={"ta": 0.2})
        of_trials = tuple(trial_results(spec, records.get(spec.trial_id, ())) for spec in plan.trials)
        results = Results(plan, of_trials, (), lambda measurement: items[measurement.point_id] if with_items else {})
        info, evidence = metric_info(results), read_evidence(results)
        return results, rank(table(results, info, evidence), info, evidence)

    return make


@pytest.fixture
def trial(make_row):
    def make(variant, strengths=(), **changes):
        return make_row(variant, strengths, evaluators={"memorization": "k"}, **changes)

    return make


@pytest.fixture
def usual(trial):
    return [(trial("original"), {None: WHOLE}), (trial("em", (1, 2)), ERASED)]


def left(found, variant="em"):
    [agreement] = found
    [curve] = [curve for curve in agreement.curves if curve.variant == variant]
    return {at.strength: tuple(at.by_group[group].tokens for group in GROUPS) for at in curve.points}


def test_recited_to_the_last_token_is_memorized_and_to_the_last_but_one_is_not(measured, usual):
    found = agreements(*measured(*usual))
    assert left(found) == {0: (4, 4), 1: (2.4, 3.6), 2: (0.4, 3.0)}
    memorized, other = (found[0].lengths[group] for group in GROUPS)
    assert (memorized.sequences, memorized.tokens, memorized.recited) == ((5, 5), 4, 4)
    assert (other.sequences, other.tokens, other.recited) == ((5, 5), 4, 1.6)
    start, *erased = found[0].curves[0].points
    assert all(math.isnan(each.low) for each in start.by_group.values()), "by definition, so without an interval"
    for at in erased:
        for each in at.by_group.values():
            assert 0 <= each.low < each.tokens < each.high <= 4


def test_lengths_and_counts_may_differ(measured, trial):
    whole = [2, 4, 6, 8, 10, 12, 3, 3, 3, 3, 3]
    recited = [2, 4, 6, 8, 10, 11, 2, 2, 0, 3, 0]
    erased = {1: [0, 0, 6, 4, 0, 12, 3, 3, 0, 0, 0]}
    found = agreements(
        *measured((trial("original"), {None: whole}), (trial("em", (1,)), erased), recited=recited, whole=whole)
    )
    memorized, other = (found[0].lengths[group] for group in GROUPS)
    assert (memorized.sequences, memorized.tokens, memorized.shortest, memorized.longest) == ((6, 6), 5.5, 2, 10)
    assert (other.sequences, other.tokens, other.shortest, other.longest) == ((5, 5), 4.8, 3, 12)
    assert left(found) == {0: (5.5, 4.8), 1: (10 / 6, 3.6)}


def test_seeds_are_averaged_where_all_of_them_arrived(measured, trial):
    seeds = [(trial("original"), {None: WHOLE}), (trial("em", (1, 2)), ERASED)]
    seeds += [(trial("em", (1, 2), seed=1), {1: [0] * 5 + [4] * 5})]
    assert left(agreements(*measured(*seeds))) == {0: (4, 4), 1: (1.2, 3.8)}


def test_unseen_texts_are_in_neither_group_and_the_retrained_model_is_beside_them(measured, usual, trial):
    unseen = (trial("holdout", forget=Source(source="miniature", path="unseen")), {None: [4.0] * 8})
    retrained = (trial("retrained"), {None: [1] * 5 + [2] * 5})
    [agreement] = agreements(*measured(*usual, unseen, retrained))
    assert left([agreement]) == left(agreements(*measured(*usual)))
    assert [agreement.retrained.by_group[group].tokens for group in GROUPS] == [1, 2]
    results, ranked = measured(*usual, retrained)
    of_point = dict(ranked.evidence.by_point)
    of_point.pop(retrained[0].point_id(None))
    [lacking] = agreements(results, replace(ranked, evidence=Evidence(of_point)))
    assert agreement_rows(lacking)[1] == ("Retrained", "", False, [("–", ""), ("–", "")]), "not known, and not 0"


def drawn(ax):
    """The curves of a panel, without single points and lines across it."""
    lines = ((tuple(map(float, line.get_xdata())), tuple(map(float, line.get_ydata()))) for line in ax.lines)
    return [line for line in lines if len(line[0]) == 3]


def test_the_figure_draws_the_numbers(measured, usual, trial):
    gamma = [
        (trial("ta", (strength,), trial_id=f"ta-{strength}"), {strength: [1] * 5 + [3] * 5}) for strength in (0.1, 0.2)
    ]
    gamma = [(replace(spec, strength_name="gamma"), points) for spec, points in gamma]
    results, ranked = measured(*usual, *gamma)
    figure = agreement_figure(agreements(results, ranked), styles(ranked.table))
    memorized, other, both = figure.axes
    assert [drawn(memorized), drawn(other)] == [[((0, 1, 2), (4, 2.4, 0.4))], [((0, 1, 2), (4, 3.6, 3.0))]]
    assert memorized.get_xlabel() == other.get_xlabel() == "epochs"
    last = drawn(both)
    assert last == [((4, 2.4, 0.4), (4, 3.6, 3.0)), ((4, 1, 1), (4, 3, 3))], "no trial walks through gamma"
    again = agreement_figure(agreements(results, ranked), styles(ranked.table))
    assert rendered(figure, "svg") == rendered(again, "svg")
    alone = measured(usual[0], *gamma)
    assert len(agreement_figure(agreements(*alone), styles(alone[1].table)).axes) == 1
