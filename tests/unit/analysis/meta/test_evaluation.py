"""The meta-evaluation of a sweep whose models and metrics are made up, so that each number is known."""

import math
from dataclasses import replace

import numpy as np
import pytest

from harness.analysis.meta.evaluation import erased_points, meta_evaluation
from harness.analysis.meta.pools import best_threshold, faithfulness, judged_metrics, knowledge, pools
from harness.analysis.meta.robustness import point_stabilities, robustness
from harness.analysis.metrics import metric_info
from harness.contracts import Checkpoint, CloserTo, Metric
from harness.errors import DataError
from harness.records.items import MetricItems
from harness.records.record import Measurement
from harness.records.results import PointResults, Results, TrialResults

ABOUT = {"unit": "", "low": 0.0, "high": 1.0, "group": "erasure", "source": "", "items": "sequence"}
TELLS = Metric(name="tells", title="Tells", better="lower", **ABOUT)
GONE = Metric(name="gone", title="Gone", better="higher", **ABOUT)
NOISE = Metric(name="noise", title="Noise", better="lower", **ABOUT)
BLIND = Metric(name="blind", title="Blind", better=CloserTo(0.5), **ABOUT)
COST = Metric(name="cost", title="Cost", better="lower", **ABOUT | {"group": "generation", "high": math.inf})
METRICS = (TELLS, GONE, NOISE, BLIND, COST)
TEXTS = 8


@pytest.fixture
def made_up(make_row, make_plan):
    """Return a maker of results: by the row, what each of its models has of every metric."""

    def make(models=5, *, noise=lambda: 0.5, rows=("original", "retrained", "erased"), costs=2.0):
        generator = np.random.default_rng(0)
        levels = {"original": 0.9, "retrained": 0.3, "erased": 0.4}
        trials, items = [], {}
        for number in range(models):
            checkpoint = Checkpoint(f"m{number}", f"/m{number}", "/m", f"{number}" * 16)
            for name in rows:
                strengths = (1,) if name == "erased" else ()
                spec = make_row(name, strengths, evaluators={"all": "k"}, model=checkpoint)
                spec = replace(spec, trial_id=f"{name}-{number}")
                level = levels[name] + 0.01 * number
                numbers = {"tells": level, "gone": 1.0 - level, "noise": noise(), "blind": 0.5, "cost": costs}
                strength = 1 if strengths else None
                measurement = Measurement(
                    trial_id=spec.trial_id, point_id=spec.point_id(strength), strength=strength, evaluator="all",
                    key="k", definition="exact", numbers=numbers, samples=(), notes={}, seconds=1.0,
                    metrics=tuple(metric.__dict__ for metric in METRICS),
                )  # fmt: skip
                ids = tuple(map(str, range(TEXTS)))
                by_metric = {}
                for metric in METRICS:
                    values = numbers[metric.name] + generator.normal(0, 0.01, TEXTS)
                    by_metric[metric.name] = MetricItems(ids, ids, values, np.ones(TEXTS))
                items[measurement.point_id] = by_metric
                point = PointResults(spec, strength, None, (measurement,), "")
                trials.append(TrialResults(spec, (point,), (), "done", None, None, is_begun=True))
        plan = make_plan(*(trial.spec for trial in trials))
        plan = replace(plan, compare=replace(plan.compare, utility=("cost",)))
        return Results(plan, tuple(trials), items_of=lambda measurement: items[measurement.point_id])

    return make


def disturbed(results, relearned, retrained_relearned, rounded):
    """What each model has of `tells` once disturbed."""
    numbers = {}
    for point in results.measured:
        after = retrained_relearned if point.spec.method == "retrained" else relearned
        numbers[point.spec.point_id(point.strength)] = {"relearned": {"tells": after}, "rounded": {"tells": rounded}}
    return numbers


def test_a_metric_that_tells_models_apart_stands_above_noise_and_has_an_interval_all_the_same(made_up):
    generator = np.random.default_rng(1)
    results = made_up(noise=lambda: float(generator.uniform()))
    found = meta_evaluation(results, disturbed(results, 0.6, 0.4, 0.42))
    rows = {row.metric.name: row for row in found.rows}
    assert set(rows) == {"tells", "gone", "noise"}, "what the texts alone say, and a utility, are not judged"
    for name in ("tells", "gone"):
        assert rows[name].faithfulness.models.value == rows[name].faithfulness.texts.value == 1.0
        assert rows[name].faithfulness.models.low < 0.7
    assert 0.0 < rows["noise"].faithfulness.models.value < 1.0
    assert found.rows[0].metric.name == "tells", "only its robustness is known, so it comes first"
    assert math.isnan(rows["gone"].overall)


def test_r_and_q_are_worked_by_hand(made_up):
    """Two models: erased ones at .40 and .41, retrained ones at .30 and .31; relearned .60 and .40, rounded .42."""
    results = made_up(models=2)
    [row] = meta_evaluation(results, disturbed(results, 0.6, 0.4, 0.42), ["tells"]).rows
    rises, of_twins = (0.2, 0.19), (0.1, 0.09)
    stable = [1 - (rise - twin) / (rise + twin) for rise, twin in zip(rises, of_twins, strict=True)]
    assert row.robustness.relearning.value == pytest.approx(np.mean(stable))
    kept = [1 - 0.02 / 0.82, 1 - 0.01 / 0.83]
    assert row.robustness.rounding.value == pytest.approx(np.mean(kept))
    relearning, rounding = np.mean(stable), np.mean(kept)
    assert row.robustness.both.value == pytest.approx(2 * relearning * rounding / (relearning + rounding))
    assert row.overall == pytest.approx(2 / (1 / 1.0 + 1 / row.robustness.both.value))
    reach = 12.7062 * np.std(kept, ddof=1) / math.sqrt(2)
    assert row.robustness.rounding.low == pytest.approx(np.mean(kept) - reach, rel=1e-4)
    assert row.one_sided.relearning.value == pytest.approx(np.mean([0.5, 0.09 / 0.19]))
    assert (row.robustness.relearned_points, row.robustness.rounded_points) == (2, 2)


def test_points_that_cost_too_much_or_are_not_erased_do_not_count(made_up):
    results = made_up()
    points = [point for point in results.measured if point.spec.method == "erased"]
    [row] = meta_evaluation(results, disturbed(results, 0.6, 0.4, 0.42), ["tells"]).rows
    assert row.robustness.rounded_points == len(points) == 5
    trials = []
    for trial in results.trials:
        [point] = trial.points
        [measured] = point.measurements
        numbers = dict(measured.numbers)
        if trial.spec.trial_id == "erased-0":
            numbers["cost"] = 2.0 / 0.79
        elif trial.spec.trial_id == "erased-1":
            numbers["tells"] = 0.8
        changed = replace(point, measurements=(replace(measured, numbers=numbers),))
        trials.append(replace(trial, points=(changed,)))
    fewer = replace(results, trials=tuple(trials))
    [row] = meta_evaluation(fewer, disturbed(fewer, 0.6, 0.4, 0.42), ["tells"]).rows
    assert row.robustness.rounded_points == 3
    assert row.of_all_points.rounded_points == 5


def test_a_metric_that_nothing_moves_is_said_to_show_nothing_and_has_no_interval(made_up):
    results = made_up()
    unmoved = disturbed(results, 0.6, 0.4, 0.42)
    for point in results.measured:
        for kind in ("relearned", "rounded"):
            unmoved[point.spec.point_id(point.strength)][kind] = dict(point.measurements[0].numbers)
    [row] = meta_evaluation(results, unmoved, ["tells"]).rows
    assert (row.robustness.relearning.value, row.robustness.rounding.value) == (1.0, 1.0)
    assert math.isnan(row.robustness.relearning.low)
    assert row.robustness.unmoved_points == 5
    [row] = meta_evaluation(results, disturbed(results, 0.6, 0.4, 0.42), ["tells"]).rows
    assert row.robustness.unmoved_points == 0


@pytest.mark.parametrize(("share", "counted"), [(0.9, 5), (0.5, 0)])
def test_a_utility_that_is_better_higher_is_a_share_of_the_originals(made_up, share, counted):
    results = made_up()
    for trial in results.trials:
        for point in trial.points:
            point.measurements[0].numbers["kept"] = 0.9 * (share if trial.spec.method == "erased" else 1.0)
    kept = Metric(name="kept", title="Kept", better="higher", **ABOUT | {"group": "generation"})
    stabilities = point_stabilities(
        TELLS, erased_points(results), pools(results), disturbed(results, 0.6, 0.4, 0.42), 0.6, kept
    )
    assert sum(point.is_useful for point in stabilities) == counted
    assert len(stabilities) == 5


def test_what_was_not_measured_once_disturbed_is_not_known_and_no_zero(made_up):
    results = made_up()
    [row] = meta_evaluation(results, {}, ["tells"]).rows
    assert row.robustness.relearned_points == 0
    assert math.isnan(row.robustness.both.value)
    assert math.isnan(row.overall)
    assert math.isnan(robustness([]).both.value)


def test_shuffled_labels_give_a_half(made_up):
    """The same models, called memorised or retrained at random: a metric that tells them apart no longer does."""
    generator, values, texts, held = np.random.default_rng(2), [], [], 0
    results = made_up()
    both, metric = pools(results), metric_info(results)["tells"]
    assert faithfulness(metric, both, results).models.value == 1.0
    everyone = [*both.originals, *both.retrained]
    for _ in range(200):
        order = generator.permutation(len(everyone))
        mixed = [everyone[number] for number in order]
        shuffled = replace(both, originals=tuple(mixed[:5]), retrained=tuple(mixed[5:]))
        found = faithfulness(metric, shuffled, results)
        values.append(found.models.value)
        texts.append(found.texts.value)
        held += found.models.low <= 0.5 <= found.models.high
    assert np.mean(values) == pytest.approx(0.5, abs=0.05)
    assert np.mean(texts) == pytest.approx(0.5, abs=0.05)
    assert held / 200 == pytest.approx(0.95, abs=0.04)


def test_a_metric_that_compares_with_the_models_themselves_has_no_auc(made_up):
    results = made_up()
    metric = replace(metric_info(results)["tells"], agrees_with="original")
    found = faithfulness(metric, pools(results), results)
    assert math.isnan(found.models.value)
    assert found.threshold == pytest.approx((0.9 + 0.34) / 2), "though it says from where on it calls a model erased"


def test_the_threshold_puts_most_models_on_the_right_side():
    assert best_threshold([5.0, 2.0], [1.0, 3.0]) == 1.5
    assert math.isnan(best_threshold([1.0], [1.0]))


def test_knowledge_is_higher_the_more_is_known():
    unbounded = replace(GONE, high=math.inf)
    assert [knowledge(metric, 0.25) for metric in (TELLS, GONE, unbounded)] == [0.25, 0.75, -0.25]


def test_a_sweep_without_two_models_of_a_kind_is_refused_in_a_sentence(made_up):
    with pytest.raises(DataError, match=r"measured no retrained model.*retrained: FOLDER"):
        pools(made_up(rows=("original", "erased")))
    with pytest.raises(DataError, match=r"has 1 model with its retrained twin.*at least 2 of each kind"):
        pools(made_up(models=1))
    with pytest.raises(DataError, match=r"'tell'.*tells"):
        judged_metrics(metric_info(made_up()), ["tell"])
