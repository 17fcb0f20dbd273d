"""What a search was worth: curves where there is enough, settings that mattered, and its page."""

import math

import pytest

from harness.analysis.tradeoff.budget import search_worth
from harness.execution.search.sampling import setting_importances
from harness.plans import StudySpec, Target
from harness.records.record import WHOLE, Candidate
from harness.records.results import study_results
from harness.reporting.figures.budget import budget_figure
from harness.reporting.figures.style import rendered
from harness.search_space import Choice, LogUniform
from harness.specs import Source

RATE = "training.learning_rate"


@pytest.fixture
def make_study(make_spec):
    def make(**changes):
        trial = make_spec(trial_id="study", strength_name="epochs", strengths=(), settings={})
        space = {"epochs": LogUniform(low=1, high=4), "k": Choice(values=(1, 2)), RATE: LogUniform(low=1e-5, high=1e-2)}
        fields = {"study_id": "study", "trial": trial, "seeds": (0,), "space": space, "is_cumulative": True}
        fields |= {"defaults": {"epochs": 4, "k": 1, RATE: 1e-3}, "is_trained": True, "search": "random", "trials": 12}
        fields |= {"targets": (Target(metric="ma", at_most=0.5), Target(metric="ma", at_most=0.1))}
        fields |= {"utility": "perplexity", "utility_bounds": (0.5, 5.0), "retrained": None}
        return StudySpec(selection=Source(source="miniature"), **fields | changes)

    return make


def tried(number, ma, perplexity, *, k=1, rate=1e-3, seconds=2.0):
    probe = {"strength": 2, "ma": ma, "perplexity": perplexity, "optimiser_steps": 0}
    fields = {"trial_id": "study", "number": number, "settings": {"epochs": 4, "k": k, RATE: rate}, "seconds": seconds}
    asked, original = {"ma <= 0.5": 0.5, "ma <= 0.1": 0.1}, {"ma": 1.0, "perplexity": 4.0}
    return Candidate(**fields, probes=(probe,), targets=asked, original=original, end=WHOLE)


def test_a_curve_is_the_expected_ratio_by_hand(make_study):
    known = [tried(0, 0.4, 8.0), tried(1, 0.4, 16.0), tried(2, 0.9, 4.0)]
    worth = search_worth([study_results(make_study(), known)])
    [panel] = worth.panels
    assert panel.target == "ma <= 0.5", "of a target that nobody reaches there is no panel"
    [curve] = panel.by_candidates
    assert curve.budgets == (1.0, 2.0, 3.0)
    assert curve.prices[0] == pytest.approx(math.sqrt(2 * 4)), "geometric; two of three reach it"
    assert curve.prices[1] == pytest.approx(math.exp((5 * math.log(2) + 3 * math.log(4)) / 8))
    [by_seconds] = panel.by_seconds
    assert (by_seconds.budgets[0], by_seconds.budgets[-1]) == (pytest.approx(2.0), pytest.approx(6.0))
    assert by_seconds.prices[-1] == pytest.approx(2.0)
    rare = [tried(number, 0.4 if number == 0 else 0.9, 8.0) for number in range(3)]
    first, *_, last = search_worth([study_results(make_study(), rare)]).panels[0].by_candidates[0].prices
    assert math.isnan(first), "one draw in three reaches it"
    assert last == pytest.approx(2.0)
    assert budget_figure(worth.panels, {}) is not None
    assert rendered(budget_figure(worth.panels, {}), "png")


def test_several_searches_make_a_median_and_a_band(make_study):
    lucky = [tried(number, 0.4, 8.0) for number in range(3)]
    medium = [tried(number, 0.4, 12.0) for number in range(4)]
    never = [tried(number, 0.9, 8.0) for number in range(3)]
    searches = [study_results(make_study(seeds=(seed,)), known) for seed, known in enumerate((lucky, medium, never))]
    worth = search_worth(searches)
    [curve] = worth.panels[0].by_candidates
    assert (curve.searches, curve.budgets) == (3, (1.0, 2.0, 3.0, 4.0))
    assert curve.prices == pytest.approx([3.0] * 4), "the median of 2, 3 and never"
    assert curve.least == pytest.approx([2.0] * 4), "a search that ended early has found what it will find"
    assert all(map(math.isnan, curve.most)), "one of them never gets there"
    assert [note.seeds for note in worth.notes] == ["0", "1", "2"]
    [of_two] = search_worth(searches[:2]).panels[0].by_candidates
    assert of_two.most == pytest.approx([3.0] * 4)
    assert of_two.prices == pytest.approx([math.sqrt(6)] * 4)
    assert rendered(budget_figure(search_worth(searches[:2]).panels, {}), "png")


def test_a_control_has_a_curve_of_its_own(make_study):
    known = [tried(number, 0.4, 8.0) for number in range(3)]
    dear = [tried(number, 0.4, 12.0) for number in range(3)]
    worth = search_worth([study_results(make_study(search="optuna"), known), study_results(make_study(), dear)])
    proposed, control = worth.panels[0].by_candidates
    assert (proposed.search, control.search) == ("optuna", "random")
    assert (proposed.prices[0], control.prices[0]) == pytest.approx((2.0, 3.0))
    figure = budget_figure(worth.panels, {})
    assert [line.get_linestyle() for line in figure.axes[0].lines] == ["-", "--"]
    assert [note.search for note in worth.notes] == ["optuna", "random"]


def test_two_candidates_make_no_curve(make_study):
    worth = search_worth([study_results(make_study(), [tried(0, 0.4, 8.0), tried(1, 0.4, 9.0)])])
    assert worth.panels == []
    assert budget_figure(worth.panels, {}) is None
    assert [note.importances for note in worth.notes] == [()]
    assert search_worth([]).notes == []


@pytest.mark.parametrize("mattering", ["k", RATE])
def test_the_setting_that_decides_is_the_one_that_mattered(make_study, mattering):
    known = []
    for number in range(16):
        k, rate = 1 + number % 2, (2e-5, 5e-3)[number // 2 % 2]
        is_good = k == 1 if mattering == "k" else rate < 1e-3
        known.append(tried(number, 0.4 if is_good else 0.6, 8.0, k=k, rate=rate))
    study = make_study()
    shares = setting_importances(study, study.targets[0], known)
    assert next(iter(shares)) == mattering
    assert shares[mattering] > 0.8
    assert sum(shares.values()) == pytest.approx(1.0)
    [note] = search_worth([study_results(study, known[:12])]).notes
    assert note.importances[0][0] == mattering
    [few] = search_worth([study_results(study, known[:7])]).notes
    assert few.importances == (), "of so few nothing is said"
