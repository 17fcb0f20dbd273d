"""LoRA in a sweep file: what its trials are called, which rows refuse it and where, and what they need."""

from functools import partial

import pytest

from harness import plugins
from harness.contracts import LoRA, Training
from harness.planning.tuning import searchable_types
from harness.records.artifacts import memorized_key

METHODS = "methods={gradient_ascent: {epochs: [1]}, task_arithmetic: {gamma: 0.05}}"


@pytest.fixture
def trials(plan_text, sound):
    """Return a planner: changes to a sweep file in, its trials by variant out."""
    planned = partial(plan_text, sound, "seeds=[0]", "ranking={}")
    return lambda *changes: {spec.variant: spec for spec in planned(*changes).trials}


def test_without_lora_every_identity_is_what_it_was(make_spec):
    """These were made before there was any; and an adapter's identity is the one that it always had."""
    spec = make_spec()
    assert spec.identified(is_cumulative=True).trial_id == "aa20b8a188258c5d"
    assert memorized_key(spec) == "06289a78f928f5aa"
    assert make_spec(training=Training(lora=LoRA(rank=2))).identified(is_cumulative=True).trial_id == "a530f2d5d2d1db38"


def test_what_is_trained_has_it_in_its_identity_and_nothing_else(trials):
    without = trials(METHODS)
    small, large = (trials(METHODS, f"training.lora={{rank: {rank}}}") for rank in (4, 8))
    assert len({each["gradient_ascent"].trial_id for each in (without, small, large)}) == 3
    assert small["gradient_ascent"].training.lora == LoRA(rank=4, alpha=8)
    for variant in ("original", "retrained", "task_arithmetic"):
        assert small[variant].trial_id == without[variant].trial_id
        assert small[variant].training.lora is None


def test_a_rank_may_be_an_axis_and_a_row_may_do_without(trials):
    methods = (
        "{gradient_ascent: {epochs: [1], training: {lora: [{rank: 4}, {rank: 8, targets: [q_proj, v_proj]}]}}, "
        "full: {method: gradient_ascent, epochs: [1], training: {lora: null}}, "
        "both: {method: kl_divergence, epochs: [1], training: {lora: [null, {rank: 2}]}}}"
    )
    found = trials(f"methods={methods}", "training.lora={rank: 16}")
    assert {variant: spec.training.lora for variant, spec in found.items() if not spec.is_reference} == {
        "gradient_ascent(lora=rank 4)": LoRA(rank=4),
        "gradient_ascent(lora=rank 8 targets ['q_proj', 'v_proj'])": LoRA(rank=8, targets=("q_proj", "v_proj")),
        "full": None,
        "both(lora=null)": None,
        "both(lora=rank 2)": LoRA(rank=2),
    }


def test_a_method_that_selects_blocks_refuses_it_where_it_stands(check, fault_at):
    told = fault_at("methods.emso", training="{lora: {rank: 4}}", ranking=None, methods="{emso: {epochs: [1]}}")
    assert "it trains the weights of the blocks that it selects" in told
    own = "{emso: {epochs: [1], training: {lora: {rank: 4}}}}"
    assert fault_at("methods.emso.training.lora", ranking=None, methods=own)
    for row in ("training: {lora: null}", "selection: all"):
        assert not check(training="{lora: {rank: 4}}", ranking=None, methods=f"{{emso: {{epochs: [1], {row}}}}}")


def test_a_row_that_trains_nothing_refuses_a_rank_of_its_own(check):
    faults = check(ranking=None, methods="{task_arithmetic: {gamma: 0.05, training: {lora: {rank: 4}}}}")
    assert "trains nothing itself" in faults["methods.task_arithmetic.training.lora"]


def test_a_target_that_no_module_has_is_found_before_anything_runs(check):
    training, methods = "{lora: {rank: 4, targets: [q_prj]}}", "{gradient_ascent: {epochs: [1]}}"
    [reason] = check(ranking=None, training=training, methods=methods).values()
    assert "no linear module of this model is called 'q_prj'. Did you mean 'q_proj'?" in reason


def test_a_search_does_not_vary_it():
    names = searchable_types(plugins.METHODS.load("gradient_ascent"))
    assert "training.learning_rate" in names
    assert not [name for name in names if "lora" in name]
