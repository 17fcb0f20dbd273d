"""A search's budget: what it is charged with, which candidate it pays for, and when it is spent."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.execution.search import results_awaited
from harness.execution.trial.memorized import operation_counter
from harness.plans import Cost, StudySpec
from harness.records.record import Candidate
from harness.records.results import study_results
from harness.records.spending import MOST_CANDIDATES, is_paid, spent
from harness.records.tuned import is_over
from harness.search_space import Choice, LogUniform
from harness.specs import Source


def tried(number, seconds=10.0, flops=0.0, memorized=None):
    about = {
        "trial_id": "study",
        "settings": {"epochs": 1, "k": 1.0 + number},
        "probes": (),
        "targets": {},
        "original": {},
    }
    return Candidate(**about, number=number, end="whole", seconds=seconds, flops=flops, memorized=memorized or {})


@pytest.fixture
def study(make_spec):
    return StudySpec(
        study_id="study",
        trial=make_spec(trial_id="study", strength_name="epochs", strengths=(), settings={}),
        seeds=(0,),
        space={"epochs": Choice(values=(1,)), "k": LogUniform(low=1.0, high=9.0)},
        defaults={"epochs": 1, "k": 1.0},
        is_cumulative=True,
        is_trained=True,
        search="random",
        trials=MOST_CANDIDATES,
        cost=Cost("seconds", 35.0),
        targets=(),
        utility="perplexity",
        utility_bounds=(0.5, 5.0),
        selection=Source(source="miniature"),
        retrained=None,
    )


def test_a_candidate_is_paid_for_by_what_those_before_the_one_before_it_left(study):
    known = [tried(number) for number in range(6)]
    assert [is_paid(study, number, known) for number in range(7)] == [True] * 5 + [False] * 2, "40 s after four"
    assert [candidate.number for candidate in study_results(study, known).candidates] == [0, 1, 2, 3, 4]
    assert is_over(study, known[:5])
    assert not is_over(study, known[:4])
    assert not is_over(study, [*known[:2], *known[3:5]]), "number 2, whose process died, is paid for"
    larger = replace(study, cost=Cost("seconds", 45.0))
    assert not is_over(larger, known[:5]), "a larger budget goes on"
    counted = replace(study, cost=None, trials=2)
    assert [is_paid(counted, number, known) for number in (1, 2)] == [True, False]


def test_the_memorised_model_is_charged_once_and_failing_is_not_free(study):
    shared = [tried(number, memorized={"seconds": 30.0, "flops": 7.0}) for number in range(3)]
    assert spent(study.cost, shared) == 60.0
    assert not is_paid(study, 2, shared), "the model and one candidate are more than 35 s"
    cheap = [tried(number, seconds=0.0) for number in range(200)]
    assert not is_paid(study, MOST_CANDIDATES, cheap)
    assert is_paid(study, MOST_CANDIDATES - 1, cheap)
    assert spent(Cost("flops", 100.0), [tried(0, flops=3.0), tried(1, flops=0.5)]) == 4.0


def test_what_depends_on_costs_waits_for_them(study):
    assert [results_awaited(study, number) for number in range(5)] == [0, 0, 1, 2, 3]
    assert [results_awaited(replace(study, cost=None), number) for number in range(5)] == [0] * 5


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_operations_are_those_of_the_formula_whatever_computes_them(backend):
    tokens, width = 8, 16
    query, key, value = (torch.randn(1, 2, tokens, width, requires_grad=True) for _ in range(3))
    with operation_counter() as forward, sdpa_kernel(backend):
        attended = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    product = 2 * 2 * tokens * tokens * width  # Of two heads; a multiplication and an addition.
    assert forward.get_total_flops() == 2 * product
    with operation_counter() as backward:
        attended.sum().backward()
    # The fused kernel computes its first product again.
    assert backward.get_total_flops() == (4 if backend == SDPBackend.MATH else 5) * product
