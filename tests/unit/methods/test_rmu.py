"""RMU: its loss by hand from transformers' own hidden states, and what it leaves as it was."""

import pytest
import torch

from harness.contracts import Training
from harness.toolkit import hidden_states
from harness.toolkit.layerwise import layer_at
from methods.rmu import RMU
from tests.unit.tasks import Task

DIRECTION = torch.rand(32, generator=torch.Generator().manual_seed(3))
DIRECTION = DIRECTION / DIRECTION.norm()


def states_alone(model, tokens, length, layer):
    """Return a text's states before the final norm, read without padding, at all tokens but the last."""
    states = []
    handle = model.transformer.h[layer - 1].register_forward_hook(lambda module, given, output: states.append(output))
    model(input_ids=tokens[None, : length - 1])
    handle.remove()
    return states[0][0].reshape(length - 1, -1)


def by_hand(method, model, original, forget, retain, layer):
    """Return the loss, one text after the other."""
    totals = []
    for texts, is_forget in ((forget, True), (retain, False)):
        values = []
        for tokens, length in zip(texts.tokens_NT, texts.lengths_N.tolist(), strict=True):
            now, before = (states_alone(one, tokens, length, layer) for one in (model, original))
            for state, was in zip(now, before, strict=True):
                aim = method.steering * was.norm() * DIRECTION if is_forget else was
                values.append(((state - aim) ** 2).sum() / len(state))
        totals.append(sum(values) / len(values))
    return totals[0] + method.retain_weight * totals[1]


@pytest.mark.parametrize("depth", [0.5, 1.0])
def test_the_loss_is_the_papers(model, make_model, texts, batches, depth):
    original, forget, retain = make_model(2, layers=2), texts(0), texts(1)
    method = RMU(steering=3.0, retain_weight=0.7, depth=depth)
    with torch.no_grad():
        expected = by_hand(method, model, original, forget, retain, layer_at(depth, 2))
        pairs = zip(batches(forget), batches(retain), strict=True)
        loss = sum(method.loss(original, DIRECTION, model, one, other) for one, other in pairs)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)


def test_the_states_go_where_they_are_steered_and_layers_above_stay(make_model, texts):
    training = Training(learning_rate=3e-3, global_batch=5, early_stop=None)
    task = Task(texts(0), texts(1), lambda: make_model(1, layers=2), training, (40,))
    [erased] = RMU(epochs=40, steering=5.0).erase(task)
    before, after = task.load_original(), erased.model
    with torch.no_grad():
        was, now = (hidden_states(one, task.forget.tokens_NT[:1])[1] for one in (before, after))
    assert now.norm(dim=-1).mean() > 1.5 * was.norm(dim=-1).mean()
    parts = torch.rand(32, generator=torch.Generator().manual_seed(task.seed))
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(now, parts, dim=-1).mean() > cosine(was, parts, dim=-1).mean() + 0.3
    weights, others = dict(before.named_parameters()), dict(after.named_parameters())
    assert all(torch.equal(weights[name], others[name]) for name in weights if name.startswith("transformer.h.1."))
    assert not torch.equal(weights["transformer.h.0.mlp.c_fc.weight"], others["transformer.h.0.mlp.c_fc.weight"])


def test_at_the_original_only_the_forget_set_pulls(model, texts, batches):
    [forget], [retain] = batches(texts(0), 5), batches(texts(1), 5)

    def gradient(weight):
        model.zero_grad()
        RMU(retain_weight=weight).loss(model, DIRECTION, model, forget, retain).backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])

    assert torch.equal(gradient(0.0), gradient(50.0))
    assert gradient(0.0).abs().max() > 0
