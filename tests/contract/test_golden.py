"""Numbers that may only move together with a plugin's version, and are then written down anew.

After raising a version, or rebuilding the miniature: python tests/contract/test_golden.py
"""

import json
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest
import torch

from harness.execution.tasks import ErasingTask, build_memorized
from harness.models.loading import load_model
from harness.plugins import EVALUATORS, METHODS
from harness.records.artifacts import Artifacts
from harness.settings import replace
from harness.testing import small_spec, small_task
from tests.promises.models import kind_of_cpu

FILE = Path(__file__).with_name("golden.json")
AGAIN = "run python tests/contract/test_golden.py NAME, look at what it changed in golden.json, and commit that"
STRENGTHS = {"task_arithmetic": 0.05, "contrastive_decoding": 0.5, "deliberate_imagination": 10.0, "kfac_edit": 0.002}
STRENGTHS |= {"balanced_subnet": 0.05, "memfree": 10.0}
DIGITS = 1e-5
"""On the kind of CPU that wrote the numbers, in fp32: between one thread and two the numbers move by up to 5e-7."""
ELSEWHERE = 1e-4
"""Another kind sums in another order, 1e-7 of a gradient off; where a gradient is less than that, AdamW makes of it a
whole step up or down. One weight in some 1e5 has such a gradient, so that the numbers of trained models move by 1e-5:
by 1.1e-5 at most between AVX-512, no AVX, and the CPU that wrote the file before. A learning rate 1 % higher moves
them by 3.8e-3 and more, a β2 of 0.99 by 7e-4."""


def erase_small(name, settings, folder, **changes):
    """Return the smallest miniature as a method erases it at one strength, and the forget set."""
    method = METHODS.configure(name, settings)
    spec, artifacts = replace(small_spec(method.reference), **changes), Artifacts(folder)
    if method.reference == "memorized_model":
        build_memorized(spec, artifacts, print)
    task = ErasingTask(spec, artifacts, (settings[method.strength.field],), print)
    return next(method.erase(task)).model, task.forget


def erased_numbers(name, folder):
    """Return the mean and spread of the erased model's log-probabilities on the forget set."""
    settings = {METHODS.load(name).strength.field: STRENGTHS.get(name, 1)}
    model, forget = erase_small(name, settings | ({"epochs": 1} if "deliberate" in name else {}), folder)
    with torch.inference_mode():
        nll = -model(forget.tokens_NT[:, :-1]).logits.log_softmax(-1)
        token_nll = nll.gather(-1, forget.tokens_NT[:, 1:, None])
    return {"nll": float(token_nll.mean()), "spread": float(token_nll.std())}


def measured_numbers(name, definition, folder):
    """Return what an evaluator says of the smallest original model."""
    model = load_model(small_spec().model)
    evaluator = EVALUATORS.configure(name, {"definition": definition} | ({"limit": 32} if name == "reasoning" else {}))
    return dict(evaluator.evaluate(model, small_task(evaluator, model, Artifacts(folder))).numbers)


CASES = {name: (METHODS, partial(erased_numbers, name)) for name in METHODS.names()}
for name in EVALUATORS.names():
    for definition in ("exact", "table"):
        CASES[f"{name}, {definition}"] = EVALUATORS, partial(measured_numbers, name, definition)


def current_version(case):
    return CASES[case][0].load(case.partition(",")[0]).version


def test_the_golden_file_holds_every_plugin_at_its_version_and_on_these_weights():
    golden = json.loads(FILE.read_text())
    assert golden["weights"] == small_spec().model.digest[:16], f"the miniature was rebuilt: {AGAIN}"
    written = {case: entry["version"] for case, entry in golden["plugins"].items()}
    assert written == {case: current_version(case) for case in CASES}, f"a version was raised: {AGAIN}"


CHOOSING = ("memorization, exact", "generation, exact", "reasoning, exact")
"""A token's choice may differ between kinds of CPU, so make test runs these; make numbers runs the others."""


def marked(case):
    """Return a case with its command's mark; those of `table` are make soak's."""
    if case in CHOOSING:
        return case
    return pytest.param(case, marks=pytest.mark.soak if case.endswith("table") else pytest.mark.numbers)


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_numbers_move_only_with_the_version(case, tmp_path):
    entry = json.loads(FILE.read_text())["plugins"][case]
    rel = DIGITS if entry["cpu"] == kind_of_cpu() else ELSEWHERE
    expected = {name: pytest.approx(value, rel=rel, nan_ok=True) for name, value in entry["numbers"].items()}
    assert CASES[case][1](tmp_path) == expected, (
        f"{case} gives other numbers than version {entry['version']} did: raise the plugin's version, say so in "
        f"CHANGELOG.md, and {AGAIN}"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    golden = json.loads(FILE.read_text())
    golden["weights"] = small_spec().model.digest[:16]
    for case in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as folder:
            numbers = CASES[case][1](Path(folder))
        golden["plugins"][case] = {"version": current_version(case), "cpu": kind_of_cpu(), "numbers": numbers}
    golden["plugins"] = {case: golden["plugins"][case] for case in CASES}
    FILE.write_text(json.dumps(golden, indent=1) + "\n")
