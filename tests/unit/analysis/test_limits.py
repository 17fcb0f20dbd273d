"""What limits the numbers: each sentence where it holds, and none where it doesn't."""

from dataclasses import replace

import pytest

from harness.analysis.caveats.warnings import design_limits
from harness.contracts import Checkpoint, Training

NUMBERS = {"el_3": 0.3, "ma": 0.9, "perplexity": 20.0, "mauve": 0.8}
ONE_SEED, ONE_RATE, NOISE = "One training seed:", "ran at one learning rate", "Below the noise"
WHOLE = "every epoch is one step on all of them"


@pytest.fixture
def said(make_row, make_plan, make_point, make_measurement, make_ranked):
    """Return what limits a sweep of `variants` (name to the changes of its numbers), which all were trained."""

    def run(variants, seeds=(0,), rates=None, batch=4, rows=8, memorized=(), models=("m",)):
        trials, records_of = [], {}
        for model in models:
            for seed in seeds:
                for name in ("original", *variants):
                    erases = name in variants
                    training = Training(learning_rate=(rates or {}).get((model, name), 1e-3), global_batch=batch)
                    reference = "memorized_model" if name in memorized else "none"
                    spec = make_row(name, (1, 2) if erases else (), seed, training=training, reference=reference)
                    spec = replace(spec, model=Checkpoint(model, "/m", "/m", model), trial_id=f"{name}-{model}-{seed}")
                    memorization = replace(spec.memorization, global_batch=batch)
                    spec = replace(spec, forget=replace(spec.forget, rows=rows), memorization=memorization)
                    numbers = NUMBERS | {key: value + 0.001 * seed for key, value in variants.get(name, {}).items()}
                    notes = {} if name in memorized or not erases else {"optimizer_steps": 2}
                    told = {"standard_errors": {"ma": 0.01}}
                    trials.append(spec)
                    records_of[spec.trial_id] = [
                        record
                        for strength in spec.points()
                        for record in (
                            make_point(spec, strength, notes=notes),
                            make_measurement(spec, strength, numbers=numbers, notes=told),
                        )
                    ]
        results, ranked = make_ranked(make_plan(*trials), records_of)
        return design_limits(results.measured, ranked)

    return run


APART = {"emso": {}, "ga": {"mauve": 0.3, "perplexity": 30.0, "ma": 0.2, "el_3": 0.1}}


def about(sentences, part):
    return [sentence for sentence in sentences if part in sentence]


def test_a_sweep_of_three_seeds_and_rates_of_their_own_has_no_limits(said):
    assert said(APART, seeds=(0, 1, 2), rates={("m", "ga"): 1e-4}) == []
    assert said({}) == [], "nothing was erased"


def test_seeds(said):
    assert about(said(APART), ONE_SEED) == [
        "One training seed: intervals are over items (what other texts would have given, not other training runs), so "
        "no letter compares methods and none is marked as the best. What is missing: two more seeds, about 26.0 s by "
        "what this one took."
    ]
    assert about(said(APART, seeds=(0, 1)), "seeds: intervals") == [
        "2 seeds: intervals over fewer than 3 are very wide."
    ]


def test_one_learning_rate_for_all(said):
    assert about(said(APART), ONE_RATE) == [
        "All trained methods ran at one learning rate (0.001): a ranking at one rate ranks rates."
    ]
    assert not about(said(APART, rates={("m", "ga"): 1e-4}), ONE_RATE)
    assert not about(said({"emso": {}}), ONE_RATE), "one method is not compared"
    assert not about(said(APART, memorized=("ga",)), ONE_RATE), "what trains nothing has no rate"
    two = {(model, name): rate for model, rate in (("m", 1e-3), ("n", 1e-4)) for name in APART}
    assert "(0.0001, 0.001)" in about(said(APART, rates=two, models=("m", "n")), ONE_RATE)[0]


def test_one_seed_cannot_tell_small_differences(said):
    close = APART | {"kl": {"mauve": 0.74, "perplexity": 21.1}, "di": {"mauve": 0.68, "perplexity": 24.0}}
    assert about(said(close), NOISE) == [
        "Below the noise on m (one seed; floors: Perplexity 6 %, MAUVE 0.07) are the differences of neighbours in "
        "Perplexity: EMSO ≈ KL; MAUVE: DI ≈ KL ≈ EMSO."
    ]
    assert not about(said(APART), NOISE)
    assert not about(said({"emso": {}, "kl": {"mauve": 0.72, "perplexity": 21.3}}), NOISE)


def test_a_batch_above_the_forget_set(said):
    assert about(said(APART, batch=9), WHOLE) == [
        "training.global_batch (9) is above the number of forget sequences (8): every epoch is one step on all of them."
    ]
    assert not about(said(APART, batch=8), WHOLE)
    assert not about(said(APART, batch=9, rows=0), WHOLE), "how many there are is not known"
    assert about(said({"ta": {}}, batch=9, memorized=("ta",)), WHOLE)[0].startswith("memorized_model.global_batch (9)")
