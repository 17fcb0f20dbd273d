"""Plugins: one file is a plugin, a package brings its own, and the conformance suites catch who breaks a rule."""

import re
import subprocess
import sys
import tomllib

import pandas as pd
import pytest

from harness import load_results, run_sweep
from harness.errors import ConfigError
from tests.promises.records_fixtures import ROOT, environment, install

PACKAGE = ROOT / "tests" / "plugin_package"
METHOD = '''
import os
from dataclasses import dataclass
from typing import Annotated
import torch
from harness.contracts import Count, ErasedModel, LogUniform, Method, Strength

HARM = "HARMFUL"

@dataclass(frozen=True, kw_only=True)
class Steps(Method):
    """Goes up the forget set's loss, a step an epoch."""
    label, source, version, reference = "Steps", "this test", 1, "none"
    strength = Strength("epochs", cumulative=True, off=0)
    epochs: Annotated[Count, LogUniform(low=1, high=4)] = 1

    def erase(self, task):
        model, rows, done = task.load_original(), task.forget.tokens_NT[:8, :32], 0
        size = task.training.learning_rate * {"sign": -1, "later": max(task.strengths)}.get(HARM, 1)
        if HARM == "task":
            task.forget.lengths_N[0] -= 1
        for strength in task.strengths:
            for _ in range(int(strength) - done):
                logits = model(input_ids=rows, use_cache=False).logits
                loss = torch.nn.functional.cross_entropy(logits[:, :-1].mT, rows[:, 1:])
                gradients = torch.autograd.grad(loss, list(model.parameters()))
                with torch.no_grad():
                    for weight, gradient in zip(model.parameters(), gradients, strict=True):
                        weight += size * gradient / gradient.norm().clamp_min(1e-9)
            drawn = int.from_bytes(os.urandom(4), "big") * 1e-11
            with torch.no_grad():
                model.transformer.ln_f.bias += {"off": 1e-3, "random": drawn}.get(HARM, 0.0)
            done, named = int(strength), ("h.0.mlp.c_fc",) if HARM == "blocks" else None
            yield ErasedModel(strength + (HARM == "order"), model, changed_blocks=named)
'''
EVALUATOR = '''
import math
import os
from dataclasses import dataclass
import torch
from harness.contracts import Evaluation, Evaluator, Metric

HARM = "HARMFUL"

@dataclass(frozen=True, kw_only=True)
class Loss(Evaluator):
    """The forget set's loss, a number for each sequence."""
    version = 1
    factor: float = 1.0

    @property
    def metrics(self):
        about = {"better": "lower", "unit": "", "low": 0.0, "high": 1e3, "group": "surprise", "source": "this test"}
        loss = Metric(name="loss", title="Loss", items="sequence", aggregate="mean", **about)
        return (loss, Metric(name="unknown", title="Unknown", ranked=False, **about))

    def evaluate(self, model, task):
        rows = task.forget.tokens_NT[:, :32]
        with torch.no_grad():
            logits = model(input_ids=rows, use_cache=False).logits
            losses = torch.nn.functional.cross_entropy(logits[:, :-1].mT, rows[:, 1:], reduction="none").mean(dim=1)
            if HARM == "weights":
                model.transformer.ln_f.bias += 1e-6
        drawn = int.from_bytes(os.urandom(4), "big") / 2**32
        losses = self.factor * losses.double().numpy() * (HARM != "constant") + drawn * (HARM == "noise")
        model.train(HARM == "mode")
        if HARM == "draw":
            torch.rand(1)
        loss = -1.0 if HARM == "range" else float(losses.mean()) + (HARM == "items")
        return Evaluation({"loss": loss, "unknown": math.nan}, per_item={"loss": losses})
'''
SWEEP = """# Do plugins take part as ours do?
name: plugged
models: [miniature-s]
data:
  forget: {source: miniature, sequences: 8, sequence_tokens: 48, prefix_tokens: 16}
  holdout: {source: miniature, sequences: 8}
  retain: {source: miniature, sequences: 8, sequence_tokens: 48}
  utility: {source: miniature, prompts: 4}
  validation: {source: miniature, sequences: 4}
training: {learning_rate: 1.0e-2, global_batch: 4, early_stop: null}
methods: {steps: {epochs: [1, 2]}, unlikelihood: {epochs: [1, 2]}}
evaluators: {loss: {factor: 2.0}, loss_attack: {}}
collapse: {}
keep_erased: none
"""
TESTS = """
import harness
from harness.testing import EvaluatorConformance, MethodConformance

def test_sweep():  # In this process, since each new one takes seconds to import what it needs.
    assert not harness.run_sweep("plugged.yaml", executor="inline", results="r").unfinished
"""
METHODS = {
    "steps": ("test_it_introduces_itself", ""),
    "broken_off": ("test_off_changes_nothing", ""),
    "broken_sign": ("test_its_first_step_forgets", "memorises"),
    "broken_random": ("test_the_same_seed_gives_the_same_model", ""),
    "broken_later": ("test_later_strengths_change_no_earlier_one", ""),
    "broken_order": ("test_it_yields_each_strength_and_leaves_all_else_as_it_was", ""),
    "broken_task": ("test_it_yields_each_strength_and_leaves_all_else_as_it_was", "task.forget"),
    "broken_blocks": ("test_it_keeps_its_promise_about_blocks", ""),
}
EVALUATORS = {
    "loss": ("test_it_reports_what_it_declares", ""),
    "broken_items": ("test_it_reports_what_it_declares", "items"),
    "broken_range": ("test_it_reports_what_it_declares", "loss"),
    "broken_weights": ("test_it_leaves_everything_as_it_was", "weights"),
    "broken_mode": ("test_it_leaves_everything_as_it_was", "mode"),
    "broken_draw": ("test_it_leaves_everything_as_it_was", "random"),
    "broken_noise": ("test_the_same_model_gets_the_same_numbers", ""),
    "broken_constant": ("test_worse_models_get_worse_numbers", "surprise"),
}
"""The rule that each plugin breaks, and a word that is said of it; the first of each kind breaks none."""
KINDS = {
    "methods": (METHOD, "MethodConformance", METHODS),
    "evaluators": (EVALUATOR, "EvaluatorConformance", EVALUATORS),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A folder with a sweep, and what the suites said of plugins: in full of a sound one, else by the rule it breaks.

    The sound ones are a file in `methods/` and in `evaluators/`, the others come from packages.
    """
    folder = tmp_path_factory.mktemp("plugins")
    tests, chosen, entry_points = [TESTS], ["test_all.py::test_sweep"], {}
    for kind, (template, suite, rules) in KINDS.items():
        (folder / kind).mkdir()
        for path in (ROOT / kind).iterdir():
            (folder / kind / path.name).symlink_to(path)
        sound, *broken = rules
        (folder / kind / f"{sound}.py").write_text(template)
        entry_points[f"harness.{kind}"] = {name: name for name in broken}
        for name in broken:
            (folder / f"{name}.py").write_text(template.replace("HARMFUL", name.removeprefix("broken_")))
        tests += [f"class Test_{name}({suite}):\n    plugin = '{name}'\n" for name in rules]
        chosen += [f"test_all.py::Test_{sound}", *(f"test_all.py::Test_{name}::{rules[name][0]}" for name in broken)]
    install(folder, "broken", entry_points)
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    install(folder, "lethe_unlikelihood", project["entry-points"])
    for name, text in (("test_all.py", "\n".join(tests)), ("pytest.ini", "[pytest]\n"), ("plugged.yaml", SWEEP)):
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-rA", "--tb=short", "-p", "no:cacheprovider", *chosen]
    around = environment(folder, PACKAGE / "src", COLUMNS="300", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    done = subprocess.run(command, cwd=folder, env=around, capture_output=True, text=True, check=False)
    said = re.findall(r"^(\w+) test_all\.py::(?:Test_(\w+)::)?(\w+)(.*)", done.stdout, flags=re.MULTILINE)
    outcomes = {(plugin, test): (outcome, why) for outcome, plugin, test, why in said}
    assert outcomes["", "test_sweep"][0] == "PASSED", done.stdout + done.stderr
    return folder / "r" / "plugged", outcomes


def test_a_file_in_methods_and_one_in_evaluators_are_a_method_and_a_metric(ran):
    rows = pd.read_csv(ran[0] / "table.csv").set_index(["variant", "strength"])["loss"]
    assert rows["steps", 2] > rows["steps", 1] > rows["original"].item() > 0
    assert load_results(ran[0]).table["loss"].tolist() == rows.tolist()
    assert "Steps" in (ran[0] / "report.html").read_text()


def test_a_package_brings_a_method_and_a_metric_by_its_entry_points(ran):
    rows = pd.read_csv(ran[0] / "table.csv")
    assert sorted(rows.query("variant == 'unlikelihood'")["strength"]) == [1, 2]
    auc = rows.set_index("variant")["loss_auc"]
    assert auc["original"] > 0.9 > auc["retrained"], "an AUC of 1 tells all, one of a half nothing"


def test_what_a_plugin_cannot_measure_is_empty_and_never_0(ran):
    header, *lines = (ran[0] / "table.csv").read_text().splitlines()
    assert {line.split(",")[header.split(",").index("unknown")] for line in lines} == {""}
    assert load_results(ran[0]).table["unknown"].isna().all()


def test_a_plugin_that_nobody_brought_is_named(tmp_path):
    (tmp_path / "plugged.yaml").write_text(SWEEP)
    with pytest.raises(ConfigError) as refused:
        run_sweep(tmp_path / "plugged.yaml", executor="inline", results=tmp_path)
    assert all(f"'{name}'" in str(refused.value) for name in ("steps", "unlikelihood", "loss", "loss_attack"))


@pytest.mark.parametrize("plugin", ["steps", "loss"])
def test_a_plugin_that_breaks_no_rule_conforms(ran, plugin):
    outcomes = [outcome for (name, _), (outcome, _) in ran[1].items() if name == plugin]
    assert len(outcomes) >= 4
    assert set(outcomes) == {"PASSED"}, "skipped ones are not among them"


@pytest.mark.parametrize("plugin", [*list(METHODS)[1:], *list(EVALUATORS)[1:]])
def test_a_plugin_that_breaks_a_rule_is_caught_by_it(ran, plugin):
    rule, word = (METHODS | EVALUATORS)[plugin]
    outcome, why = ran[1][plugin, rule]
    assert outcome == "FAILED"
    assert word in why
