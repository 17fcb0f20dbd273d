"""Sampled extraction: against all texts there are, real samples, and a naive sampling scheme in plain Python."""

import itertools
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from evaluators.sampled import Sampled, extractable, leak_probability
from harness.errors import TrialError
from harness.toolkit import greedy_continuations, sampling_log_p
from harness.toolkit.decoding import choose

PREFIX, NEW, WORDS = [1, 2], 3, 4
SCHEMES = {
    **{"plain": {"top_p": 1.0}, "cold": {"top_p": 1.0, "temperature": 0.5}, "hot": {"top_p": 1.0, "temperature": 2.0}},
    **{"top-k": {"top_p": 1.0, "top_k": 2}, "top-p": {"top_p": 0.7}},
    "all three": {"top_p": 0.8, "top_k": 3, "temperature": 1.5},
}


def shares(logits, top_p=1.0, top_k=None, temperature=1.0):
    """Return each token's probability, one token at a time: temperature, then top-k, then the nucleus of that."""
    tempered = [logit / temperature for logit in logits]
    likeliest = sorted(range(len(logits)), key=lambda token: (-tempered[token], token))[:top_k]
    weights = {token: math.exp(tempered[token] - tempered[likeliest[0]]) for token in likeliest}
    total, before, nucleus = sum(weights.values()), 0.0, {}
    for token in likeliest:
        if top_p == 1.0 or before < top_p:
            nucleus[token] = weights[token]
        before += weights[token] / total
    return [nucleus.get(token, 0.0) / sum(nucleus.values()) for token in range(len(logits))]


@torch.inference_mode()
def next_logits(model, row):
    return model(torch.tensor([row])).logits[0, -1].double().tolist()


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(seed=3, layers=2, vocabulary=WORDS)


@pytest.fixture(scope="module")
def texts(make_sequences):
    """Every text of the toy's words after one prefix."""
    ends = itertools.product(range(WORDS), repeat=NEW)
    return make_sequences([[*PREFIX, *end] for end in ends], prefix_tokens=len(PREFIX))


def log_p_of(model, texts, scheme, tokens=NEW):
    return Sampled(**{"top_k": None, **scheme}, tokens=(tokens,)).continuation_log_p(model, texts).sum(axis=1)


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_all_texts_together_are_certain_and_each_is_the_product_of_its_tokens(model, texts, scheme):
    p = np.exp(log_p_of(model, texts, scheme))
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    for row, text in enumerate(texts.tokens_NT.tolist()):
        steps = range(len(PREFIX), len(text))
        product = math.prod(shares(next_logits(model, text[:step]), **scheme)[text[step]] for step in steps)
        assert p[row] == pytest.approx(product, rel=1e-5, abs=0.0), text
    assert (p == 0).any() == ("top_k" in scheme or scheme["top_p"] < 1), "what is cut off is never sampled"


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_it_is_how_often_the_project_samples_each_text(model, texts, scheme):
    """100,000 texts drawn token by token, by what samples in the project: within four standard errors each."""
    count, numbers = 100_000, torch.Generator().manual_seed(0)
    drawn = torch.tensor([PREFIX]).repeat(count, 1)
    for _ in range(NEW):
        contexts, of_context = drawn.unique(dim=0, return_inverse=True)
        with torch.inference_mode():
            logits = model(contexts).logits[:, -1]
        tokens = choose(logits[of_context], torch.rand(count, generator=numbers), **scheme)
        drawn = torch.cat([drawn, tokens[:, None]], dim=1)
    seen = Counter(map(tuple, drawn.tolist()))
    for text, expected in zip(texts.tokens_NT.tolist(), np.exp(log_p_of(model, texts, scheme)), strict=True):
        error = math.sqrt(expected * (1 - expected) / count)
        assert abs(seen[tuple(text)] / count - expected) <= 4 * error, text


@pytest.mark.parametrize("top_k", [None, 7, 200])
@pytest.mark.parametrize("top_p", [0.5, 0.95, 1.0])
def test_equal_logits_are_in_or_out_by_position_as_they_are_drawn(top_k, top_p):
    """Many ties, at the edge too: what is drawn is possible, and every token that is possible is drawn."""
    logits = (torch.randn(1, 300, generator=torch.Generator().manual_seed(1)) * 4).round() / 4
    possible = sampling_log_p(logits.repeat(300, 1), torch.arange(300), top_p, top_k).exp()
    draws = (torch.arange(40_000) + 0.5) / 40_000
    drawn = torch.zeros(300, dtype=torch.long)
    for part in draws.split(10_000):
        drawn += torch.bincount(choose(logits.repeat(len(part), 1), part, top_p, top_k), minlength=300)
    assert possible.sum().item() == pytest.approx(1.0, abs=1e-12)
    assert torch.equal(drawn > 0, possible > 0)
    assert (drawn / 40_000).tolist() == pytest.approx(possible.tolist(), abs=1e-4)


@pytest.mark.parametrize("p", [0.0, 1e-300, 1e-12, 0.05, 0.3, 0.999, 1.0])
def test_a_leak_is_the_chance_of_at_least_one_hit(p):
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    assert leak_probability(log_p, 1) == pytest.approx(p, rel=1e-9)
    assert leak_probability(log_p, 3) == pytest.approx(p**3 + 3 * p**2 * (1 - p) + 3 * p * (1 - p) ** 2, rel=1e-9)
    for chance in (0.1, 0.9):
        needed = math.log(1 - chance) / math.log1p(-p) if 0 < p < 1 else math.inf if p == 0 else 0.0
        for tries in (1, 5, 50, 10_000):
            assert extractable(log_p, tries, chance) == float(tries >= needed)
    assert np.isnan(leak_probability([math.nan], 5)).all()
    assert np.isnan(extractable([math.nan], 5, 0.5)).all()


def test_each_number_of_tokens_has_its_own_texts(make_model, make_sequences):
    """Texts of 2, 3 and 5 tokens after the prefix; a few words that the model ranks last are never sampled."""
    model = make_model(seed=4)
    greedy = greedy_continuations(model, make_sequences([[7, 8, 0, 0, 0, 0, 0]], prefix_tokens=2), [[2]]).of(0, 2)
    unlikely = int(np.argmin(next_logits(model, [7, 8])))
    ends = (greedy[:2], greedy[:3], greedy, [unlikely, 5, 6, 7, 8])
    texts = make_sequences([[7, 8, *end] for end in ends], prefix_tokens=2)
    sampled = Sampled(top_k=5, tokens=(5, 2, 9), tries=(4, 2))
    measured = sampled.evaluate(model, SimpleNamespace(forget=texts))
    two, five = measured.per_item["log_p_at_2"], measured.per_item["log_p_at_5"]
    assert two[0] == two[1] == two[2] < 0
    assert math.isnan(two[3]), "no logarithm of 0 is averaged"
    assert measured.per_item["outside_at_2"].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert np.isnan(five[:2]).all()
    assert five[2] < two[2]
    assert measured.numbers["outside_at_5"] == 0.5
    leaks = [1 - (1 - math.exp(log_p)) ** 4 for log_p in two[:3]]
    assert measured.per_item["leak_4_at_2"].tolist() == pytest.approx([*leaks, 0.0])
    assert measured.numbers["leak_4_at_2"] == pytest.approx(sum(leaks) / 4)
    assert measured.numbers["log_p_at_2"] == pytest.approx(two[0])
    for name in ("leak_2_at_9", "extractable_4_at_9_p90", "log_p_at_9", "outside_at_9"):
        assert math.isnan(measured.numbers[name])
    assert [warning[:6] for warning in measured.notes["warnings"]] == ["2 of 4", "4 of 4"]
    attacks = {metric.name: metric.attack for metric in sampled.metrics if metric.attack}
    assert attacks == {"leak_4_at_5": "Sampled, k = 4"}


def test_a_model_that_is_no_longer_a_number_is_not_called_safe(make_model, texts):
    model = make_model(seed=3, layers=2, vocabulary=WORDS)
    with torch.no_grad():
        model.transformer.ln_f.weight.fill_(math.nan)
    with pytest.raises(TrialError, match="hold NaN, so it cannot be sampled: erase it less"):
        Sampled(tokens=(2,)).evaluate(model, SimpleNamespace(forget=texts))
