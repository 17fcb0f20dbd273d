"""Evaluators that read unseen or retain texts: who gets them, what is refused, and what is measured anew."""

import ast
import json
import re
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from harness.drafting.first_sweep import evaluator_lines
from harness.errors import ConfigError
from harness.execution.tasks import EvaluatingTask
from harness.plugins import EVALUATORS
from harness.records.artifacts import Artifacts
from harness.settings import replace
from harness.testing import FORGET, MORE_TEXTS, RETAIN, small_spec
from tests.unit.planning import test_holdout

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "tests" / "plugin_package" / "src" / "lethe_unlikelihood"
HOLDOUT = "data.holdout={source: jsonl, path: FOLDER/letters.jsonl, start: 6}"
RETAINED = "data.retain={source: jsonl, path: FOLDER/passages.jsonl, start: 8, sequences: 4}"


@pytest.fixture
def attack(monkeypatch):
    """Make an outside package's evaluator one of this process, and return its module."""
    monkeypatch.syspath_prepend(PACKAGE.parent)
    module = import_module("lethe_unlikelihood.loss_attack")
    EVALUATORS.add("loss_attack", module)
    yield module
    vars(EVALUATORS).pop("_entry_points", None)


@pytest.fixture
def planned(plan_text, tmp_path, attack):
    """Return a planner of FILE with changes, beside sixteen letters and passages of 60 bytes."""
    for name in ("letters", "passages"):
        texts = (f"{name} {number:02} {test_holdout.noise(f'{name} {number}')}" for number in range(16))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    return partial(plan_text, test_holdout.FILE.replace("generation: ", "language_modelling: , loss_attack: "))


def keys(found, method="emso"):
    [spec] = [spec for spec in found.trials if spec.method == method]
    return spec.trial_id, {evaluator.name: evaluator.key for evaluator in spec.evaluators}


def test_a_sweep_without_what_an_evaluator_reads_is_refused(planned, attack, monkeypatch):
    with pytest.raises(ConfigError, match=r"reads texts of the forget set's kind that the model never saw.*holdout\."):
        planned()
    planned(HOLDOUT)
    monkeypatch.setattr(attack.LossAttack, "reads", ("retain",))
    with pytest.raises(ConfigError, match=r"reads retain texts, and the sweep has none: add data\.retain"):
        planned(HOLDOUT)
    planned(RETAINED)


def test_a_changed_holdout_is_measured_anew_by_what_reads_it_and_by_nothing_else(planned, tmp_path):
    trial, before = keys(planned(HOLDOUT))
    assert keys(planned(HOLDOUT)) == (trial, before)
    (tmp_path / "others.jsonl").write_text((tmp_path / "letters.jsonl").read_text().replace("letters 07", "letters X"))
    after = keys(planned(HOLDOUT.replace("letters", "others")))
    assert after[0] == trial
    assert after[1]["language_modelling"] == before["language_modelling"]
    for name in ("loss_attack", "memorization"):
        assert after[1][name] != before[name]


def test_no_other_identity_knows_of_what_an_evaluator_reads(planned):
    with_holdout = keys(planned(HOLDOUT))
    alone = keys(planned("evaluators={memorization: , language_modelling: }"))
    assert (with_holdout[0], with_holdout[1]["language_modelling"]) == (alone[0], alone[1]["language_modelling"])
    assert keys(planned(HOLDOUT, RETAINED)) == with_holdout, "the retain texts are not read"


def test_unseen_texts_are_not_compared_with_themselves(planned, attack, monkeypatch):
    of_erasure = replace(attack.LossAttack().metrics[0], group="erasure")
    monkeypatch.setattr(attack.LossAttack, "metrics", property(lambda self: (of_erasure,)))
    assert keys(planned(HOLDOUT), "holdout")[1].keys() == {"memorization"}
    monkeypatch.setattr(attack.LossAttack, "reads", ())
    assert keys(planned(HOLDOUT), "holdout")[1].keys() == {"memorization", "loss_attack"}


def test_an_attack_that_no_difference_of_means_describes_is_refused(planned, attack, monkeypatch):
    [metric] = attack.LossAttack().metrics
    wrong = replace(metric, attack="Loss", aggregate="exp_mean")
    monkeypatch.setattr(attack.LossAttack, "metrics", property(lambda self: (wrong,)))
    with pytest.raises(ConfigError, match="'loss_auc' is an attack and an exp_mean"):
        planned(HOLDOUT)
    monkeypatch.setattr(attack.LossAttack, "metrics", property(lambda self: (replace(metric, attack="Loss"),)))
    assert keys(planned(HOLDOUT))[1]


def test_a_first_file_leaves_out_what_reads_unseen_texts_if_there_are_none(attack):
    [row] = [line for line in evaluator_lines({}, has_holdout=True) if "loss_attack" in line]
    assert row == "loss_attack: {}"
    [row] = [line for line in evaluator_lines({}, has_holdout=False) if "loss_attack" in line]
    assert row.startswith("# loss_attack: {}   # reads data.holdout")


def test_an_evaluator_gets_what_it_declares_and_no_more(tmp_path, make_model):
    model = make_model()
    task = EvaluatingTask(small_spec(), Artifacts(tmp_path), model)
    assert (task.holdout, task.retain, task.validation) == (None, None, None)
    texts = {role: replace(source, sequences=4) for role, source in MORE_TEXTS.items()}
    for role in texts:
        task = EvaluatingTask(small_spec(), Artifacts(tmp_path), model, texts={role: texts[role]})
        [given] = [each for each in (task.holdout, task.retain, task.validation) if each is not None]
        assert given is getattr(task, role)
        assert len(given) == 4
        assert task.changes() == []
        given.tokens_NT.fill_(5)
        assert task.changes() == [f"task.{role}.tokens_NT"]
        again = EvaluatingTask(small_spec(), Artifacts(tmp_path), model, texts={role: texts[role]})
        assert getattr(again, role).tokens_NT.float().std() > 0, "each has a copy of its own"
    assert tuple(MORE_TEXTS.values())[:2] == (FORGET, RETAIN)


def test_the_guides_show_the_plugins_that_are_tested():
    def meaning(code):
        return [ast.dump(part) for part in ast.parse(code).body[1:]]

    for page, file in (("add-a-method.md", "unlikelihood.py"), ("add-a-metric.md", "loss_attack.py")):
        code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)[0]
        assert meaning(code) == meaning((PACKAGE / file).read_text())
