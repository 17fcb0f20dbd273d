"""What a finished search has measured: its choice, the strength below, and others until the target lies between two."""

import pytest

from harness.plans import Plan, StudySpec, Target
from harness.records.journal import Journal
from harness.records.record import WHOLE, Candidate
from harness.records.tuned import read_tuned
from harness.search_space import Choice, LogUniform
from harness.specs import ORIGINAL, RETRAINED, Source
from harness.training import Training

SPACES = {
    "epochs": LogUniform(low=1, high=9),
    "gamma": Choice(values=(0.05, 0.1, 0.2, 0.4, 0.8)),
    "scale": LogUniform(low=0.5, high=4.0),
    "tokens": LogUniform(low=4, high=16),
}
CHOSEN = {"epochs": 4, "gamma": 0.2, "scale": 1.0, "tokens": 5}


@pytest.fixture
def tuned(tmp_path, make_spec, make_row, make_plan, make_measurement, make_point):
    """Return a maker of the strengths that a sweep measures, in their order, whose search chose one for a target.

    Measured are the original's MA, 1, the retrained model's, if given, and that of each strength for which one is
    given, once it is asked for. An epoch has eight steps, or those that `steps_of` notes of a strength. `make.trials`
    has the trials as they are at the end.
    """

    def make(strength, at_most, erasure, retrained=None, is_divisible=False, steps_of=None):
        eight_steps = {"forget": Source(source="miniature", rows=128), "training": Training(global_batch=16)}
        study = StudySpec(
            study_id="study",
            trial=make_spec(trial_id="study", strength_name=strength, strengths=(), settings={}, **eight_steps),
            seeds=(0,),
            space={strength: SPACES[strength]},
            defaults={},
            is_cumulative=strength == "epochs",
            is_divisible=is_divisible,
            is_trained=True,
            search="random",
            trials=1,
            targets=(Target(metric="ma", at_most=at_most),),
            utility="perplexity",
            utility_bounds=(0.5, 5.0),
            selection=Source(source="miniature"),
            retrained=None,
        )
        journal, reference = Journal(tmp_path / "journal"), make_row(RETRAINED)
        chosen = CHOSEN[strength]
        probes = [{"strength": chosen, "ma": 0.4, "perplexity": 5.0, "optimiser_steps": 8}]
        about = {"settings": {strength: chosen}, "targets": {f"ma <= {at_most}": 0.5}, "end": WHOLE, "seconds": 1.0}
        original = {"ma": 1.0, "perplexity": 4.0}
        journal.append(Candidate(trial_id="study", number=0, probes=tuple(probes), original=original, **about))
        known = make_row(ORIGINAL)
        journal.append(make_measurement(known, numbers={"ma": 1.0}))
        if retrained is not None:
            journal.append(make_measurement(reference, numbers={"ma": retrained}))
        plan = make_plan(known, reference, studies=(study,))
        asked = []
        while new := [
            (trial.spec, one)
            for trial in read_tuned(plan, journal).trials
            for one in trial.spec.strengths
            if not trial.spec.is_reference and one not in asked
        ]:
            asked += sorted(one for _, one in new)
            for spec, one in new:
                if one in erasure:
                    if steps_of:
                        journal.append(make_point(spec, one, notes={"total_steps": steps_of(one)}))
                    journal.append(make_measurement(spec, one, numbers={"ma": erasure[one]}))
        make.trials = [trial.spec for trial in read_tuned(plan, journal).trials if not trial.spec.is_reference]
        return asked

    return make


@pytest.mark.parametrize(
    ("strength", "erasure", "expected"),
    [
        ("epochs", {}, [3, 4]),
        ("epochs", {3: 0.6, 4: 0.45}, [3, 4]),
        ("epochs", {3: 0.6, 4: 0.55, 5: 0.4}, [3, 4, 5]),
        ("epochs", {3: 0.6, 4: 0.55, 5: 0.52, 6: 0.51, 8: 0.51, 12: 0.51}, [3, 4, 5, 6, 8, 12]),
        ("epochs", {3: 0.4, 4: 0.45, 2: 0.6}, [3, 4, 2]),
        ("epochs", {3: 0.4, 4: 0.45, 2: 0.3}, [3, 4, 2, 1]),
        ("gamma", {0.1: 0.4, 0.2: 0.45}, [0.1, 0.2, 0.05]),
        ("gamma", {0.1: 0.6, 0.2: 0.55, 0.4: 0.51}, [0.1, 0.2, 0.4, 0.8]),
        ("scale", {1.2**-1: 0.45, 1.0: 0.45, 1.2**-2: 0.6}, [1.2**-1, 1.0, 1.2**-2, 0.787]),
        ("scale", {1.2**-1: 0.6, 1.0: 0.45, 0.9444: 0.51}, [1.2**-1, 1.0, 0.9444]),
        ("scale", {1.2**-1: 0.4, 1.0: 0.4, 1.2**-2: 0.4, 0.5: 0.4}, [1.2**-1, 1.0, 1.2**-2, 0.5, 0.4167]),
        (
            "scale",
            {1.2**-1: 0.6, 1.0: 0.6, 1.2: 0.6, 1.2**2: 0.6, 1.2**4: 0.2},
            [1.2**-1, 1.0, 1.2, 1.2**2, 1.2**4, 1.598],
        ),
        ("tokens", {4: 0.6, 5: 0.55, 6: 0.55, 7: 0.55}, [4, 5, 6, 7, 10]),
    ],
)
def test_a_trajectory_is_measured_from_the_choice_until_it_meets_the_target(tuned, strength, erasure, expected):
    assert tuned(strength, 0.5, erasure) == [pytest.approx(one) for one in expected]


@pytest.mark.parametrize(
    ("erasure", "expected"),
    [
        ({3: 0.6, 4: 0.45}, [3, 4, 3.625]),
        ({3: 0.6, 4: 0.45, 3.625: 0.53, 3.75: 0.49}, [3, 4, 3.625, 3.75]),
        ({3: 0.6, 4: 0.45, 3.625: 0.57, 3.875: 0.46}, [3, 4, 3.625, 3.875, 3.75]),
        ({3: 0.6, 4: 0.45, 3.625: 0.4}, [3, 4, 3.625, 3.25]),
        ({3: 0.6, 4: 0.45, 3.625: 0.49}, [3, 4, 3.625]),
        ({3: 0.6, 4: 0.49}, [3, 4]),
        ({3: 0.4, 4: 0.45, 2: 0.3}, [3, 4, 2, 1.375]),
    ],
    ids=lambda one: "" if isinstance(one, list) else f"{len(one)} known",
)
def test_an_epoch_in_which_the_target_is_passed_is_divided_at_a_step(tuned, erasure, expected):
    assert tuned("epochs", 0.5, erasure, is_divisible=True) == expected


def test_an_original_close_to_the_target_does_not_stand_for_it(tuned):
    """MA 1 of the original, .3 after the first of the epochs that reach .99: steps between the two are measured."""
    erasure = {3: 0.25, 4: 0.2, 2: 0.3, 0.25: 0.9, 0.125: 0.985}
    assert tuned("epochs", 0.99, erasure, is_divisible=True)[-2:] == [0.25, 0.125]
    assert {0.125} == {one for trial in tuned.trials for one in trial.targets.values()}


def test_an_epoch_is_divided_at_the_steps_that_its_training_noted(tuned):
    """As of SUGD, whose epoch has 28 steps on texts of which a pass takes eight."""
    erasure = {3: 0.6, 4: 0.45, 3.6786: 0.53, 3.7857: 0.49}
    noted = tuned("epochs", 0.5, erasure, is_divisible=True, steps_of=lambda epochs: round(28 * epochs))
    assert noted == [3, 4, 3.6786, 3.7857]
    assert [round(28 * epochs, 2) for epochs in noted] == [84, 112, 103, 106]


def test_where_epochs_differ_in_length_a_strength_between_is_tried_all_the_same(tuned):
    def steps_of(epochs):  # 8 steps in each of three epochs, and 2 in the fourth, as of SGA.
        return round(8 * epochs if epochs <= 3 else 24 + 2 * (epochs - 3))

    assert tuned("epochs", 0.5, {3: 0.6, 4: 0.45}, is_divisible=True, steps_of=steps_of) == [3, 4, 3.5]


ONE_STEP = {3: 0.6, 4: 0.45, 3.625: 0.54, 3.75: 0.46}
"""From 3.625 to 3.75, by the 30th step, MA falls from .54 to .46: neither is within .02 of .5."""


def test_where_one_step_leads_past_the_target_the_rate_is_lowered(tuned):
    """The 30th step begins and ends at the 116th and 120th of a quarter of the rate, and so on."""
    assert tuned("epochs", 0.5, ONE_STEP, is_divisible=True) == [3, 4, 3.625, 3.75, 14.5, 15]
    slower = {14.5: 0.55, 15: 0.46, 14.75: 0.51}
    assert tuned("epochs", 0.5, {**ONE_STEP, **slower}, is_divisible=True)[4:] == [14.5, 15, 14.75]
    chosen, slow = tuned.trials
    target, rate = "ma <= 0.5", Training().learning_rate
    assert (chosen.targets, chosen.chosen, chosen.neighbours) == ({}, {target: 4}, (3, 3.625, 3.75, 4))
    assert (slow.targets, slow.chosen, slow.neighbours) == ({target: 14.75}, {}, (14.5, 15))
    assert (chosen.training.learning_rate, slow.training.learning_rate) == (rate, rate / 4)
    assert slow.searched == {**chosen.searched, "training.learning_rate": rate / 4}
    assert slow.trial_id != chosen.trial_id


@pytest.mark.parametrize(
    ("slower", "expected"),
    [
        ({14.5: 0.6, 15: 0.55, 15.5: 0.53, 16: 0.45}, [14.5, 15, 15.5, 16, 15.75]),
        ({14.5: 0.47, 15: 0.45, 14: 0.6}, [14.5, 15, 14, 14.375]),
        ({14.5: 0.49, 15: 0.45}, [14.5, 15, 14]),
    ],
)
def test_a_walk_at_a_lower_rate_goes_on_until_the_target_lies_between_two(tuned, slower, expected):
    assert tuned("epochs", 0.5, {**ONE_STEP, **slower}, is_divisible=True)[4:] == expected


def test_the_rate_is_lowered_twice_at_most_and_the_nearest_of_all_points_stands(tuned):
    once = {**ONE_STEP, 14.5: 0.56, 15: 0.46, 14.75: 0.54, 14.875: 0.45}
    twice = {59: 0.55, 59.5: 0.45, 59.25: 0.47, 59.125: 0.53}
    asked = tuned("epochs", 0.5, {**once, **twice}, is_divisible=True)
    assert asked[4:] == [14.5, 15, 14.75, 14.875, 59, 59.5, 59.25, 59.125]
    slowest = tuned.trials[-1]
    assert (slowest.targets, slowest.training.learning_rate) == ({"ma <= 0.5": 59.125}, Training().learning_rate / 16)


@pytest.mark.parametrize(
    ("erasure", "is_divisible"),
    [
        ({**ONE_STEP, 3.75: 0.485}, True),  # Close.
        ({3: 0.6, 4: 0.45}, False),  # The method cannot stop there, and another rate would change nothing.
        ({3: 0.6, 4: 0.55, 5: 0.52}, True),  # Not passed.
    ],
)
def test_it_is_not_lowered_where_that_is_not_why_the_target_is_missed(tuned, erasure, is_divisible):
    tuned("epochs", 0.5, erasure, is_divisible=is_divisible)
    assert {trial.training.learning_rate for trial in tuned.trials} == {Training().learning_rate}


def test_the_strength_nearest_to_the_target_stands_for_it_and_all_others_are_neighbours(tuned):
    target = "ma <= 0.5"
    tuned("epochs", 0.5, {3: 0.6, 4: 0.45, 3.625: 0.49}, is_divisible=True)
    [trial] = tuned.trials
    assert (trial.targets, trial.chosen, trial.neighbours) == ({target: 3.625}, {target: 4}, (3, 4))


def test_so_it_is_where_each_strength_has_a_trial_of_its_own(tuned):
    target = "ma <= 0.5"
    tuned("scale", 0.5, {1.2**-1: 0.6, 1.0: 0.45, 0.9444: 0.51})
    of_trials = {trial.strengths: (trial.targets, trial.chosen, len(trial.neighbours)) for trial in tuned.trials}
    below, between, chosen = ((one,) for one in sorted(strength for (strength,) in of_trials))
    assert (of_trials[between], of_trials[chosen]) == (({target: 0.9444}, {}, 0), ({}, {target: 1.0}, 1))
    assert of_trials[below] == ({}, {}, 1)


def test_until_it_is_known_which_strength_that_is_the_choice_stands_for_its_target(tuned):
    tuned("epochs", 0.5, {3: 0.6, 4: 0.45}, is_divisible=True)
    [trial] = tuned.trials
    assert (trial.targets, trial.neighbours) == ({"ma <= 0.5": 4}, (3, 3.625, 4)), "and nothing is attacked yet"


@pytest.mark.parametrize(
    ("retrained", "expected"), [(None, [3, 4]), (0.6, [3, 4, 2, 0]), (0.3, [3, 4, 5]), (0.57, [3, 4])]
)
def test_the_retrained_models_level_is_awaited(tuned, retrained, expected):
    erasure = {3: 0.58, 4: 0.55, 2: 0.57}
    assert tuned("epochs", "retrained", erasure, retrained) == [one for one in expected if one]


def test_a_plan_keeps_which_points_were_chosen(make_row, make_plan):
    moved = make_plan(
        make_row("ga", (0.5,), targets={"ma <= 0.5": 0.5}), make_row("ga", (0.6,), chosen={"ma <= 0.5": 0.6})
    )
    assert Plan.from_json(moved.to_json()) == moved
