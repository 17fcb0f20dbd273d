"""What a study tries next: Optuna told what is known, and the numbers that it is told."""

import json
import math

import pytest

from harness.execution.search import STARTUP, next_settings, objective, results_awaited
from harness.records.journal import COLLAPSED, PAST, WHOLE, Candidate
from harness.records.results import is_outside, is_over, study_results
from harness.settings import Choice, Level, LogUniform, Source, Study, replace

RATE = "training.learning_rate"
TARGETS = tuple(Level(metric="ma", at=at) for at in (0.9, 0.5, "retrained"))
ASKED = {"ma=0.9": 0.9, "ma=0.5": 0.5, "ma=retrained": 0.3}
ORIGINAL = {"ma": 1.0, "perplexity": 4.0}
EPOCHS = {"epochs": LogUniform(low=1, high=6)}
SPACES = {
    "walk": EPOCHS | {"k": Choice(values=(1, 2, 4, 8)), RATE: LogUniform(low=1e-6, high=1e-3)},
    "finite": EPOCHS | {"k": Choice(values=(1, 2)), "loss": Choice(values=("em", "nll"))},
    "walk alone": EPOCHS,
}
OTHERS = {"walk": {"k": 2, RATE: 1e-4}, "finite": {"k": 2, "loss": "em"}, "walk alone": {}}
DEFAULTS = {kind: {"epochs": 6, **others} for kind, others in OTHERS.items()}


@pytest.fixture
def make_study(make_spec):
    def make(kind="walk", **changes):
        trial = make_spec(trial_id="study", strength_name="epochs", strengths=(), settings={})
        fields = {"study_id": "study", "trial": trial, "seeds": (0,), "space": SPACES[kind], "defaults": DEFAULTS[kind]}
        fields |= {"is_cumulative": True, "is_trained": True, "search": "optuna", "trials": 12}
        fields |= {"targets": TARGETS, "utility_bounds": (0.5, 5.0)}
        return Study(selection=Source(source="miniature"), **fields | changes)

    return make


def candidate(study, number, settings, points, end=WHOLE, **changes):
    """Points: strength, MA, perplexity."""
    probes = [{"strength": s, "ma": ma, "perplexity": p, "optimiser_steps": 0} for s, ma, p in points]
    fields = {"trial_id": study.study_id, "number": number, "settings": settings, "probes": tuple(probes), "end": end}
    return Candidate(**fields | {"targets": ASKED, "original": ORIGINAL, "seconds": 1.0} | changes)


def on_the_walk(study, number, settings):
    """More blocks and a higher rate erase faster, and cost more."""
    speed = settings["k"] * settings[RATE] * 300
    points = [(epoch, math.exp(-speed * epoch), 4 * math.exp((speed * epoch) ** 1.5)) for epoch in range(1, 7)]
    return candidate(study, number, settings, points)


def same_for_all(study, number, settings):
    return candidate(study, number, settings, [(1, 0.8, 5.0)])


def explored(study, answer, most=12):
    known = []
    for number in range(most):
        settings = next_settings(study, number, known)
        if settings is None:
            break
        known.append(answer(study, number, settings))
    return known


@pytest.mark.parametrize("search", ["optuna", "random"])
def test_candidates_follow_from_what_is_known_alone(make_study, search):
    study = make_study(search=search)
    whole = explored(study, on_the_walk)
    assert len(whole) == 12
    assert whole[0].settings == study.defaults
    assert explored(make_study(search=search, trials=20), on_the_walk) == whole
    other = explored(make_study(search=search, study_id="other"), on_the_walk)
    assert [c.settings for c in other[1:]] != [c.settings for c in whole[1:]]
    for known in whole:
        assert known.settings["epochs"] == 6
        assert known.settings["k"] in (1, 2, 4, 8)
        assert type(known.settings["k"]) is int
        assert 1e-6 <= known.settings[RATE] <= 1e-3
        assert json.loads(json.dumps(known.settings)) == known.settings


def test_optuna_is_told_what_was_seen_and_random_is_not(make_study):
    for search, listens in (("optuna", True), ("random", False)):
        study = make_study(search=search)
        known = explored(study, on_the_walk, most=STARTUP + 3)
        turned = [replace(c, probes=known[c.number - 1].probes) for c in known]
        number = len(known)
        assert (next_settings(study, number, known) != next_settings(study, number, turned)) == listens


def test_a_finite_space_is_tried_once_each_and_then_is_over(make_study):
    study = make_study("finite", search="random")
    known = explored(study, same_for_all)
    assert len(known) == len({(c.settings["k"], c.settings["loss"]) for c in known}) == 4
    assert is_over(study, known)
    assert not is_over(study, known[:3])
    assert next_settings(study, 4, known[:3], {3: known[3].settings}) is None, "the last one is being tried"
    assert len(explored(make_study("walk alone"), same_for_all)) == 1


def test_the_objective_by_hand(make_study):
    study = make_study()
    easy, hard, twin = TARGETS

    def found(target, seen):
        return objective(study, target, seen)

    seen = candidate(study, 0, {}, [(1, 0.95, 4.1), (2, 0.85, 6.0), (3, 0.8, 5.0), (4, 0.45, 30.0)])
    assert found(easy, seen) == pytest.approx((0.45 - 0.9, math.log(5.0)))
    assert found(hard, seen) == pytest.approx((0.45 - 0.5, math.log(30.0)))
    assert found(twin, seen) == pytest.approx((0.15, math.inf)), "not reached, so it costs nothing that compares"
    gone = candidate(study, 0, {}, [(1, 0.1, math.inf)], end=COLLAPSED)
    assert found(easy, gone) == (pytest.approx(0.1 - 0.9), math.inf), "an infinite perplexity is above every bound"
    assert is_outside(study, gone.original, gone.probes[0])
    assert found(hard, candidate(study, 0, {}, [], end="TrialError: x")) == (0.5, math.inf), "as far as the original is"
    stuck = candidate(study, 0, {}, [(1, 0.1, 1.0), (2, math.nan, math.nan)], end=COLLAPSED)
    assert found(easy, stuck) == (pytest.approx(0.1), math.inf), "one word for ever is no aim"
    assert objective(study, easy, candidate(study, 0, {}, [], original={}, end="ModelError: x")) is None


def test_what_runs_beside_it_is_seen_by_its_settings_alone(make_study):
    study, number = make_study(), 8
    known = explored(study, on_the_walk, most=number)
    last = known[-1]
    proposed = next_settings(study, number, known)
    assert next_settings(study, number, known[:-1], {last.number: last.settings}) == proposed
    assert next_settings(study, number, [*known[:-1], replace(last, probes=())]) == proposed
    assert next_settings(study, number, known[:-1], {last.number: proposed}) != proposed, "it looks elsewhere"
    assert results_awaited(study, number) == last.number


def test_the_published_recipe_is_tried_after_the_defaults(make_study):
    published = {"epochs": 6, "k": 8, RATE: 1e-5}
    known = explored(make_study(published=published), on_the_walk, most=3)
    assert [c.settings for c in known[:2]] == [DEFAULTS["walk"], published]
    assert known[2].settings not in (DEFAULTS["walk"], published)


def test_a_candidate_that_failed_is_known_and_the_search_goes_on(make_study):
    def answer(study, number, settings):
        if number in (1, 3):
            return candidate(study, number, settings, [], end="TrialError: x", original=ORIGINAL if number == 1 else {})
        return on_the_walk(study, number, settings)

    assert len(explored(make_study(), answer)) == 12


def test_the_chosen_point_is_the_cheapest_that_reaches_and_has_not_collapsed(make_study):
    study = make_study()
    known = [
        candidate(study, 0, {"k": 1}, [(1, 0.92, 4.2), (2, 0.88, 5.0), (3, 0.49, 25.0)], end=COLLAPSED),
        candidate(study, 1, {"k": 2}, [(1, 0.9 + 1e-8, 4.5), (2, 0.6, 8.0)], end=PAST),  # As in single precision.
        candidate(study, 2, {"k": 4}, [(1, 0.4, 1.0), (2, 0.5, math.nan)], end=COLLAPSED),
    ]
    results = study_results(study, list(reversed(known)))
    assert [c.number for c in results.candidates] == [0, 1, 2]
    chosen = [result.chosen for result in results.targets]
    assert (chosen[0].candidate.number, chosen[0].probe["strength"], chosen[0].is_collapsed) == (1, 1, False)
    assert (chosen[1].candidate.number, chosen[1].is_collapsed) == (2, True), "of collapsed ones the least"
    assert chosen[2] is None
    assert str(results.targets[2]) == "not reached: best MA 0.40"
    assert str(results.targets[0]) == "MA 0.90 at strength 1"
    nearest = results.targets[2].nearest
    assert (nearest.candidate.number, nearest.probe["strength"]) == (2, 1), "of the least MA"
    assert [str(result) for result in study_results(study, []).targets] == ["not reached: nothing was probed"] * 3
    twice = [known[0], replace(known[0], settings={"k": 8})]
    assert study_results(study, twice).candidates == (known[0],), "the first of a number counts"
