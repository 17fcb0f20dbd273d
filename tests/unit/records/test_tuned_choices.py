"""What a finished search has measured: its choice, the strength below, and the one above where the target is missed."""

import pytest

from harness.plans import StudySpec, Target
from harness.records.journal import Journal
from harness.records.record import WHOLE, Candidate
from harness.records.tuned import read_tuned
from harness.search_space import Choice, LogUniform
from harness.specs import RETRAINED, Source

SPACES = {"epochs": {"epochs": LogUniform(low=1, high=9)}, "gamma": {"gamma": Choice(values=(0.1, 0.2, 0.4))}}
CHOSEN = {"epochs": (2, 3, 4), "gamma": (0.1, 0.2, 0.4)}


@pytest.fixture
def tuned(tmp_path, make_spec, make_row, make_plan, make_measurement):
    """Return a maker of what a sweep is to measure, whose search chose the middle strength for a target.

    Measured are the retrained model's MA, if given, and the choice's.
    """

    def make(strength, at_most, measured=None, retrained=None):
        space = SPACES[strength]
        study = StudySpec(
            study_id="study",
            trial=make_spec(trial_id="study", strength_name=strength, strengths=(), settings={}),
            seeds=(0,),
            space=space,
            defaults={},
            is_cumulative=strength == "epochs",
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
        middle = CHOSEN[strength][1]
        probes = [{"strength": middle, "ma": 0.4, "perplexity": 5.0, "optimiser_steps": 8}]
        about = {"settings": {strength: middle}, "targets": {f"ma <= {at_most}": 0.5}, "end": WHOLE, "seconds": 1.0}
        original = {"ma": 1.0, "perplexity": 4.0}
        journal.append(Candidate(trial_id="study", number=0, probes=tuple(probes), original=original, **about))
        if retrained is not None:
            journal.append(make_measurement(reference, numbers={"ma": retrained}))
        plan = make_plan(reference, studies=(study,))
        if measured is not None:
            [chosen] = [trial.spec for trial in read_tuned(plan, journal).trials if middle in trial.spec.strengths]
            journal.append(make_measurement(chosen, middle, numbers={"ma": measured}))
        results = read_tuned(plan, journal)
        return sorted(one for trial in results.trials for one in trial.spec.strengths)

    return make


@pytest.mark.parametrize("strength", ["epochs", "gamma"])
@pytest.mark.parametrize(
    ("at_most", "measured", "retrained", "is_missed"),
    [
        (0.5, None, None, False),
        (0.5, 0.45, None, False),
        (0.5, 0.5, None, False),
        (0.5, 0.55, None, True),
        ("retrained", 0.55, None, False),
        ("retrained", 0.55, 0.6, False),
        ("retrained", 0.55, 0.3, True),
    ],
)
def test_a_strength_above_the_choice_is_measured_only_where_it_misses_its_target(
    tuned, strength, at_most, measured, retrained, is_missed
):
    below, middle, above = CHOSEN[strength]
    assert tuned(strength, at_most, measured, retrained) == [below, middle] + [above] * is_missed
