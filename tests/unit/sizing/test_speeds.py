"""How long a sweep takes: each figure by hand, from what its model took before."""

import math
from dataclasses import replace

import pytest

from harness.contracts import Checkpoint
from harness.records.journal import Journal
from harness.records.results import read_results
from harness.reporting.plan import time_sentence
from harness.sizing.speeds import ExpectedTime, Speeds, expected_time, speeds_of
from harness.specs import Source

FORGET, UTILITY = Source(source="miniature", rows=10), Source(source="miniature", rows=30)
DIGEST = "0" * 16


@pytest.fixture
def sweep(tmp_path, make_row, make_plan, make_measurement, make_point):
    """Return a maker of results: of EMSO, 3 epochs in 6 s, each point measured in 8 s."""
    emso = make_row("emso", (1, 3), forget=FORGET, utility=UTILITY)
    others = make_row("original", forget=FORGET, utility=UTILITY), make_row("gradient_ascent", (2,), forget=FORGET)
    plan = make_plan(others[0], emso, replace(others[1], utility=UTILITY))

    def make(measured=()):
        journal = Journal(tmp_path / "journal")
        for strength in measured:
            journal.append(replace(make_point(emso, strength), erase_seconds=2.0 * strength))
            for evaluator in emso.evaluators:
                numbers = {"ma": 0.5} if evaluator.name == "memorization" else {"perplexity": 3.0}
                journal.append(make_measurement(emso, strength, evaluator.name, numbers, seconds=8.0))
        return read_results(plan, journal)

    return make


def test_speeds_are_seconds_for_each_text_and_pass(sweep):
    speeds = speeds_of([sweep((1, 3))])
    assert speeds == {DIGEST: Speeds({"memorization": 8 / 40, "generation": 8 / 40}, {"emso": 6.0 / (10 * 3)})}
    assert speeds_of([sweep()])[DIGEST].erasing == {"emso": pytest.approx(0.2)}, "the journal has it still"


def test_what_is_left_is_counted_once(sweep):
    speeds = {DIGEST: Speeds({"memorization": 0.1, "generation": 0.2}, {"emso": 0.5})}
    point = 40 * (0.1 + 0.2)
    of_original, of_emso, of_ascent = point, 2 * point + 10 * 3 * 0.5, point + 10 * 2 * 0.5
    left = expected_time(sweep(), (), speeds, at_once=1)
    assert left == ExpectedTime(pytest.approx(of_original + of_emso + of_ascent))
    assert expected_time(sweep(), (), speeds, at_once=8).seconds == pytest.approx(of_emso), "the longest alone"
    after_one = expected_time(sweep((1,)), (), speeds, at_once=1).seconds
    assert after_one == pytest.approx(left.seconds - point), "all three epochs again for the last point"
    done = expected_time(sweep((1, 3)), (), speeds, at_once=1).seconds
    assert done == pytest.approx(of_original + of_ascent)


def test_a_memorised_model_counts_as_training(sweep):
    results = sweep()
    speeds = {DIGEST: Speeds({"memorization": 0.1, "generation": 0.2}, {"emso": 0.5})}
    spec = results.trials[1].spec
    more = expected_time(results, [spec], speeds, 1).seconds - expected_time(results, (), speeds, 1).seconds
    assert more == pytest.approx(10 * spec.memorization.epochs * 0.5)


def test_what_is_not_known_is_said_and_nothing_is_guessed_from_another_model(sweep):
    partly = expected_time(sweep(), (), {DIGEST: Speeds({"memorization": 0.1}, {"emso": 0.5})}, 1)
    assert partly.unknown == ("generation",)
    assert partly.seconds == pytest.approx(4 * 40 * 0.1 + 15 + 10)
    of_other = {"1" * 16: Speeds({"memorization": 0.1}, {"emso": 0.5})}
    unknown = expected_time(sweep(), (), of_other, 1)
    assert math.isnan(unknown.seconds)
    assert "is not known" in time_sentence(unknown, 2)
    other = Checkpoint("other", "/o", "/o", "1" * 16)
    assert speeds_of([sweep((1,))]).keys() == {DIGEST} != {other.digest}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, ""),
        (5.0, "about 1 minute on this machine, 2 trials at once."),
        (610, "about 11 minutes"),
        (9000, "2.5 hours"),
    ],
)
def test_the_time_in_words(seconds, said):
    assert said in time_sentence(ExpectedTime(seconds), 2)
    assert (time_sentence(ExpectedTime(seconds), 2) == "") == (not seconds)
    if seconds:
        left_out = time_sentence(ExpectedTime(seconds, ("reasoning",)), 2)
        assert left_out.endswith(" Not counted: reasoning, never measured here.")
