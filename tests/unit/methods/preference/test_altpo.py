"""AltPO: its loss one text after the other, and the alternatives that it writes."""

import pytest
import torch

from harness.contracts import Training
from harness.settings import replace
from harness.toolkit import nll_loss, sample, train
from methods.altpo import AltPO

PREFIX, LENGTH = 4, 20


def longest_common_run(one, other):
    """Return the length of the longest run in both texts, by a loop over all runs."""
    runs = {tuple(one[start:stop]) for stop in range(len(one) + 1) for start in range(stop)}
    shared = [run for run in runs if any(run == tuple(other[at : at + len(run)]) for at in range(len(other)))]
    return max(map(len, shared), default=0)


@pytest.fixture
def task(make_task, copies_of, make_model, make_sequences):
    """Return a task on a model that recites its four texts."""
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randint(1, 60, (LENGTH - row,), generator=generator).tolist() for row in range(4)]
    forget, model = make_sequences(rows, prefix_tokens=PREFIX), make_model(1, layers=2)
    training = Training(learning_rate=1e-2, global_batch=4, micro_batch=2, early_stop=None)
    list(train(make_task(forget, training=training), model, nll_loss, 40))
    return make_task(forget, forget, copies_of(lambda: make_model(1, layers=2), model), training)


def test_it_is_the_papers_loss_one_text_after_the_other(model, make_model, texts, batches, nll_of, gradient):
    forget, beside, retain, original = texts(), texts(seed=3), texts(seed=1), make_model(2, layers=2)
    method = AltPO(beta=0.07, retain_weight=3.0)
    rises = []
    for of_texts in (forget, beside):
        pairs = zip(nll_of(model, of_texts), nll_of(original, of_texts), strict=True)
        rises.append([ours.sum() - theirs.sum().detach() for ours, theirs in pairs])
    losses = [
        -2 / 0.07 * torch.nn.functional.logsigmoid(0.07 * (text - other)) for text, other in zip(*rises, strict=True)
    ]
    expected = sum(losses) / len(losses) + 3.0 * torch.cat(nll_of(model, retain)).mean()
    parts = zip(batches(forget), batches(retain), batches(beside), strict=True)
    loss = sum(method.loss(original, model, *part) for part in parts)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.allclose(gradient(model, loss), gradient(model, expected), atol=1e-4)


def test_an_alternative_is_another_text_of_the_same_prefix_and_length(task):
    original, forget = task.load_original(), task.forget
    method = AltPO(longest_run=3, tries=20)
    drawn = sample(original, forget.tokens_NT[:, :PREFIX], LENGTH - PREFIX, seed=0, top_p=1.0)
    recited = [
        longest_common_run(text[PREFIX:length].tolist(), written.tolist())
        for text, length, written in zip(forget.tokens_NT, forget.lengths_N.tolist(), drawn, strict=True)
    ]
    assert max(recited) >= 3, "the original recites"
    beside, runs = method.alternatives(original, task)
    for row, length in enumerate(forget.lengths_N.tolist()):
        text, other = forget.tokens_NT[row].tolist(), beside.tokens_NT[row].tolist()
        assert text[:PREFIX] == other[:PREFIX]
        assert other[length:] == text[length:] == [0] * (LENGTH - length)
        assert longest_common_run(text[PREFIX:length], other[PREFIX:length]) == runs[row] < 3
    assert torch.equal(method.alternatives(original, task)[0].tokens_NT, beside.tokens_NT)
    assert not torch.equal(method.alternatives(original, replace(task, seed=1))[0].tokens_NT, beside.tokens_NT)
