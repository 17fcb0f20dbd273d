"""Judges: which may judge what, the original as the judge of its own rows, and what they make of human text."""

import json
import math
from functools import partial

import numpy as np
import pytest

from evaluators.generation import Generation
from harness.analysis.caveats import human_readings, judge_warnings
from harness.contracts import Checkpoint
from harness.execution.tasks import EvaluatingTask
from harness.models.loading import load_model
from harness.records.artifacts import Artifacts
from harness.records.results import PointResults
from harness.settings import replace
from harness.testing import small_spec
from harness.toolkit.scoring import CausalJudge

INFO = {metric.name: metric for metric in Generation().metrics}
OWN = "{perplexity: original, features: original, similarity: OTHER, coherence: OTHER}"


@pytest.fixture
def foreign(tmp_path):
    """A `data` block whose utility texts are not the embedded corpus."""
    texts = [json.dumps({"text": " ".join(map(str, range(number, 40_000, 401)))}) for number in range(8)]
    (tmp_path / "texts.jsonl").write_text("\n".join(texts))
    own = f"{{source: jsonl, path: {tmp_path}/texts.jsonl, prompts: 4}}"
    return f"{{forget: {{source: miniature, sequences: 4}}, retain: {{source: miniature}}, utility: {own}}}"


def judged_by(perplexity):
    return f"{{perplexity: {perplexity}, features: OTHER, similarity: OTHER, coherence: OTHER}}"


@pytest.mark.parametrize("name", ["miniature", "miniature-l"])
def test_a_judge_of_the_embedded_corpus_is_refused_other_texts(check, fault_at, foreign, name):
    said = fault_at("judges.perplexity", data=foreign, judges=judged_by(name))
    assert said.startswith(f"'{name}' has read nothing but the embedded corpus, so it cannot judge utility texts from")
    assert "Write judges: {perplexity: original, features: original}" in said
    assert check(judges=judged_by(name)) == {}, "its own texts it may judge"


@pytest.fixture
def planned(plan_text, sound):
    return partial(plan_text, sound.replace("models: [{id: MODEL, retrained: OTHER}]", "models: [MODEL, OTHER]"))


def keys(outcome, evaluator):
    trials = [(spec.model.id, asked) for spec in outcome.trials for asked in spec.evaluators]
    return {(model, asked.key) for model, asked in trials if asked.name == evaluator}


def test_the_identity_says_that_the_original_judged(planned):
    own, other = planned(f"judges={OWN}"), planned(f"judges={judged_by('OTHER')}")
    assert keys(own, "generation").isdisjoint(keys(other, "generation")), "of OTHER too, which is the same weights"
    assert keys(own, "memorization") == keys(other, "memorization"), "it asks for none of the two"
    assert {spec.trial_id for spec in own.trials} == {spec.trial_id for spec in other.trials}
    assert len(keys(own, "generation")) == len({model for model, _ in keys(own, "generation")}) == 2


@pytest.mark.parametrize("definition", ["exact", "table"])
def test_what_the_judge_makes_of_the_human_texts_is_noted(tmp_path, definition):
    spec = small_spec()
    judges = {**spec.judges, **dict.fromkeys(("perplexity", "features"), replace(spec.model, id="original"))}
    spec = replace(spec, judges=judges, utility=replace(spec.utility, sequences=16))
    task = EvaluatingTask(spec, Artifacts(tmp_path), load_model(spec.model))
    outcome = Generation(mauve_seeds=1, definition=definition).evaluate(task.model, task)
    judge, written = CausalJudge(task.spec.model), task.generations(definition)
    joined = [prompt + text for prompt, text in zip(written.prompts, written.references, strict=True)]
    # `table` has the prompt's own tokens in a perplexity.
    alone = judge.score(written.prompts, written.references)
    read = judge.score([""] * len(joined), joined) if definition == "table" else alone
    noted = outcome.notes["human_perplexity"]
    assert noted["features"] == pytest.approx(math.exp(np.mean([value for row in read.nll for value in row])), rel=1e-5)
    if definition == "exact":
        assert noted["perplexity"] == noted["features"]
    else:
        assert noted["perplexity"] == pytest.approx(math.exp(judge.padded_mean_nll(joined, 200)), rel=1e-5)
    assert 1 < noted["perplexity"] < 100, "it knows the embedded corpus"


@pytest.fixture
def reached(make_row, make_measurement):
    """Return a maker of a measured point whose judge noted what it makes of human text."""

    def make(human, perplexity):
        judges = dict.fromkeys(human, Checkpoint("J", "/j", "/j", "1"))
        spec = make_row("original", (), judges=judges, model=Checkpoint("m", "/m", "/m", "0"))
        (strength,) = spec.points()
        noted = {"notes": {"human_perplexity": human}, "numbers": {"perplexity": perplexity, "mauve": 0.8}}
        return PointResults(spec, strength, None, (make_measurement(spec, strength, "generation", **noted),), "")

    return make


READINGS = [
    ({"perplexity": 1000.0}, 150.0, None),
    ({"perplexity": 1001.0}, 1001.0, "It was not trained on this language, so perplexity says little here."),
    ({"perplexity": 200.0}, 20.0, None),
    ({"perplexity": 201.0}, 20.0, "It fits the original's style and not human text, so perplexity says"),
    ({"features": 15726.0}, 20.0, "It was not trained on this language, so MAUVE says little here."),
]


@pytest.mark.parametrize(("human", "original", "said"), READINGS)
def test_a_judge_that_finds_human_text_odd_is_warned_of(reached, human, original, said):
    warned = judge_warnings(human_readings([reached(human, original)], INFO))
    assert [said in warning for warning in warned] == ([True] if said else [])
