"""The rule by which a range is widened once, and which chosen values lie at an end."""

import pytest

from harness.plans import StudySpec, Target
from harness.records.bisection import bisected_strength
from harness.records.ranges import JUDGED, WIDENED_FROM, chosen_at_edges, edges_reached, space_at, widened_ranges
from harness.records.record import WHOLE, Candidate
from harness.records.results import study_results
from harness.records.tuned import bisected_settings, is_over
from harness.search_space import Choice, LogUniform, edge_of, widened
from harness.specs import Source

RATE = "training.learning_rate"
NARROW, WIDE = LogUniform(low=1e-5, high=1e-2), LogUniform(low=1e-6, high=1e-1)


@pytest.fixture
def make_study(make_spec):
    def make(strength="epochs", **changes):
        space = {"epochs": LogUniform(low=1, high=8), "k": Choice(values=(1, 2)), RATE: NARROW}
        widest = {"epochs": LogUniform(low=1, high=16), RATE: WIDE}
        if strength == "gamma":
            space, widest = {"gamma": NARROW}, {"gamma": WIDE}
        trial = make_spec(trial_id="study", strength_name=strength, strengths=(), settings={})
        fields = {"study_id": "study", "trial": trial, "seeds": (0,), "space": space, "widest": widest}
        fields |= {"defaults": {"epochs": 8, "k": 1, RATE: 1e-3} if strength == "epochs" else {"gamma": 1e-3}}
        fields |= {"is_cumulative": strength == "epochs", "is_trained": True, "search": "optuna", "trials": 12}
        fields |= {"targets": (Target(metric="ma", at_most=0.5),), "utility": "perplexity", "retrained": None}
        return StudySpec(selection=Source(source="miniature"), utility_bounds=(0.5, 5.0), **fields | changes)

    return make


def tried(number, value, cost, *, name=RATE, at=3, ma=0.4):
    settings = {"epochs": 8, "k": 1, RATE: value} if name == RATE else {name: value}
    probe = {"strength": value if name == "gamma" else at, "ma": ma, "perplexity": cost, "optimiser_steps": 0}
    fields = {"trial_id": "study", "number": number, "settings": settings, "probes": (probe,), "end": WHOLE}
    return Candidate(**fields, targets={"ma <= 0.5": 0.5}, original={"ma": 1.0, "perplexity": 4.0}, seconds=1.0)


def judges(best, at=3):
    """Six candidates, of which the third is the cheapest."""
    return [
        tried(number, best if number == 2 else 1e-3, 5.0 if number == 2 else 6.0, at=at) for number in range(JUDGED)
    ]


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        (1e-5, LogUniform(low=WIDE.low, high=NARROW.high)),
        (1.1e-5, LogUniform(low=WIDE.low, high=NARROW.high)),
        (9e-3, LogUniform(low=NARROW.low, high=WIDE.high)),
        (1.2e-5, NARROW),
        (8.5e-3, NARROW),
    ],
)
def test_a_range_grows_at_the_end_where_the_best_of_six_lies(make_study, best, expected):
    known = judges(best)
    assert space_at(make_study(), WIDENED_FROM, known)[RATE] == expected
    assert space_at(make_study(), WIDENED_FROM - 1, known)[RATE] == NARROW, "not before the eighth candidate"
    later = [*known, tried(JUDGED, 1e-5, 4.1), tried(JUDGED + 1, 1e-2, 4.0)]
    assert space_at(make_study(), 11, later)[RATE] == expected, "who comes after the six is no judge"
    assert space_at(make_study(widest={}), WIDENED_FROM, known)[RATE] == NARROW, "as planned before there was a rule"


def test_a_dear_value_at_an_end_widens_nothing_and_neither_does_one_that_does_not_reach(make_study):
    known = judges(1e-3)
    assert space_at(make_study(), 9, [*known[:5], tried(5, 1e-5, 9.0)])[RATE] == NARROW
    assert space_at(make_study(), 9, [*known[:5], tried(5, 1e-5, 4.5, ma=0.6)])[RATE] == NARROW
    assert space_at(make_study(), 9, [*known[:5], tried(5, 1e-5, 4.5)])[RATE] != NARROW


def test_a_trajectory_is_at_an_end_at_its_last_step_and_not_at_its_first(make_study):
    assert space_at(make_study(), 9, judges(1e-3, at=8))["epochs"] == LogUniform(low=1, high=16)
    assert space_at(make_study(), 9, judges(1e-3, at=1))["epochs"] == LogUniform(low=1, high=8)
    study = make_study()
    assert study.strengths({"epochs": 16, "k": 1, RATE: 1e-3}) == tuple(range(1, 17)), "later ones walk further"


def test_a_dial_that_has_nothing_left_to_learn_is_judged_then_and_goes_on(make_study):
    study, known = make_study("gamma"), []
    for gamma in (1e-3, 1e-2, 1e-5):  # All reach, so the least that does lies below the range.
        assert bisected_settings(study, known) == {"gamma": gamma}
        known.append(tried(len(known), gamma, 5.0 + gamma, name="gamma"))
    assert bisected_strength(study, NARROW, known) is None
    assert bisected_settings(study, known) == {"gamma": WIDE.low}
    assert not is_over(study, known)
    known.append(tried(3, WIDE.low, 4.0, name="gamma", ma=0.9))
    following = bisected_settings(study, known)["gamma"]
    assert WIDE.low < following < NARROW.low, "between what reached and what did not"
    assert bisected_settings(make_study("gamma", widest={}), known[:3]) is None
    results = study_results(study, [*known, tried(4, following, 4.5, name="gamma", ma=0.9)])
    assert widened_ranges(results) == {"gamma": LogUniform(low=WIDE.low, high=NARROW.high)}
    assert edges_reached(results) == [], "the range is wider now"


def test_what_is_chosen_at_an_end_is_told_in_words(make_study):
    study = make_study(trials=6)
    results = study_results(study, judges(1e-5, at=8))
    told = [str(chosen) for chosen in chosen_at_edges(results, study.space)]
    assert told == [
        "ma <= 0.5: epochs 8 is at the upper end of its range",
        f"ma <= 0.5: {RATE} 1e-05 is at the lower end of its range",
    ]
    assert [str(chosen) for chosen in edges_reached(results)] == told
    assert widened_ranges(results) == {}, "no candidate came late enough"
    inside = study_results(study, judges(1e-3))
    assert edges_reached(inside) == []
    never = study_results(study, [tried(0, 1e-5, 5.0, ma=0.9)])
    assert edges_reached(never) == [], "nothing is chosen"


def test_a_widened_range_is_longer_by_a_third_at_each_end():
    wider = widened(LogUniform(low=1e-4, high=1e-1))
    assert (wider.low, wider.high) == (1e-5, 1.0)
    assert widened(LogUniform(low=2, high=54)) == LogUniform(low=1, high=162)
    assert edge_of(wider, 1e-4) is None
