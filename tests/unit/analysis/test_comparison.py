"""The matched comparison and survivors: hand-worked trajectories, and what must never be said."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from evaluators.generation import Generation
from harness.analysis.evidence import Evidence, read_evidence
from harness.analysis.matched.comparison import matched_tables
from harness.analysis.matched.matching import Mixture, mix
from harness.analysis.matched.price_curves import price_curves
from harness.analysis.matched.verdicts import reference_variant, verdict_clause, verdict_tables
from harness.analysis.metrics import metric_info
from harness.analysis.ranking import rank
from harness.analysis.table import table
from harness.analysis.curves import styles
from harness.contracts import CloserTo, Metric
from harness.plans import Compare, StudySpec, Target
from harness.records.items import MetricItems, aggregated
from harness.records.journal import Journal
from harness.records.record import Candidate, Measurement, Point
from harness.records.results import read_results
from harness.reporting.figures.answer.matched import matched_figure
from harness.search_space import LogUniform
from harness.specs import Source
from harness.statistics.bootstrap import cluster_draws
from harness.statistics.item_values import estimate


def mixture_of(rows, weights):
    return Mixture(rows, weights, original={}, is_at_limit=True)


ITEMS = 64
METRICS = {
    "ma": {"group": "erasure", "high": 1.0, "title": "MA", "items": "sequence", "better": "lower"},
    "perplexity": {"group": "generation", "high": math.inf, "title": "Perplexity", "better": "lower"}
    | {"items": "prompt", "aggregate": "exp_mean", "weights": "tokens", "collapse": "perplexity"},
    "mauve": {"group": "generation", "high": 1.0, "title": "MAUVE", "better": "higher", "collapse": "mauve"},
}
DECLARED = [Metric(name=name, unit="", low=0.0, source="", **about) for name, about in METRICS.items()]


def items_of(numbers, spread, seed):
    """Items whose aggregates are the numbers: the same noise for every method, so that differences are exact."""
    noise = np.random.default_rng(seed).standard_normal(ITEMS)
    noise = spread * (noise - noise.mean())
    ids = tuple(f"i{row}" for row in range(ITEMS))
    log = math.log(numbers["perplexity"]) if numbers["perplexity"] < math.inf else 800.0
    values = {"ma": numbers["ma"] + 0.2 * noise, "perplexity": log + noise}
    return {name: MetricItems(ids, ids, of_items, np.ones(ITEMS)) for name, of_items in values.items()}


@pytest.fixture
def measured(tmp_path, make_plan):
    """Return a maker of a sweep's results and ranked table, from (trial, {strength: (MA, perplexity, MAUVE)})."""

    journal = Journal(tmp_path / "journal")

    def make(*trials, spread=0.1, with_items=True, declared=DECLARED, independent=False, **changes):
        for number, (spec, points) in enumerate(trials):
            for strength, values in points.items():
                about = {"trial_id": spec.trial_id, "point_id": spec.point_id(strength), "strength": strength}
                journal.append(Point(**about, erase_seconds=1.0, peak_memory_bytes=1, notes={}))
                numbers = dict(zip(METRICS, values, strict=True))
                metrics = tuple(asdict(metric) for metric in declared)
                measurement = Measurement(
                    **about, evaluator="generation", key="generation-key", definition="exact", numbers=numbers,
                    metrics=metrics, samples=(), notes={}, seconds=1.0,
                )  # fmt: skip
                noisy = items_of(numbers, spread, seed=number if independent else 0)
                journal.append_measurement(measurement, noisy if with_items else {})
        compare = Compare(utility=("perplexity",), erasure=("ma",))
        plan = make_plan(*(spec for spec, _ in trials), **{"compare": compare} | changes)
        results = read_results(plan, journal)
        info, evidence = metric_info(results), read_evidence(results)
        return results, rank(table(results, info, evidence), info, evidence)

    make.journal = journal
    return make


@pytest.fixture
def compared(measured):
    return lambda *trials, **options: matched_tables(*measured(*trials, **options))


@pytest.fixture
def trial(make_row):
    def make(variant, strengths=(), **changes):
        keys = {"generation": "generation-key"}
        if "targets" in changes:
            changes = {"chosen": changes["targets"], **changes}
        return make_row(variant, strengths, evaluators=keys, **changes)

    return make


def by_text(tables):
    return {one.limit.text: {row.variant: row for row in one.rows} for one in tables}


ORIGINAL = {None: (1.0, 4.0, 0.9)}
RETRAINED = {None: (0.4, 3.0, 0.95)}
STRONG = {1: (0.8, 8.0, 0.8), 2: (0.5, 16.0, 0.5)}
WEAK = {1: (0.95, 5.0, 0.8), 2: (0.85, 6.0, 0.7)}


def test_utility_at_equal_erasure_lies_between_neighbours(compared, trial):
    tables = compared(
        (trial("original"), ORIGINAL), (trial("retrained"), RETRAINED),
        (trial("emso", (1, 2)), STRONG), (trial("ga", (1, 2)), WEAK),
    )  # fmt: skip
    rows = by_text(tables)
    assert list(rows) == [
        "MA at most 0.9",
        "MA at most 0.75",
        "MA at most the retrained model's (0.400)",
        "Perplexity at most 1.1 × the original's (4.40)",
        "Perplexity at most 1.25 × the original's (5.00)",
        "Perplexity at most 1.5 × the original's (6.00)",
    ]
    # emso passes 0.9 halfway between the original and epoch 1; of a perplexity the logarithms are mixed
    emso, ga = rows["MA at most 0.9"]["emso"], rows["MA at most 0.9"]["ga"]
    assert (emso.how, emso.setting) == ("interpolated", "epochs 0 to 1")
    assert emso.numbers[0][0] == pytest.approx(0.9)
    assert emso.numbers[1][0] == pytest.approx(math.sqrt(4.0 * 8.0))
    assert (ga.setting, ga.numbers[1][0]) == ("epochs 1 to 2", pytest.approx(math.sqrt(5.0 * 6.0)))
    # 0.75 is a sixth of the way from 0.8 to 0.5; ga never gets there, and nothing is extrapolated
    emso, ga = rows["MA at most 0.75"]["emso"], rows["MA at most 0.75"]["ga"]
    assert emso.numbers[1][0] == pytest.approx(8.0 * 2 ** (1 / 6))
    assert (ga.how, ga.note, ga.cells, ga.numbers) == ("not reached", "best MA 0.850", (), ())
    assert [row.how for row in rows["MA at most the retrained model's (0.400)"].values()] == ["not reached"] * 2
    # who pays least comes first
    assert list(rows["MA at most 0.9"]) == ["ga", "emso"]


def test_erasure_at_equal_utility(compared, trial):
    rows = by_text(
        compared((trial("original"), ORIGINAL), (trial("emso", (1, 2)), STRONG), (trial("ga", (1, 2)), WEAK))
    )
    at_most_5 = rows["Perplexity at most 1.25 × the original's (5.00)"]
    # emso reaches 5 at log2(5 / 4) of the way from 4 to 8; ga's first epoch costs exactly that
    assert at_most_5["emso"].numbers[0][0] == pytest.approx(5.0)
    assert at_most_5["emso"].numbers[1][0] == pytest.approx(1 - 0.2 * math.log2(5 / 4))
    assert (at_most_5["ga"].how, at_most_5["ga"].numbers[1][0]) == ("measured", pytest.approx(0.95))
    # a limit that a method never passes: the most that it erased
    at_most_6 = rows["Perplexity at most 1.5 × the original's (6.00)"]
    assert (at_most_6["ga"].how, at_most_6["ga"].setting) == ("measured", "epochs 2")
    assert "MA at most the retrained model's" not in " ".join(rows)  # there is none


def test_nothing_is_matched_where_every_method_has_one_point(compared, trial):
    assert compared((trial("original"), ORIGINAL), (trial("emso", (1,)), {1: (0.8, 8.0, 0.8)})) == []


def test_only_neighbours_of_one_trajectory_are_mixed(compared, trial):
    # Two settings of one method: neither passes 0.9 by itself, and between the two nothing was measured.
    other = trial("emso", (1, 2), settings={"k": 4}, trial_id="emso-k4")
    near, far = {1: (0.95, 5.0, 0.8), 2: (0.93, 5.5, 0.8)}, {1: (0.99, 20.0, 0.4), 2: (0.98, 30.0, 0.3)}
    points = (trial("original"), ORIGINAL), (trial("emso", (1, 2)), near), (other, far)
    rows = by_text(compared(*points, ranked_at={"emso": 7}))
    assert rows["MA at most 0.9"]["emso"].how == "not reached"
    assert rows["MA at most 0.9"]["emso"].note == "best MA 0.930"


def test_letters_part_what_differs_and_join_what_does_not(compared, trial):
    same = {1: (0.8, 8.01, 0.8), 2: (0.5, 16.0, 0.5)}
    trials = []
    for seed in (0, 1):
        trials.append((trial("original", seed=seed), ORIGINAL))
        for variant, points in (("emso", STRONG), ("twin", STRONG), ("other", same), ("ga", WEAK)):
            trials.append((trial(variant, (1, 2), seed=seed), points))
    rows = by_text(compared(*trials, independent=True, spread=0.5))["MA at most 0.9"]
    letters = {variant: row.cells[0].letters for variant, row in rows.items()}
    assert letters["emso"] == letters["twin"] == letters["other"]
    paired = by_text(compared(*trials, spread=0.1))["MA at most 0.9"]
    letters = {variant: row.cells[0].letters for variant, row in paired.items()}
    assert not set(letters["ga"]) & set(letters["emso"])  # the same noise in all: the difference is what is left
    assert letters["emso"] == letters["twin"] != letters["other"]


@pytest.fixture
def study(trial, measured):
    """Return a maker of a variant's study, whose one candidate's probes saw the given MA at each epoch."""

    def make(variant, seen, seeds=(0,), space=None, perplexity=5.0, per="model"):
        targets = (Target(metric="ma", at_most=0.9), Target(metric="ma", at_most=0.6))
        spec = StudySpec(
            study_id=f"study-{variant}-{seeds}", trial=replace(trial(variant), strength_name="epochs"), seeds=seeds,
            per=per, space=space or {}, defaults={}, is_cumulative=True, is_trained=True, search="random", trials=1,
            targets=targets, utility="perplexity", utility_bounds=(0.5, 5), selection=Source(source="miniature"),
            retrained=None,
        )  # fmt: skip
        probes = [
            {"strength": epoch, "ma": ma, "perplexity": perplexity, "optimiser_steps": 8 * epoch}
            for epoch, ma in enumerate(seen, start=1)
        ]
        candidate = Candidate(
            trial_id=spec.study_id, number=0, settings={}, probes=tuple(probes), end="whole", seconds=1.0,
            targets={"ma <= 0.9": 0.9, "ma <= 0.6": 0.6}, original={"ma": 1.0, "perplexity": 4.0},
        )  # fmt: skip
        measured.journal.append(candidate)
        return spec

    return make


def test_a_tuned_sweep_compares_the_points_that_were_chosen(compared, trial, study):
    chosen = trial("emso", (1, 2), targets={"ma <= 0.9": 1, "ma <= 0.6": 2}, searched={"training.learning_rate": 1e-5})
    unlucky = trial("ga", (1,), targets={"ma <= 0.9": 1})
    studies = study("emso", [0.8, 0.5]), study("ga", [0.9, 0.85]), study("weak", [0.99, 0.97])
    points = (trial("original"), ORIGINAL), (chosen, STRONG), (unlucky, {1: (0.91, 5.0, 0.8)})
    rows = by_text(compared(*points, studies=studies))
    assert list(rows) == ["MA at most 0.9", "MA at most 0.6"]
    emso, ga, weak = (rows["MA at most 0.9"][name] for name in ("emso", "ga", "weak"))
    assert (emso.how, emso.note, emso.setting) == (
        "not reached", "nearest MA 0.800", "epochs 1, learning rate 1e-05"
    )  # fmt: skip
    assert (emso.numbers[1][0], emso.budget) == (pytest.approx(8), "1 candidates, 16 steps")
    # chosen on the selection half; what the other half says is what is reported
    assert (ga.how, ga.matched.text) == ("measured", "0.910")
    # a method of which nothing was chosen has its row all the same
    assert (weak.how, weak.note) == ("not reached", "best MA 0.970 of the selection texts")
    assert rows["MA at most 0.6"]["ga"].note == "best MA 0.850 of the selection texts"


EPOCHS = {"epochs": LogUniform(low=1, high=7)}


def test_what_tuning_chose_is_moved_to_where_its_own_trajectory_meets_the_target(compared, trial, study):
    """MA .92 at epoch 2, .89 at 3: nearest to .9 is 3, which lies a third after it."""
    about = {"targets": {"ma <= 0.9": 3, "ma <= 0.6": 5}}
    points = {2: (0.92, 5.0, 0.8), 3: (0.89, 6.0, 0.8), 4: (0.7, 9.0, 0.8), 5: (0.59, 12.0, 0.8), 6: (0.5, 20.0, 0.8)}
    chosen = trial("emso", tuple(points), **about)
    studies = [study("emso", [0.97, 0.95, 0.85, 0.7, 0.55], space=EPOCHS)]
    rows = by_text(compared((trial("original"), ORIGINAL), (chosen, points), studies=studies))
    at_90, at_60 = rows["MA at most 0.9"]["emso"], rows["MA at most 0.6"]["emso"]
    assert (at_90.how, at_90.setting, at_90.is_at_limit) == ("interpolated", "epochs 2 to 3", True)
    assert at_90.numbers[0][0] == pytest.approx(0.9)
    assert at_90.numbers[1][0] == pytest.approx(5.0 * (6 / 5) ** (2 / 3))
    assert at_60.numbers[1][0] == pytest.approx(9.0 * (12 / 9) ** (10 / 11))
    assert at_90.prices["perplexity"].number() == pytest.approx(5.0 * (6 / 5) ** (2 / 3) / 4)
    assert at_90.reach > 0.5  # The chosen epoch itself is below the target.


def test_el_is_crossed_on_the_scale_on_which_it_falls(compared, trial):
    """From .4 to .1 the level .2 is halfway by factors, and two thirds of the way by differences."""
    points = {1: (0.4, 5.0, 0.8), 2: (0.1, 20.0, 0.8)}
    trials = (trial("original"), {None: (0.8, 4.0, 0.9)}), (trial("retrained"), {None: (0.2, 4.0, 0.9)})
    expected = {True: math.sqrt(100.0), False: 5.0 * 4 ** (2 / 3)}
    for is_log, price in expected.items():
        declared = [replace(one, log_scale=is_log) if one.name == "ma" else one for one in DECLARED]
        specs = [(trial("emso", (1, 2), trial_id=f"emso-{is_log}"), points)]
        rows = by_text(compared(*trials, *specs, declared=declared, with_items=False))
        emso = rows["MA at most the retrained model's (0.200)"]["emso"]
        assert (emso.numbers[0][0], emso.numbers[1][0]) == (pytest.approx(0.2), pytest.approx(price))
        with_items = by_text(compared(*trials, *specs, declared=declared))
        level, low, high = with_items["MA at most the retrained model's (0.200)"]["emso"].numbers[0]
        assert low < level < high


def seeded(trial, rows, seeds=(0, 1, 2), noise=0.0):
    """Trials of several training seeds, each row's perplexities moved by a noise of its own in each seed."""
    generator, trials = np.random.default_rng(5), []
    for seed in seeds:
        trials += [(trial("original", seed=seed), ORIGINAL), (trial("retrained", seed=seed), RETRAINED)]
        for variant, points in rows.items():
            moved = math.exp(noise * generator.standard_normal())
            of_seed = {strength: (ma, moved * cost, mauve) for strength, (ma, cost, mauve) in points.items()}
            trials.append((trial(variant, (1, 2), seed=seed), of_seed))
    return trials


CLOSE = {1: (0.8, 8.1, 0.8), 2: (0.5, 16.2, 0.5)}


def judged(tables, reference=None, margin=0.1, first="emso"):
    return {table.matched.limit.text: table for table in verdict_tables(tables, reference or first, margin)}


def test_verdicts_are_against_the_reference_and_equal_prices_are_equivalent(compared, trial):
    rows = {"emso": STRONG, "close": CLOSE, "ga": WEAK}
    at_90 = judged(compared(*seeded(trial, rows)))["MA at most 0.9"]
    assert at_90.reference.variant == "emso"
    assert {one.row.variant: one.verdict for one in at_90.rows} == {"close": "equivalent", "ga": "equivalent"}
    ratios = {one.row.variant: one.ratio for one in at_90.rows}
    assert ratios["ga"][0] == pytest.approx(math.sqrt(30 / 32))
    narrow = judged(compared(*seeded(trial, rows)), margin=0.01)["MA at most 0.9"]
    assert {one.row.variant: one.verdict for one in narrow.rows} == {"close": "equivalent", "ga": "better"}
    turned = judged(compared(*seeded(trial, rows)), reference="ga", margin=0.01)["MA at most 0.9"]
    assert {one.row.variant: one.verdict for one in turned.rows} == {"close": "worse", "emso": "worse"}
    assert verdict_clause(turned, 0.01) == ", Perplexity: pays more than GA: EMSO, CLOSE"


def test_the_reference_is_the_first_of_its_row_in_the_file_whatever_it_costs(make_plan, trial):
    specs = [trial(name, (1, 2)) for name in ("original", "shrink", "emso(k=8)", "emso(k=2)", "ga")]
    plan = make_plan(*specs, controls=("shrink",))
    named = {row: reference_variant(plan, row) for row in (None, "emso", "emso(k=2)", "ga", "shrink")}
    assert named == {None: "emso(k=8)", "emso": "emso(k=8)", "emso(k=2)": "emso(k=2)", "ga": "ga", "shrink": "shrink"}


def test_the_price_at_every_level_is_that_between_its_neighbours(measured, trial):
    """Perplexity doubles from MA 1 to .8, and again to .5, where it ends; the retrained model's level is .4."""
    trials = (trial("original"), ORIGINAL), (trial("retrained"), RETRAINED), (trial("emso", (1, 2)), STRONG)
    results, ranked = measured(*trials)
    [curve] = price_curves(results, ranked, matched_tables(results, ranked))
    assert (curve.variant, curve.is_whole, len(curve.points)) == ("emso", True, 6)  # .4 and .475 are not reached.
    for point in curve.points:
        doublings = (1 - point.level) / 0.2 if point.level >= 0.8 else 1 + (0.8 - point.level) / 0.3
        assert point.ratio == pytest.approx(2**doublings)
        assert point.low < point.ratio < point.high
    close = {
        name: replace(metric, better=CloserTo(0.4)) if name == "ma" else metric for name, metric in ranked.info.items()
    }
    assert price_curves(results, replace(ranked, info=close), matched_tables(results, ranked)) == []


def test_seeds_that_differ_leave_a_difference_undecided(compared, trial):
    twice = {"emso": STRONG, "dear": {1: (0.8, 16.0, 0.8), 2: (0.5, 32.0, 0.5)}}
    sure, unsure = (judged(compared(*seeded(trial, twice, noise=noise)))["MA at most 0.75"] for noise in (0.01, 0.6))
    assert [one.verdict for one in sure.rows] == ["worse"]
    assert [one.verdict for one in unsure.rows] == ["undecided"]


def test_what_does_not_get_there_is_compared_with_nothing(compared, trial):
    tables = compared(*seeded(trial, {"emso": STRONG, "ga": WEAK}))
    at_75 = judged(tables)["MA at most 0.75"]
    assert [(one.row.how, one.verdict) for one in at_75.rows] == [("not reached", None)]
    assert verdict_clause(at_75, 0.1) == ", Perplexity: not compared there: GA (best MA 0.850)"
    lost = judged(tables, reference="ga")["MA at most 0.75"]
    assert "GA, the reference, not reached" in verdict_clause(lost, 0.1)
    assert all(one.contrast is None for one in lost.rows)


def closer(aim, name="ma"):
    return [replace(metric, better=CloserTo(aim)) if metric.name == name else metric for metric in DECLARED]


STEPS = {1: (0.7, 6.0, 0.8), 2: (0.55, 8.0, 0.7)}
LEAP = {1: (0.1, 9.0, 0.5), 2: (0.05, 12.0, 0.4)}


def test_utility_where_an_erasure_comes_close_enough_from_the_originals_side(compared, trial):
    rows = by_text(
        compared(
            (trial("original"), {None: (0.9, 4.0, 0.9)}), (trial("retrained"), {None: (0.52, 3.0, 0.95)}),
            (trial("emso", (1, 2)), STEPS), (trial("ga", (1, 2)), LEAP), declared=closer(0.5),
        )
    )  # fmt: skip
    of_erasure = [text for text in rows if text.startswith("MA")]
    assert of_erasure == [
        "MA within 0.360 of 0.5",
        "MA within 0.300 of 0.5",
        "MA within 0.020 of 0.5, as the retrained model",
    ]
    # 0.8 lies halfway from 0.9 to emso's 0.7, and an eighth of the way to ga's 0.1
    at_08 = rows["MA within 0.300 of 0.5"]
    assert [at_08[name].numbers[0][0] for name in ("emso", "ga")] == pytest.approx([0.8, 0.8])
    assert at_08["emso"].numbers[1][0] == pytest.approx(math.sqrt(4.0 * 6.0))
    assert at_08["ga"].numbers[1][0] == pytest.approx(4.0 * (9.0 / 4.0) ** (1 / 8))
    at_052 = rows["MA within 0.020 of 0.5, as the retrained model"]
    assert (at_052["emso"].how, at_052["emso"].note) == ("not reached", "best MA 0.550")
    assert at_052["ga"].numbers[0][0] == pytest.approx(0.52), "it leaps over it, and passes it on the way"
    lower = by_text(compared((trial("original"), {None: (0.9, 4.0, 0.9)}), (trial("emso", (1, 2)), STEPS)))
    assert "MA at most 0.75" in lower
    assert not any("within" in text for text in lower)


def drawn_at(ax):
    """Return where a panel has a point, by its row; the reference lines and interval bars have no marker."""
    points = [line for line in ax.lines if line.get_marker() not in ("None", "", None)]
    return {round(line.get_ydata()[0]): line.get_xdata()[0] for line in points}


def test_the_picture_of_the_answer_has_a_panel_for_each_level_and_every_method_in_each(measured, trial):
    results, ranked = measured(
        (trial("original"), ORIGINAL), (trial("retrained"), RETRAINED),
        (trial("emso", (1, 2)), STRONG), (trial("ga", (1, 2)), WEAK),
    )  # fmt: skip
    tables = matched_tables(results, ranked)
    figure = matched_figure(tables, ranked.table, styles(ranked.table))
    first, second, third = figure.axes
    names = [[label.get_text() for label in ax.get_yticklabels()] for ax in figure.axes]
    assert [sorted(of_panel) for of_panel in names] == [sorted(row.label for row in tables[0].rows)] * 3
    assert names[0] == [row.label for row in tables[0].rows], "who pays least is at the top"
    assert first.get_ylim()[0] > first.get_ylim()[1]
    assert drawn_at(first) == {0: pytest.approx(30**0.5), 1: pytest.approx(32**0.5)}
    assert drawn_at(second) == {0: pytest.approx(8.0 * 2 ** (1 / 6))}
    assert drawn_at(third) == {}
    said = [[text.get_text() for text in ax.texts] for ax in figure.axes]
    assert said[1][1] == "not reached"
    assert said[2] == ["not reached"] * 2
    assert [ax.get_title(loc="left").replace("\n", " ") for ax in figure.axes] == [one.limit.text for one in tables[:3]]
    assert {line.get_xdata()[0] for line in first.lines if line.get_linestyle() == "--"} == {4.0, 3.0}
    low, high = tables[0].rows[0].numbers[1][1:]
    assert [low, high] in [list(line.get_xdata()) for line in first.lines]
    figure.draw_without_rendering()


MA, PERPLEXITY, MAUVE = DECLARED


def items_with_holes(generator, lost, items=ITEMS, level=3.0):
    """Items of a perplexity, by tokens; the easiest of them, and others by chance, are empty texts at this point."""
    tokens_N, values_N = generator.integers(4, 60, items).astype(float), generator.normal(level, 0.6, items)
    empty = np.concatenate([np.argsort(values_N)[: lost // 2], generator.permutation(items)[: lost - lost // 2]])
    values_N[empty], tokens_N[empty] = math.nan, 0.0
    ids = tuple(f"i{row}" for row in range(items))
    return MetricItems(ids, tuple(f"c{row // 2}" for row in range(items)), values_N, tokens_N)


def between_points(metric, *replicates, **items):
    """What a metric has between measured points: of each replicate the names of its points, and their weights."""
    number = {name: aggregated(one.values_N, one.weights_N, metric.aggregate) for name, one in items.items()}
    evidence = Evidence({name: {metric.name: one} for name, one in items.items()})

    def rows(seed, names):
        about = {"point_id": names, "replicate": ["m"] * len(names), "replicate_seed": [seed] * len(names)}
        columns = {name: np.array(values) for name, values in about.items()}
        return columns | {metric.name: np.array([number[name] for name in names])}

    points = [mixture_of(rows(seed, names), weights) for seed, (names, weights) in enumerate(replicates)]
    return mix(points, metric, evidence), number


def holed(seed, *losses):
    generator = np.random.default_rng(seed)
    return {name: items_with_holes(generator, lost) for name, lost in zip("abcd", losses, strict=False)}


@pytest.mark.parametrize("lost", [(0, 0), (0, 16), (16, 0), (32, 20), (0, 58), (58, 50)], ids=str)
@pytest.mark.parametrize("weight", [0.001, 0.3, 0.5, 0.999])
def test_a_mixture_is_that_of_the_two_numbers_whatever_items_either_lacks(lost, weight):
    mixed, number = between_points(PERPLEXITY, (["a", "b"], (1 - weight, weight)), **holed(1, *lost))
    expected = math.exp((1 - weight) * math.log(number["a"]) + weight * math.log(number["b"]))
    assert mixed.number() == pytest.approx(expected, rel=1e-12)
    assert estimate(mixed.items) == pytest.approx(expected, rel=1e-12)  # What its interval is about.
    linear, number = between_points(replace(PERPLEXITY, aggregate="mean"), (["a", "b"], (0.3, 0.7)), **holed(1, *lost))
    assert linear.number() == pytest.approx(0.3 * number["a"] + 0.7 * number["b"], rel=1e-12)


@pytest.mark.parametrize(("weights", "end"), [((1.0, 0.0), "a"), ((0.0, 1.0), "b")])
def test_at_either_end_a_mixture_is_the_measured_point(weights, end):
    items = holed(3, 20, 6)
    mixed, number = between_points(PERPLEXITY, (["a", "b"], weights), **items)
    alone, _ = between_points(PERPLEXITY, ([end], (1.0,)), **items)
    assert mixed.number() == pytest.approx(number[end], rel=1e-12)
    # As wide as Student's t of the end that has fewer clusters makes it.
    assert mixed.number_and_interval == pytest.approx(alone.number_and_interval, rel=0.003)


def drawn_by_hand(items, weights):
    """Each draw of a mixture made end to end: items drawn by their clusters, both numbers again, then their mixture."""
    names = sorted(set(items[0].clusters))
    counts_DC = cluster_draws(np.unique(items[0].clusters, return_inverse=True)[1], "by hand")

    def number(one, counts_C):
        weights_N = one.weights_N * counts_C[[names.index(cluster) for cluster in one.clusters]]
        return aggregated(one.values_N, weights_N, "exp_mean")

    return [
        math.exp(sum(weight * math.log(number(one, counts_C)) for one, weight in zip(items, weights, strict=True)))
        for counts_C in counts_DC[:2000].astype(float)
    ]


@pytest.mark.parametrize("lost", [(0, 16), (30, 12), (44, 0)], ids=str)
def test_an_interval_between_points_is_that_of_both_numbers_made_anew_in_each_draw(lost):
    items = holed(4, *lost)
    mixed, _ = between_points(PERPLEXITY, (["a", "b"], (0.4, 0.6)), **items)
    value, low, high = mixed.number_and_interval
    spread = np.std(np.log(drawn_by_hand(list(items.values()), (0.4, 0.6))))
    # Student's t of as many clusters as the point with the fewest has; skew shifts the ends, and hardly the width.
    assert math.log(high / low) == pytest.approx(2 * 2.05 * spread, rel=0.12)
    assert low < value < high


def test_where_one_end_has_too_few_items_nothing_is_said_of_how_certain_it_is():
    generator = np.random.default_rng(6)
    whole, lone = items_with_holes(generator, 0), items_with_holes(generator, 0)
    lone.values_N[1:] = math.nan
    mixed, number = between_points(PERPLEXITY, (["a", "b"], (0.5, 0.5)), a=whole, b=lone)
    value, low, high = mixed.number_and_interval
    assert value == pytest.approx(math.sqrt(number["a"] * number["b"]))
    assert math.isnan(low)
    assert math.isnan(high)


def test_replicates_between_points_and_at_one_are_averaged_each_as_its_table_has_it():
    items = holed(7, 16, 6, 30)
    mixed, number = between_points(PERPLEXITY, (["a", "b"], (0.25, 0.75)), (["c"], (1.0,)), **items)
    expected = math.sqrt(number["a"] ** 0.25 * number["b"] ** 0.75 * number["c"])
    assert mixed.number() == pytest.approx(expected)
    assert estimate(mixed.items) == pytest.approx(expected)


def test_a_perplexity_without_items_is_mixed_by_its_logarithm_as_it_declares():
    """`table` has one number for all texts: halfway from 4.65 to 1000 it is their geometric mean, and not 502."""
    about = {"point_id": np.array(["a", "b"]), "replicate": np.array(["m", "m"]), "replicate_seed": np.array([0, 0])}
    of_table = next(one for one in Generation(definition="table").metrics if one.collapse == "perplexity")
    for metric, ends, expected in ((of_table, (4.65, 1000.0), 68.19), (MAUVE, (0.2, 0.6), 0.4)):
        rows = about | {metric.name: np.array(ends)}
        assert mix([mixture_of(rows, (0.5, 0.5))], metric, Evidence()).number() == pytest.approx(expected, rel=1e-4)
