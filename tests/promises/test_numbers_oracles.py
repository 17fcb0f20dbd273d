"""Every exact metric, measured by a whole sweep, against plain loops over full forward passes: no cache, no batch."""

import itertools
import math

import numpy as np
import pytest
import torch
from transformers import AutoModel

from harness import load_results, run_sweep
from tests.promises.models import BOS, EOS, FAMILIES, make_checkpoint, make_encoder, random_texts, write_lines
from tests.promises.naive import (
    are_right,
    continued,
    lines,
    loaded,
    logits,
    memorization_accuracy,
    nll_after,
    recited_texts,
    text_of,
    tokens_of,
)

N, PREFIX, LENGTH = 3, 4, 12
PROMPTS, PROMPT, WRITTEN = 30, 4, 7
ROUNDING = 1e-5
"""Relative, of means over fp32: each of some 1e3 sums that make a logit rounds by 6e-8."""
SWEEP = """# What does each model recite, and how does it write?
name: numbers
models: [{models}]
data:
  forget: {{source: jsonl, path: forget.jsonl, prefix_tokens: 4, sequence_tokens: 12}}
  utility: {{source: jsonl, path: utility.jsonl, prompts: 30, prompt_tokens: 4, reference_tokens: 7}}
  validation: {{source: jsonl, path: utility.jsonl, sequences: 1}}
training: {{early_stop: null}}
methods: {{}}
evaluators: {{memorization: {{n: 3}}, generation: {{rep: 2, div: 3}}, language_modelling: {{}}}}
judges: {{perplexity: llama-bos, features: gpt-neo, similarity: encoder, coherence: encoder}}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with the models, their judges, the texts, and the results of a sweep over them."""
    folder = tmp_path_factory.mktemp("world")
    texts = random_texts(2, LENGTH, seed=1)
    for family, words in zip(FAMILIES, (LENGTH, 9, LENGTH, 11), strict=True):
        model = loaded(make_checkpoint(folder / family, family))
        texts += recited_texts(model, family, 2, words)
    make_encoder(folder / "encoder")
    write_lines(folder / "forget.jsonl", texts)
    write_lines(folder / "utility.jsonl", random_texts(PROMPTS, 40, seed=3))
    (folder / "sweep.yaml").write_text(SWEEP.format(models=", ".join(FAMILIES)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_sweep("sweep.yaml", executor="inline", results=folder / "results")
    return folder


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def numbers(world, family):
    """Return the row of the original in the table, and by metric what each item has, rising."""
    results = load_results(world / "results" / "numbers")
    assert not results.unfinished
    [row] = results.table.query("method == 'original' and model == @family").to_dict("records")
    items = results.items(row["point_id"])
    return row, {name: sorted(values["value"].dropna()) for name, values in items.groupby("metric")}


def embedded(encoder, text):
    """Return a text's unit vector, in fp32."""
    with torch.inference_mode():
        return torch.nn.functional.normalize(encoder(torch.tensor([tokens_of(text)])).pooler_output[0], dim=0)


def check(expected, numbers, tokens=None):
    """Compare each item's values, and their mean in the table, with what was counted here; perplexity's by `tokens`."""
    row, items = numbers
    wrong = {}
    for name, values in expected.items():
        known = np.array(values)[~np.isnan(values)]
        mean = np.average(known, weights=[count for count in tokens if count] if name == "perplexity" else None)
        mean = math.exp(mean) if "perplexity" in name else mean
        if row[name] != pytest.approx(mean, rel=ROUNDING) or items[name] != pytest.approx(sorted(known), rel=ROUNDING):
            wrong[name] = row[name], mean
    assert not wrong, "(measured, expected)"


def grams(row, n):
    return [tuple(row[start : start + n]) for start in range(len(row) - n + 1)]


def test_what_is_recited(world, family, numbers):
    """EL_3, MA, SS and exact match of every text, from every prefix."""
    model, encoder = loaded(world / family), AutoModel.from_pretrained(world / "encoder").eval()
    expected = {"el_3": [], "ma": [], "ma_all": [], "ss": [], "exact_match": []}
    for text in lines(world / "forget.jsonl"):
        tokens = tokens_of(text, family)[:LENGTH]
        overlaps = []
        for start in range(1, len(tokens) - N + 1):
            said = grams(continued(model, tokens[:start], len(tokens))[start:], N)
            overlaps.append(sum(gram in grams(tokens[start:], N) for gram in said) / len(said))
        expected["el_3"].append(sum(overlaps) / len(overlaps))
        expected["ma"].append(memorization_accuracy(model, tokens, PREFIX))
        expected["ma_all"].append(np.mean(are_right(model, tokens)))
        said, truth = continued(model, tokens[:PREFIX], len(tokens))[PREFIX:], tokens[PREFIX:]
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(said, truth, strict=True))
        expected["exact_match"].append(len(list(same)))
        expected["ss"].append(float(embedded(encoder, text_of(said)) @ embedded(encoder, text_of(truth))))
    assert 0 < sum(expected["el_3"]) < len(expected["el_3"])
    assert max(expected["exact_match"]) > 0
    check(expected, numbers)


def written(model, prompt, draws):
    """Return what is sampled after a prompt, each token by its draw from the nucleus of 0.95, up to the end of text."""
    tokens = list(prompt)
    for draw in draws:
        likelihoods, order = logits(model, tokens)[-1].softmax(-1).sort(descending=True, stable=True)
        total, nucleus = 0.0, []
        for likelihood, token in zip(likelihoods.tolist(), order.tolist(), strict=True):
            nucleus.append((likelihood, token))
            total += likelihood
            if total >= 0.95:
                break
        reached = itertools.accumulate(likelihood for likelihood, _ in nucleus)
        tokens.append(next(token for (_, token), upto in zip(nucleus, reached, strict=True) if upto > draw * total))
    return list(itertools.takewhile(lambda token: token != EOS, tokens[len(prompt) :]))


@torch.inference_mode()
def judged(judge, start, prompt, text):
    """Return −log p of each of a text's tokens after a prompt, and the mean of the last states over both."""
    tokens = [*start, *tokens_of(prompt), *tokens_of(text)]
    output = judge(torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    log_p = output.logits[0].float().log_softmax(-1)
    first = len(tokens) - len(text.split())
    nll = [-float(log_p[at - 1, tokens[at]]) for at in range(first, len(tokens))]
    return nll, output.hidden_states[-1][0, len(start) :].mean(0).numpy()


def mauve_by_hand(written_ND, human_ND, seed):
    """Return the area below the divergence frontier of the two histograms over the package's clusters."""
    compute_mauve = pytest.importorskip("mauve", reason="mauve-text is not installed").compute_mauve
    found = compute_mauve(p_features=written_ND, q_features=human_ND, seed=seed)
    points = [(0.0, 1.0), (1.0, 0.0)]
    for weight in np.linspace(1e-6, 1 - 1e-6, 25):
        mixture = weight * found.p_hist + (1 - weight) * found.q_hist

        def divergence(histogram, mixture=mixture):
            return sum(p * math.log(p / r) for p, r in zip(histogram, mixture, strict=True) if p > 0)

        points.append(tuple(math.exp(-5 * divergence(histogram)) for histogram in (found.q_hist, found.p_hist)))
    areas = []
    for across in (0, 1):
        curve = sorted((point[across], -point[1 - across]) for point in points)
        areas.append(sum((b[0] - a[0]) * -(a[1] + b[1]) / 2 for a, b in itertools.pairwise(curve)))
    return sum(areas) / 2


def test_how_it_writes(world, family, numbers):
    """Perplexity, Rep_2, Div_3, coherence and MAUVE of what is sampled after every prompt, and own perplexity."""
    model, encoder = loaded(world / family), AutoModel.from_pretrained(world / "encoder").eval()
    judge, featurizer = loaded(world / "llama-bos"), loaded(world / "gpt-neo")
    expected = {"perplexity": [], "own_perplexity": [], "rep_2": [], "div_3": [], "coherence": []}
    ours, people, weights = [], [], []
    for index, line in enumerate(lines(world / "utility.jsonl")):
        tokens = tokens_of(line, family)
        draws = torch.rand(WRITTEN, generator=torch.Generator().manual_seed(index)).tolist()
        prompt, text = text_of(tokens[:PROMPT]), text_of(written(model, tokens[:PROMPT], draws))
        reference = text_of(tokens[PROMPT : PROMPT + WRITTEN])
        nll, _ = judged(judge, [BOS], prompt, text)
        expected["perplexity"].append(sum(nll) / len(nll) if nll else math.nan)
        weights.append(len(nll))
        ours.append(judged(featurizer, [], prompt, text)[1])
        people.append(judged(featurizer, [], prompt, reference)[1])
        expected["own_perplexity"].append(nll_after(model, tokens[: PROMPT + WRITTEN], PROMPT))
        two, three = grams(text.split(), 2), grams(text.split(), 3)
        expected["rep_2"].append(1 - len(set(two)) / len(two) if two else 1.0)
        expected["div_3"].append(len(set(three)) / len(three) if three else 0.0)
        cosine = float(embedded(encoder, prompt) @ embedded(encoder, text)) if text else 0.0
        expected["coherence"].append(cosine)
    assert len(set(weights)) > 1, "no text ended: nothing is told of what follows an end"
    by_hand = [mauve_by_hand(np.stack(ours), np.stack(people), seed) for seed in range(25, 30)]
    assert numbers[0]["mauve"] == pytest.approx(np.mean(by_hand), rel=ROUNDING)
    check(expected, numbers, weights)
