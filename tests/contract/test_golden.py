"""Numbers that may only move together with a plugin's version, and are then written down anew.

After raising a version, or rebuilding the miniature: python tests/contract/test_golden.py
"""

import json
import tempfile
from pathlib import Path

import pytest
import torch

from harness.execution.inputs import forget_set
from harness.execution.memorized import build_memorized
from harness.execution.small import small_spec
from harness.execution.tasks import ErasingTask, MeasuringTask
from harness.models.loading import load_model
from harness.plugins import EVALUATORS, METHODS
from harness.records.artifacts import Artifacts

FILE = Path(__file__).with_name("golden.json")
AGAIN = "run python tests/contract/test_golden.py, look at what it changed in golden.json, and commit that"
STRENGTHS = {"task_arithmetic": 0.05, "contrastive_decoding": 0.5, "deliberate_imagination": 10.0}
TOLERANCE = 1e-5
"""In fp32. Another number of threads, or another CPU, sums in another order: between one thread and two the numbers of
trained models move by up to 5e-7, those of untouched ones not at all."""
ENCODER_TOLERANCE = 1e-3
"""The encoder of sentences computes in bf16, which CPUs with and without instructions for it round differently: between
two machines similarity moved by 1.6e-4, coherence by 8e-6."""
ENCODED = ("ss", "coherence")


def erased_numbers(name, folder):
    """Return the mean and spread of the erased model's log-probabilities on the forget set."""
    method = METHODS.load(name)
    spec, artifacts = small_spec(method.reference), Artifacts(folder)
    forget = forget_set(spec)
    if method.reference == "memorized_model":
        build_memorized(spec, artifacts, lambda: load_model(spec.model), print)
    strength = STRENGTHS.get(name, 1)
    settings = {method.strength.field: strength} | ({"epochs": 1} if "deliberate" in name else {})
    erased = next(METHODS.configure(name, settings).erase(ErasingTask(spec, artifacts, (strength,), print)))
    with torch.inference_mode():
        nll = -erased.model(forget.tokens_NT[:, :-1]).logits.log_softmax(-1)
        token_nll = nll.gather(-1, forget.tokens_NT[:, 1:, None])
    return {"nll": float(token_nll.mean()), "spread": float(token_nll.std())}


def measured_numbers(name, definition, folder):
    """Return what an evaluator says of the smallest original model."""
    spec = small_spec()
    model = load_model(spec.model)
    evaluator = EVALUATORS.configure(name, {"definition": definition})
    return dict(evaluator.evaluate(model, MeasuringTask(spec, Artifacts(folder), model)).numbers)


CASES = {
    **{name: (METHODS, lambda folder, name=name: erased_numbers(name, folder)) for name in METHODS.names()},
    **{
        f"{name}, {definition}": (
            EVALUATORS,
            lambda folder, name=name, definition=definition: measured_numbers(name, definition, folder),
        )
        for name in EVALUATORS.names()
        for definition in ("exact", "table")
    },
}


def current_version(case):
    return CASES[case][0].load(case.partition(",")[0]).version


def test_the_golden_file_holds_every_plugin_at_its_version_and_on_these_weights():
    golden = json.loads(FILE.read_text())
    assert golden["weights"] == small_spec().model.digest[:16], f"the miniature was rebuilt: {AGAIN}"
    written = {case: entry["version"] for case, entry in golden["plugins"].items()}
    assert written == {case: current_version(case) for case in CASES}, f"a version was raised: {AGAIN}"


@pytest.mark.parametrize("case", CASES)
def test_numbers_move_only_with_the_version(case, tmp_path):
    entry = json.loads(FILE.read_text())["plugins"][case]
    tolerances = {name: ENCODER_TOLERANCE if name in ENCODED else TOLERANCE for name in entry["numbers"]}
    expected = {name: pytest.approx(value, rel=tolerances[name]) for name, value in entry["numbers"].items()}
    assert CASES[case][1](tmp_path) == expected, (
        f"{case} gives other numbers than version {entry['version']} did: raise the plugin's version, say so in "
        f"CHANGELOG.md, and {AGAIN}"
    )


if __name__ == "__main__":
    plugins = {}
    for case, (_, numbers_of) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            plugins[case] = {"version": current_version(case), "numbers": numbers_of(Path(folder))}
    FILE.write_text(json.dumps({"weights": small_spec().model.digest[:16], "plugins": plugins}, indent=1) + "\n")
