"""What a model says, by plain passes over whole texts: no cache, no batch, no harness."""

import json

import torch
from transformers import AutoModelForCausalLM

from tests.promises.models import BOS, IDS, SPECIAL, WORDS, random_texts


def loaded(folder):
    """Return a model as transformers has it; soft caps need the plain attention."""
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def tokens_of(text, family=""):
    """Return a text's tokens, after the start of text where the family has one."""
    return [BOS] * (family == "llama-bos") + [IDS[word] for word in text.split()]


def text_of(tokens):
    """Return the words of those tokens that are words."""
    return " ".join(WORDS[token - len(SPECIAL)] for token in tokens if token >= len(SPECIAL))


@torch.inference_mode()
def logits(model, tokens):
    """Return the logits after each of the tokens."""
    return model(torch.tensor([tokens]), use_cache=False).logits[0].float()


def continued(model, tokens, length):
    """Return the tokens with the model's first choices after them, a pass over the whole for each."""
    while len(tokens) < length:
        tokens = [*tokens, int(logits(model, tokens)[-1].argmax())]
    return tokens


def are_right(model, tokens):
    """Return of each token but the first whether it is the model's choice after those before it."""
    return [int(logits(model, tokens[:at])[-1].argmax()) == tokens[at] for at in range(1, len(tokens))]


def memorization_accuracy(model, tokens, prefix):
    """Return MA: the paper's sum ends one before the last token."""
    counted = are_right(model, tokens)[prefix - 1 : -1]
    return sum(counted) / len(counted)


def nll_after(model, tokens, prefix):
    """Return the mean of −log p of the tokens after the first ones, each given all before it."""
    log_p = logits(model, tokens).log_softmax(-1)
    return -sum(float(log_p[at - 1, tokens[at]]) for at in range(prefix, len(tokens))) / (len(tokens) - prefix)


def lines(file):
    """Return the texts of a file, one a line."""
    return [json.loads(line)["text"] for line in file.read_text().splitlines()]


def recited_texts(model, family, count, words):
    """Return texts that a model writes after three words; in every other one it slips here and there."""
    texts = []
    for number, text in enumerate(random_texts(count, 3, seed=words)):
        tokens = tokens_of(text, family)[:3]
        while len(tokens) < words:
            following = continued(model, tokens, len(tokens) + 1)[-1]
            is_slip = following < len(SPECIAL) or (number % 2 and len(tokens) % 5 == 0)
            tokens.append(len(SPECIAL) + len(tokens) if is_slip else following)
        texts.append(text_of(tokens))
    return texts
