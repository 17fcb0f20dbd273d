"""Numbers that may only move together with a plugin's version.

After raising a version, or rebuilding the miniature: python tests/contract/test_golden.py
"""

import json
from pathlib import Path

import pytest
import torch

from harness.execution.inputs import forget_set
from harness.execution.memorized import build_memorized
from harness.execution.tasks import ErasingTask, MeasuringTask
from harness.models.loading import load_model
from harness.plugins import EVALUATORS, METHODS
from harness.records.artifacts import Artifacts
from harness.testing import small_spec

FILE = Path(__file__).with_name("golden.json")
STRENGTHS = {"task_arithmetic": 0.05, "contrastive_decoding": 0.5, "deliberate_imagination": 10.0}


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


def measured_numbers(name, folder):
    spec = small_spec()
    model = load_model(spec.model)
    return dict(EVALUATORS.configure(name, {}).evaluate(model, MeasuringTask(spec, Artifacts(folder), model)).numbers)


def found(kind, name, folder):
    shelf, numbers = (METHODS, erased_numbers) if kind == "method" else (EVALUATORS, measured_numbers)
    return {
        "version": shelf.load(name).version,
        "weights": small_spec().model.digest[:16],
        "numbers": numbers(name, folder),
    }


PLUGINS = [("method", name) for name in METHODS.names()] + [("evaluator", name) for name in EVALUATORS.names()]


@pytest.mark.parametrize(("kind", "name"), PLUGINS)
def test_numbers_move_only_with_the_version(kind, name, tmp_path):
    golden = json.loads(FILE.read_text())[name]
    now = found(kind, name, tmp_path)
    assert now["weights"] == golden["weights"], f"the miniature was rebuilt: run python {Path(__file__).name}"
    if now["version"] == golden["version"]:
        assert now["numbers"] == pytest.approx(golden["numbers"], rel=5e-3, abs=5e-3), (
            f"{name} gives other numbers: raise its version, say so in CHANGELOG.md, and run this file"
        )
    else:
        assert now["version"] > golden["version"]


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        numbers = {name: found(kind, name, Path(place)) for kind, name in PLUGINS}
    FILE.write_text(json.dumps(numbers, indent=1) + "\n")
