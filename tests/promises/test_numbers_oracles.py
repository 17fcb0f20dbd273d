"""Every exact metric, measured by a whole sweep, against plain loops over full forward passes: no cache, no batch."""

import itertools
import math

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM

from harness import load_results, run_sweep
from tests.promises.models import (
    BOS,
    EOS,
    FAMILIES,
    IDS,
    SPECIAL,
    WORDS,
    make_checkpoint,
    make_encoder,
    random_texts,
    write_lines,
)

N, PREFIX, LENGTH = 3, 4, 12
PROMPTS, PROMPT, WRITTEN = 30, 4, 12
ROUNDING = 1e-5
"""Relative, of means over fp32: each of some 1e3 sums that make a logit rounds by 6e-8."""
BF16 = 2**-6
"""Encoders of sentences compute in bf16, eight bits: a cosine of theirs is off by less than four units in the last."""
SWEEP = """# What does each model recite, and how does it write?
name: numbers
models: [{models}]
data:
  forget: {{source: jsonl, path: forget.jsonl, prefix_tokens: 4, sequence_tokens: 12}}
  utility: {{source: jsonl, path: utility.jsonl, prompts: 30, prompt_tokens: 4, reference_tokens: 12}}
training: {{early_stop: null}}
methods: {{}}
evaluators: {{memorization: {{n: 3}}, generation: {{rep: 2, div: 3}}, language_modelling: {{}}}}
judges: {{perplexity: llama-bos, features: gpt-neo, similarity: encoder, coherence: encoder}}
"""


def loaded(folder):
    """Return a model as transformers has it; soft caps need the plain attention."""
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def tokens_of(text, family=""):
    """Return a text's tokens, after the start of text where the family has one."""
    return [BOS] * (family == "llama-bos") + [IDS[word] for word in text.split()]


def text_of(tokens):
    return " ".join(WORDS[token - len(SPECIAL)] for token in tokens if token >= len(SPECIAL))


@torch.inference_mode()
def logits(model, tokens):
    return model(torch.tensor([tokens]), use_cache=False).logits[0].float()


def continued(model, tokens, length):
    """Return the tokens with the model's first choices after them, a pass over the whole for each."""
    while len(tokens) < length:
        tokens = [*tokens, int(logits(model, tokens)[-1].argmax())]
    return tokens


def slips(model, family, text, words):
    """Return what a model writes after the first words of a text, but for a slip here and there, so that it recites."""
    tokens = tokens_of(" ".join(text.split()[:3]), family)
    while len(tokens) < words:
        following = continued(model, tokens, len(tokens) + 1)[-1]
        is_word = following >= len(SPECIAL) and len(tokens) % 5
        tokens.append(following if is_word else len(SPECIAL) + len(tokens))
    return text_of(tokens)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with the models, their judges, the texts, and the results of a sweep over them."""
    folder = tmp_path_factory.mktemp("world")
    texts = random_texts(2, LENGTH, seed=1)
    for family, words in zip(FAMILIES, (LENGTH, 9, LENGTH, 11), strict=True):
        model = loaded(make_checkpoint(folder / family, family))
        texts += [slips(model, family, text, words) for text in random_texts(2, 3, seed=words)]
    make_encoder(folder / "encoder")
    write_lines(folder / "forget.jsonl", texts)
    write_lines(folder / "utility.jsonl", random_texts(PROMPTS, PROMPT + WRITTEN, seed=3))
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


def lines(file):
    return [text for text in file.read_text().replace('{"text": "', "").replace('"}', "").splitlines()]


def embedded(encoder, text):
    """Return a text's unit vector, in fp32."""
    with torch.inference_mode():
        return torch.nn.functional.normalize(encoder(torch.tensor([tokens_of(text)])).pooler_output[0], dim=0)


def grams(row, n):
    return [tuple(row[start : start + n]) for start in range(len(row) - n + 1)]


def test_what_is_recited(world, family, numbers):
    """EL_3, MA, SS and exact match of every text, from every prefix."""
    row, items = numbers
    model, encoder = loaded(world / family), AutoModel.from_pretrained(world / "encoder").eval()
    expected = {"el_3": [], "ma": [], "ma_all": [], "ss": [], "exact_match": []}
    for text in lines(world / "forget.jsonl"):
        tokens = tokens_of(text, family)[:LENGTH]
        overlaps = []
        for start in range(1, len(tokens) - N + 1):
            said = grams(continued(model, tokens[:start], len(tokens))[start:], N)
            overlaps.append(sum(gram in grams(tokens[start:], N) for gram in said) / len(said))
        expected["el_3"].append(sum(overlaps) / len(overlaps))
        is_right = [int(logits(model, tokens[:at])[-1].argmax()) == tokens[at] for at in range(1, len(tokens))]
        expected["ma_all"].append(sum(is_right) / len(is_right))
        after_prefix = is_right[PREFIX - 1 : -1]  # The paper's sum ends one before the last token.
        expected["ma"].append(sum(after_prefix) / len(after_prefix))
        said, truth = continued(model, tokens[:PREFIX], len(tokens))[PREFIX:], tokens[PREFIX:]
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(said, truth, strict=True))
        expected["exact_match"].append(len(list(same)))
        expected["ss"].append(float(embedded(encoder, text_of(said)) @ embedded(encoder, text_of(truth))))
    assert 0 < sum(expected["el_3"]) < len(expected["el_3"])
    assert max(expected["exact_match"]) > 0
    for name, values in expected.items():
        near = {"abs": BF16} if name == "ss" else {"rel": ROUNDING}
        assert row[name] == pytest.approx(sum(values) / len(values), **near), name
        assert items[name] == pytest.approx(sorted(values), **near), name


def written(model, prompt, draws):
    """Return the tokens sampled after a prompt, each by its own draw from the nucleus of 0.95, up to the end of text."""
    tokens = list(prompt)
    for draw in draws:
        likelihoods, order = logits(model, tokens)[-1].softmax(-1).sort(descending=True, stable=True)
        total, nucleus = 0.0, []
        for likelihood, token in zip(likelihoods.tolist(), order.tolist(), strict=True):
            nucleus.append((likelihood, token))
            total += likelihood
            if total >= 0.95:
                break
        aim, reached = draw * total, 0.0
        for likelihood, token in nucleus:
            reached += likelihood
            if reached > aim:
                break
        tokens.append(token)
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
    """Perplexity, Rep_2, Div_3, coherence and MAUVE of what is sampled after every prompt; own perplexity of people's."""
    row, items = numbers
    model, encoder = loaded(world / family), AutoModel.from_pretrained(world / "encoder").eval()
    judge, featurizer = loaded(world / "llama-bos"), loaded(world / "gpt-neo")
    expected = {"perplexity": [], "own_perplexity": [], "rep_2": [], "div_3": [], "coherence": []}
    ours, people, weights = [], [], []
    for index, line in enumerate(lines(world / "utility.jsonl")):
        tokens = tokens_of(line, family)
        draws = torch.rand(WRITTEN, generator=torch.Generator().manual_seed(index)).tolist()
        prompt, text = text_of(tokens[:PROMPT]), text_of(written(model, tokens[:PROMPT], draws))
        reference = text_of(tokens[PROMPT : PROMPT + WRITTEN])
        nll, state = judged(judge, [BOS], prompt, text)
        expected["perplexity"].append(sum(nll) / len(nll) if nll else math.nan)
        weights.append(len(nll))
        ours.append(judged(featurizer, [], prompt, text)[1])
        people.append(judged(featurizer, [], prompt, reference)[1])
        own = judged(model, tokens_of("", family), prompt, reference)[0]
        expected["own_perplexity"].append(sum(own) / len(own))
        two, three = grams(text.split(), 2), grams(text.split(), 3)
        expected["rep_2"].append(1 - len(set(two)) / len(two) if two else 1.0)
        expected["div_3"].append(len(set(three)) / len(three) if three else 0.0)
        cosine = float(embedded(encoder, prompt) @ embedded(encoder, text)) if text else 0.0
        expected["coherence"].append(cosine)
    assert len(set(weights)) > 1, "no text ended: nothing is told of what follows an end"
    total = sum(count * value for count, value in zip(weights, expected["perplexity"], strict=True) if count)
    assert row["perplexity"] == pytest.approx(math.exp(total / sum(weights)), rel=ROUNDING)
    assert row["own_perplexity"] == pytest.approx(math.exp(np.mean(expected["own_perplexity"])), rel=ROUNDING)
    for name in ("rep_2", "div_3", "coherence"):
        assert row[name] == pytest.approx(np.mean(expected[name]), **({"abs": BF16} if name == "coherence" else {}))
    for name, values in expected.items():
        near = {"abs": BF16} if name == "coherence" else {"rel": ROUNDING}
        known = sorted(value for value in values if not math.isnan(value))
        assert items[name] == pytest.approx(known, **near), name
    by_hand = [mauve_by_hand(np.stack(ours), np.stack(people), seed) for seed in range(25, 30)]
    assert row["mauve"] == pytest.approx(np.mean(by_hand), rel=ROUNDING)
