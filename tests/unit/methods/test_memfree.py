"""MemFree against sets of n-grams: in whole passes, stepped from a cache, sampled, generated with padding."""

from itertools import pairwise

import pytest
import torch

from evaluators.depth import Depth
from evaluators.relearning import Relearning
from harness.execution.erasing import erase
from harness.execution.tasks import ErasingTask
from harness.records.artifacts import Artifacts
from harness.settings import DeepSpeed, Engine, replace
from harness.testing import small_spec, small_task
from harness.toolkit import PairModel, greedy_continuations, sample
from harness.toolkit.stepping import is_cache_exact
from methods.memfree import BlockedTokens, MemFree, trie

VOCABULARY = 6
"""So few tokens that n-grams of the texts come by chance."""


def runs_of(tokens, n):
    return {tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)}


def random_texts(seed, lengths):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(3, layers=2, vocabulary=VOCABULARY, scale=0.5)


@pytest.fixture(scope="module")
def texts():
    return random_texts(0, [30, 25, 2, 30, 1])


@pytest.fixture(scope="module")
def without(model, texts):
    """Return a maker of the pair that writes no n-gram of the texts."""

    return lambda n: PairModel(model, BlockedTokens(trie(texts, n), VOCABULARY), MemFree().lowered)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 31])
def test_what_is_blocked_is_what_would_complete_an_n_gram_of_a_text(texts, n):
    forbidden = set().union(*(runs_of(text, n) for text in texts))
    rows = [*random_texts(1, [20, 20]), texts[0][:20]]
    blocked_BTV = BlockedTokens(trie(texts, n), VOCABULARY)(torch.tensor(rows)).logits
    for row, blocked_TV in zip(rows, blocked_BTV.tolist(), strict=True):
        for position, blocked_V in enumerate(blocked_TV):
            before = tuple(row[: position + 1][-(n - 1) :]) if n > 1 else ()
            assert blocked_V == [(*before, token) in forbidden for token in range(VOCABULARY)]
    assert bool(blocked_BTV.any()) == (n <= 30)


@pytest.mark.parametrize("n", [2, 3])
def test_stepped_from_a_cache_it_writes_what_whole_passes_do(model, texts, without, make_sequences, n):
    sequences = make_sequences([text for text in texts if len(text) == 30])
    pair = without(n)
    assert is_cache_exact(pair, sequences.tokens_NT)
    continuations = greedy_continuations(pair, sequences, [[1, 5, 20]] * len(sequences))
    forbidden = set().union(*(runs_of(text, n) for text in texts))
    recited = 0
    for row, text in enumerate(sequences.tokens_NT.tolist()):
        for prefix in (1, 5, 20):
            written = text[:prefix]
            while len(written) < 30:
                likeliest_first = model(torch.tensor([written])).logits[0, -1].argsort(descending=True).tolist()
                recited += (*written[-(n - 1) :], likeliest_first[0]) in forbidden
                allowed = [t for t in likeliest_first if (*written[-(n - 1) :], t) not in forbidden]
                written.append((allowed or likeliest_first)[0])
            assert continuations.of(row, prefix) == written[prefix:]
    assert recited > 10, "else there was nothing to block"


@pytest.mark.parametrize("top_p", [0.9, 1.0])
def test_no_n_gram_of_a_text_is_sampled(model, texts, without, top_p):
    n, prompts = 3, torch.tensor([text[:4] for text in texts if len(text) > 4] * 10)
    forbidden = set().union(*(runs_of(text, n) for text in texts))

    def completed(of_model):
        written = sample(of_model, prompts, new_tokens=30, seed=0, top_p=top_p)
        ends = torch.cat([prompts[:, -(n - 1) :], written], dim=1).tolist()
        return sum(len(runs_of(row, n) & forbidden) for row in ends)

    assert completed(without(n)) == 0
    assert completed(model) > 100


def test_padding_is_no_text(texts):
    """Also where the padding's number is that of a token with which a text begins."""
    blocked, first = BlockedTokens(trie(texts, 3), VOCABULARY), texts[0][0]
    padded = torch.tensor([[first, first, *texts[0][1:4]]])
    alone = blocked(padded[:, 2:]).logits
    assert torch.equal(blocked(padded, attention_mask=torch.tensor([[0, 0, 1, 1, 1]])).logits[:, 2:], alone)
    assert not torch.equal(blocked(padded).logits[:, 2:], alone)


def test_padded_prompts_are_continued_as_they_are_alone(model, without):
    prompts, options = random_texts(3, [3, 5]), {"do_sample": False, "max_new_tokens": 12, "pad_token_id": 0}
    tokens_BT = torch.tensor([[0, 0, *prompts[0]], prompts[1]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1] * 5])
    together = without(3).generate(tokens_BT, attention_mask=mask, eos_token_id=None, **options)[:, 5:]
    for row, prompt in enumerate(prompts):
        alone = without(3).generate(torch.tensor([prompt]), eos_token_id=None, **options)[0, len(prompt) :]
        assert torch.equal(together[row], alone)


def test_n_grams_that_are_longer_than_all_texts_leave_the_original_to_the_last_bit(model, texts, without):
    rows = torch.tensor(random_texts(2, [40, 40]))
    assert torch.equal(without(31)(rows).logits, model(rows).logits)
    assert not torch.equal(without(30)(torch.tensor([texts[0]])).logits, model(torch.tensor([texts[0]])).logits)


def test_logits_stay_finite_even_where_every_token_is_blocked(model):
    everything = [list(pair) for pair in pairwise(range(VOCABULARY))] + [list(range(VOCABULARY))]
    pair = PairModel(model, BlockedTokens(trie(everything, 1), VOCABULARY), MemFree().lowered)
    rows = torch.tensor(random_texts(4, [12]))
    assert torch.allclose(pair(rows).logits.log_softmax(-1), model(rows).logits.log_softmax(-1), atol=1e-3)


@pytest.fixture(scope="module")
def erased(tmp_path_factory):
    [erased] = MemFree(n=3).erase(ErasingTask(small_spec(), Artifacts(tmp_path_factory.mktemp("a")), (1000.0,), print))
    return erased.model


OF_WEIGHTS = [
    (Depth(), ["depth"], "has no layers of its own"),
    (Relearning(), ["relearned_ma", "relearned_by_retain_ma"], "no relearning is measured"),
]


@pytest.mark.parametrize(("evaluator", "names", "said"), OF_WEIGHTS)
def test_attacks_on_its_weights_say_that_they_cannot_measure_it(erased, tmp_path, evaluator, names, said):
    evaluation = evaluator.evaluate(erased, small_task(evaluator, erased, Artifacts(tmp_path)))
    unknown = [name for name, number in evaluation.numbers.items() if number != number]
    assert set(names) <= set(unknown), evaluation.numbers
    assert said in " ".join(evaluation.notes["warnings"])


def test_workers_are_not_asked_for_where_nothing_is_trained(tmp_path):
    """They hand in plain weights, and this would come back as the original."""
    engine = Engine(deepspeed=DeepSpeed(zero_stage=2, workers=2))
    spec = replace(small_spec(), method="memfree", strength_name="gamma", strengths=(1000.0,), engine=engine)
    [erasure] = erase(spec, Artifacts(tmp_path), (1000.0,), print)
    assert isinstance(erasure.erased.model, PairModel)
    assert erasure.worker_nodes == ()
