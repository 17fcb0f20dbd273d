"""The glossary has the words of this sweep, from where they are declared, and no others."""

import pytest

from harness.plugins import METHODS
from harness.reporting.sections.glossary import glossary

GOOD = {"ma": 0.9, "el_3": 0.3, "perplexity": 20.0, "rep_2": 0.1, "mauve": 0.8}


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
