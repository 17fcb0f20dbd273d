"""Sweeps that ask for too much and texts in other forms: refused in a sentence, soon, with what it names."""

from harness.planning.grid import MAX_TRIALS


def test_trials_are_counted_before_they_are_made(check):
    found = check(methods=f"{{emso: {{epochs: {list(range(400))}, k: {list(range(1, 400))}}}}}")
    assert "159,600 combinations" in found["methods.emso"]
    assert f"at most {MAX_TRIALS:,}" in found["methods.emso"]


def test_a_search_has_bounds(check):
    tune = "until: {ma: 0.9}\ntune: {budget: {trials: 4}, space: {emso: {epochs: {low: 1, high: 1000000000}}}}"
    replaced = {"methods": "{emso: }", "ranking": None, "training": "{precision: fp32}"}
    found = check(**{**replaced, "keep_erased": f"none\n{tune}"})
    assert "high may be 10,000 at most" in found["tune.space.emso.epochs"]
