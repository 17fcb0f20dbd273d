"""Choices of one context, which is read once, against passes over each whole text."""

import pytest
import torch

from harness.errors import TrialError
from harness.toolkit.cached_models import PairModel
from harness.toolkit.decoding import CACHE_BYTES
from harness.toolkit.device import READ_TOKENS
from harness.toolkit.scoring import AnswerChoice, log_likelihoods
from tests.unit.families import VOCABULARY, make_tiny

POSITIONS = 40
FAMILIES = {"gpt_neo": {"window_size": 5}, "gpt2": {"n_positions": POSITIONS}, "mistral": {"sliding_window": 5}}
FAMILIES |= {"llama": {}, "mamba": {}}


def make(name, seed=0):
    return make_tiny(name, seed, **FAMILIES[name])


def pair():
    return PairModel(make("llama"), make("gpt_neo", seed=1), lambda z, memo: z - 0.5 * torch.relu(memo - z))


MAKERS = {name: lambda name=name: make(name) for name in FAMILIES} | {"pair": pair}


def tokens(generator, count):
    return tuple(torch.randint(1, VOCABULARY, (count,), generator=generator).tolist())


@pytest.fixture(scope="module")
def choices():
    """Contexts of 1 to 30 tokens with 1 to 4 continuations, a context that is asked for again later."""
    generator = torch.Generator().manual_seed(3)
    asked = []
    for length, ends in ((30, (3, 5, 1, 9)), (28, (1, 1, 1)), (27, (4, 4)), (9, (7, 2)), (1, (3, 6)), (12, (5,))):
        context = tokens(generator, length)
        asked += [AnswerChoice(context, tokens(generator, end)) for end in ends]
    return [*asked, AnswerChoice(asked[0].context, tokens(generator, 8))]


@torch.inference_mode()
def naive(model, choice):
    log_p = model(input_ids=torch.tensor([choice.read_tokens]), use_cache=False).logits[0].double().log_softmax(-1)
    at = log_p[-len(choice.continuation) :]
    log_likelihood = float(sum(row[token] for row, token in zip(at, choice.continuation, strict=True)))
    return log_likelihood, tuple(at.argmax(-1).tolist()) == choice.continuation


def with_greedy(model, choices):
    """Return the choices, and one after the first context that the model itself would write."""
    context = choices[0].context
    own = ()
    for _ in range(4):
        with torch.inference_mode():
            own += (int(model(input_ids=torch.tensor([context + own]), use_cache=False).logits[0, -1].argmax()),)
    return [*choices, AnswerChoice(context, own)]


def check(model, choices):
    asked = with_greedy(model, choices)
    ours, theirs = log_likelihoods(model, asked), [naive(model, choice) for choice in asked]
    assert [value for value, _ in ours] == pytest.approx([value for value, _ in theirs], rel=1e-5, abs=1e-5)
    assert [is_greedy for _, is_greedy in ours] == [is_greedy for _, is_greedy in theirs]
    assert ours[-1][1]
    assert not ours[0][1]


@pytest.mark.parametrize("name", MAKERS)
def test_choices_are_scored_as_by_passes_over_whole_texts(name, choices, caplog):
    check(MAKERS[name](), choices)
    assert ("reads a context once for each of its choices" in caplog.text) == (name == "mamba")


@pytest.mark.parametrize("name", ["gpt_neo", "pair"])
def test_small_budgets_change_nothing(name, choices, monkeypatch):
    monkeypatch.setitem(READ_TOKENS, "cpu", 1)
    monkeypatch.setitem(CACHE_BYTES, "cpu", 1)
    check(MAKERS[name](), choices)


def test_what_cannot_be_read_is_refused(choices):
    generator = torch.Generator().manual_seed(1)
    context = tokens(generator, POSITIONS)
    with pytest.raises(TrialError, match=f"{POSITIONS} positions, so it cannot read {POSITIONS + 1} tokens"):
        log_likelihoods(make("gpt2"), [AnswerChoice(context, tokens(generator, 2)) for _ in range(2)])
    model = make("gpt2")
    with torch.no_grad():
        model.transformer.ln_f.weight[0] = float("nan")
    for asked in (choices, choices[:1]):
        with pytest.raises(TrialError, match="NaN"):
            log_likelihoods(model, asked)
