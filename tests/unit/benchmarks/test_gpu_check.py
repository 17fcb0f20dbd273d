"""The check of a GPU, where a CPU and a tiny model stand in for one."""

import pytest
import torch
from transformers import GPTNeoConfig

from benchmarks import gpu_check
from harness.contracts import ErasedModel
from harness.plugins import METHODS


def tiny():
    return GPTNeoConfig(
        vocab_size=300, hidden_size=16, num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]],
        max_position_embeddings=32, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


def run(folder, minutes=20):
    """Check a CPU; return the exit code and the page's text and rows."""
    models, pages = folder / "models", folder / "pages"
    bench = gpu_check.Bench(torch.device("cpu"), "A CPU (8 GB)", models, {"tiny": tiny}, sequences=4, tokens=12)
    code = gpu_check.check(bench, pages, minutes)
    text = (pages / "gpu_check_a_cpu_8_gb.md").read_text()
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return code, text, {(row[0], row[2]): dict(zip(cells[0], row, strict=True)) for row in cells[2:]}


def test_the_page_says_what_came_out(tmp_path):
    code, text, rows = run(tmp_path)
    assert (code, "0 failed." in text, "skipped" in text) == (0, True, False)
    assert f"- torch: {torch.__version__}" in text
    for method in ("emso", "gradient_ascent", "kl_divergence", "gradient_difference"):
        assert float(rows[f"MB of {method}", "fp32"]["share"].split()[0]) == pytest.approx(100, abs=5)
        assert (f"MB of {method}", "bf16") in rows
    assert ("MB of measuring", "fp32") in rows
    for precision in ("fp32", "bf16"):
        for what in ("training", "reading", "stepping"):
            assert float(rows[f"{what}, tokens a second", precision]["measured"].replace(",", "")) > 0
    for passes in (0, 40):
        assert float(rows[f"perplexity after {passes} passes", "bf16"]["share"].split()[0]) == pytest.approx(100, abs=5)
        assert rows[f"choices kept after {passes} passes", "bf16"]["should be"] == "44"
    for stage in (2, 3):
        assert float(rows[f"ZeRO-{stage}, weights apart", "fp32"]["share"].split()[0]) < 5
        assert f"MB of gradient_ascent, deepspeed ZeRO-{stage}" in {what for what, _ in rows}


def test_what_raises_is_not_finite_or_trained_to_other_weights_fails_and_the_rest_runs(tmp_path, monkeypatch):
    def wrong(self, task):
        raise KeyError("no tokenizer")

    def diverging(self, task):
        yield ErasedModel(1, task.load_original(), {"loss_mean": float("nan")})

    monkeypatch.setattr(METHODS.load("emso"), "erase", wrong)
    monkeypatch.setattr(METHODS.load("gradient_difference"), "erase", diverging)
    monkeypatch.setattr(gpu_check, "WEIGHT_TOLERANCE", -1)
    code, text, rows = run(tmp_path)
    assert code == 1
    assert "- failed: tiny, emso, fp32: KeyError('no tokenizer')\n" in text
    assert "- failed: tiny, gradient_difference, bf16: ValueError('not finite: loss_mean.')\n" in text
    assert "- failed: tiny, ZeRO-2: ValueError('it trained to other weights: " in text
    assert ("ZeRO-2, weights apart", "fp32") in rows, "what was measured before stays"
    assert ("MB of kl_divergence", "bf16") in rows
