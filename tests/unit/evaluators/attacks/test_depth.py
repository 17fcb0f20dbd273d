"""Depth by the logit lens: hand-worked shares, a lens of one's own, and what must be 0 and 1."""

import copy
import math

import numpy as np
import pytest
import torch

from evaluators.depth import Depth, continuation_log_p, erasure_depth
from harness.toolkit import LogitLens
from tests.unit.tasks import evaluation_task

TEXTS = ([[3, 4, 5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 15], [20, 21, 22, 23]], [[30, 31, 32, 33], [40, 41, 42, 43, 44]])


@pytest.fixture(scope="module")
def original(make_model):
    return make_model(seed=1)


@pytest.fixture
def make_task(make_sequences, original, make_model):
    """Return a maker of tasks."""
    forget, holdout = (make_sequences(rows, prefix_tokens=2) for rows in TEXTS)

    loaders = {"load_original": lambda: copy.deepcopy(original), "load_retrained": lambda: make_model(seed=2)}
    return lambda **changes: evaluation_task(forget, holdout=holdout, **loaders | changes)


SHARES = [
    ([2.0, 4.0], [0.0, 0.0], 0.0),
    ([2.0, 4.0], [2.0, 4.0], 1.0),
    ([2.0, 4.0], [1.0, 2.0], 0.5),
    ([2.0, 4.0], [0.0, 4.0], 4 / 6),
    ([2.0, 4.0], [9.0, 0.0], 2 / 6),  # more than all is all
    ([2.0, 4.0], [-9.0, 4.0], 4 / 6),  # less than nothing is nothing
    ([0.05, 4.0], [0.05, 1.0], 0.25),  # a layer that knows nothing does not count,
    ([-1.0, 4.0], [-1.0, 1.0], 0.25),
    ([0.06, 4.0], [0.06, 1.0], 1.06 / 4.06),  # and one that knows little counts as little
    ([0.05, -3.0], [0.05, 0.0], math.nan),
    ([2.0, 4.0], [math.nan, 1.0], math.nan),
]


@pytest.mark.parametrize(("could", "lost", "depth"), SHARES)
def test_it_is_the_share_of_what_layers_could_lose(could, lost, depth):
    assert erasure_depth(could, lost) == pytest.approx(depth, nan_ok=True)


@torch.inference_mode()
def test_what_the_lens_reads_is_what_the_originals_own_end_makes_of_each_layer(original, make_model, make_sequences):
    other, sequences = make_model(seed=5), make_sequences(TEXTS[0], prefix_tokens=2)
    ours = continuation_log_p(other, LogitLens(copy.deepcopy(original)), sequences)
    assert ours.shape == (3, 4)
    for row, text in enumerate(TEXTS[0]):
        # transformers keeps what enters each layer, and last what leaves the final norm.
        states = other(torch.tensor([text]), output_hidden_states=True).hidden_states[1:]
        for layer, state in enumerate(states[:-1]):
            log_p = original.lm_head(original.transformer.ln_f(state))[0].log_softmax(-1)
            expected = [float(log_p[place - 1, text[place]]) for place in range(2, len(text))]
            assert ours[row, layer] == pytest.approx(sum(expected) / len(expected), rel=1e-4)


def test_the_original_is_0_and_the_retrained_model_1_to_the_last_bit(original, make_model, make_task):
    depths = {}
    for name, model in (("original", original), ("retrained", make_model(seed=2))):
        evaluation = Depth().evaluate(model, make_task())
        depths[name] = evaluation.numbers
        known = evaluation.per_item["depth"][~np.isnan(evaluation.per_item["depth"])]
        assert len(known) > 0
        assert len(set(known)) == 1
    assert depths["original"] == {"depth": 0.0, "depth_uncorrected": 0.0}
    assert depths["retrained"] == {"depth": 1.0, "depth_uncorrected": 1.0}


def references(original, make_task, *, of_original, of_retrained, unseen_original=0.0, unseen_retrained=0.0):
    """A task whose cache holds what lies so far above and below what the lens reads of this model."""
    task, lens = make_task(), LogitLens(copy.deepcopy(original))
    of_forget, of_unseen = (continuation_log_p(original, lens, texts) for texts in (task.forget, task.holdout))
    kept = {"original_forget": of_forget + of_original, "retrained_forget": of_forget + of_retrained}
    kept |= {"original_unseen": of_unseen + unseen_original, "retrained_unseen": of_unseen + unseen_retrained}
    return make_task(cached=lambda key, make: kept)


def test_what_is_lost_of_unseen_texts_too_is_not_forgotten(original, make_task):
    """The model has lost as much of both; of what the retrained model lacks, half is that it is another model."""
    levels = {"of_original": 1.0, "of_retrained": -1.0, "unseen_original": 1.0, "unseen_retrained": 0.0}
    evaluation = Depth().evaluate(original, references(original, make_task, **levels))
    assert evaluation.numbers == pytest.approx({"depth": 0.0, "depth_uncorrected": 0.5}, abs=1e-12)
    assert evaluation.curves[0].ys == pytest.approx((0.0,) * 4), "no layer lost more than of unseen texts"
    levels = {"of_original": 1.0, "of_retrained": -1.0, "unseen_original": 0.0, "unseen_retrained": -1.0}
    evaluation = Depth().evaluate(original, references(original, make_task, **levels))
    assert evaluation.numbers == pytest.approx({"depth": 1.0, "depth_uncorrected": 0.5})


def test_a_method_that_only_closes_the_way_out_has_erased_nothing_below_it(original, make_task):
    closed = copy.deepcopy(original)
    with torch.no_grad():
        closed.transformer.ln_f.weight.neg_()
    assert not torch.equal(closed(torch.tensor([[1, 2]])).logits, original(torch.tensor([[1, 2]])).logits)
    assert Depth().evaluate(closed, make_task()).numbers == {"depth": 0.0, "depth_uncorrected": 0.0}


def test_where_the_original_knows_no_more_than_the_retrained_model_nothing_is_known(original, make_task):
    evaluation = Depth().evaluate(original, make_task(load_retrained=lambda: copy.deepcopy(original)))
    assert math.isnan(evaluation.numbers["depth"])
    assert evaluation.notes["warnings"][0].startswith("depth is not known: on no layer, and of no sequence")
