"""The glossary has the words of this sweep, from where they are declared, and no others."""

import pytest

from harness.plugins import METHODS
from harness.reporting.sections.glossary import glossary

GOOD = {"ma": 0.9, "el_3": 0.3, "perplexity": 20.0, "rep_2": 0.1, "mauve": 0.8}
LOOPING = GOOD | {"perplexity": 1.5, "rep_2": 0.99, "mauve": 0.01}


@pytest.fixture
def words(make_row, make_plan, make_measurement, make_ranked):
    """Return a maker of a sweep's glossary from its rows: each a name, its strengths, and what else is given."""

    def make(*rows, numbers=GOOD, definition="exact"):
        specs = [make_row(name, strengths, evaluators={"all": "k"}, **changes) for name, strengths, changes in rows]
        kept = {
            spec.trial_id: [
                make_measurement(spec, strength, "all", GOOD if spec.is_reference else numbers, definition=definition)
                for strength in spec.points()
            ]
            for spec in specs
        }
        plan = make_plan(*specs)
        return {title: dict(entries) for title, entries in glossary(plan, make_ranked(plan, kept)[1]).items()}

    return make


ORIGINAL = ("original", (), {"label": "Original"})
EMSO = ("emso", (1,), {"label": "EMSO"})
TA = ("task_arithmetic", (0.1,), {"label": "TA", "reference": "memorized_model"})


def test_every_measured_metric_is_explained_by_its_declaration(words, declared):
    told = words(ORIGINAL, EMSO)["Metrics"]
    [ma] = declared("ma")
    assert set(told) == {metric.title for metric in declared(*GOOD)}
    assert told["MA"] == f"{ma.meaning}; fraction, 0 to 1, lower is better; erasure ({ma.source})"
    assert "from 1, lower is better" in told["Perplexity"]
    assert "runs of 2 words" in told["Rep_2"]


def test_methods_groups_and_rows_are_those_of_the_sweep(words):
    told = words(ORIGINAL, EMSO, TA)
    assert list(told["Methods"]) == ["EMSO", "TA"], "in the sweep's order"
    assert told["Methods"]["TA"] == f"task_arithmetic, {METHODS.load('task_arithmetic').source}; strength: epochs"
    assert set(told["Groups of methods"]) == {"w/o REF", "w/ MM"}
    assert set(told["Reference rows"]) == {"Original"}
    assert "Groups of methods" not in words(ORIGINAL)
    assert set(words(ORIGINAL, ("retrained", (), {"label": "Retrained"}))["Reference rows"]) == {
        "Original",
        "Retrained",
    }


def test_a_method_that_is_not_installed_is_named_all_the_same(words):
    assert words(ORIGINAL, ("gone", (1,), {"label": "Gone"}))["Methods"] == {"Gone": "gone, strength: epochs"}


def test_states_are_those_that_points_have(words):
    healthy, looping = words(ORIGINAL, EMSO)["State"], words(ORIGINAL, EMSO, numbers=LOOPING)["State"]
    assert set(healthy) == {"collapsed", "healthy"}
    assert set(looping) == {"collapsed", "healthy", "degenerate"}
    assert healthy["collapsed"].startswith("its MAUVE is below 0.25 times the original's")


@pytest.mark.parametrize(("definition", "other"), [("exact", "table"), ("table", "exact")])
def test_the_definition_is_the_one_that_measured(definition, other, words):
    told = words(ORIGINAL, EMSO, definition=definition)["Definitions"]
    assert set(told) == {definition}
    assert other not in told


def test_where_nothing_is_erased_nothing_is_said_of_erasing(words):
    told = words(ORIGINAL)
    assert set(told) == {"Words", "Metrics", "Reference rows", "Definitions"}
    assert "rank" not in str(told)
