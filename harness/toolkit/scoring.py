"""Scoring: what a causal LM thinks of texts: a judge of what others wrote, and a model of its own validation texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from harness.base.digests import file_digest
from harness.base.hub import DESCRIPTION
from harness.contracts import Checkpoint, Model, Sequences, exponential
from harness.errors import ModelError
from harness.models.loading import load_model, load_tokenizer, positions
from harness.models.resolving import CAUSAL_ROLES
from harness.models.tokenizing import judge_facts, start_tokens, token_lists
from harness.specs import ORIGINAL
from harness.toolkit.batches import padded_batches, read_at_once, rows_at_once
from harness.toolkit.device import computing_device, judges_dtype
from harness.toolkit.losses import token_nll

SCORED_ROWS = 32
"""Rows in one forward pass, at most."""


@dataclass(frozen=True)
class Scores:
    """What a judge made of N prompts and the texts after them."""

    nll: list[list[float]]
    """−log p of every token of each text given its prompt and what came before, in nats."""
    mean_ND: np.ndarray
    """The last layer's hidden states, averaged over each prompt and text; zeros where both are empty."""
    last_ND: np.ndarray
    """The last layer's hidden state at the end of each text."""


class CausalJudge:
    """A causal LM that scores texts, each read with the judge's own tokenizer, after its own start of text if any."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._id = checkpoint.id
        self._tokenizer = load_tokenizer(checkpoint)
        self._start = start_tokens(self._tokenizer)
        dtype = judges_dtype()
        lowered = [] if dtype == torch.float32 else [str(dtype)]
        self.digest = judge_key(checkpoint, *map(str, self._start), *lowered)
        self._model = load_model(checkpoint, dtype).to(computing_device())
        self._longest = positions(checkpoint)

    def score(self, prompts: Sequence[str], texts: Sequence[str], *, names: bool = False) -> Scores:
        """Read each prompt with its text, in one forward pass, and return what the judge made of them.

        Args:
            prompts: What stands before each text.
            texts: As many.
            names: See `token_lists`.
        """
        read = (token_lists(self._tokenizer, each, starts=False, names=names) for each in (prompts, texts))
        pairs = [([*self._start, *prompt], text) for prompt, text in zip(*read, strict=True)]
        cut = [(prompt, text[: max(0, self._longest - len(prompt))]) for prompt, text in pairs]
        before = len(self._start)
        nll: list[list[float]] = [[] for _ in cut]
        mean_ND, last_ND = np.zeros((2, len(cut), self._model.config.hidden_size), dtype=np.float32)
        lengths = [len(prompt) + len(text) for prompt, text in cut]
        by_length = sorted((length, row) for row, length in enumerate(lengths) if length > before)
        longest = by_length[-1][0] if by_length else 1
        at_once = rows_at_once(self._model.config.vocab_size, longest, self._model.device, most=SCORED_ROWS)
        for start in range(0, len(by_length), at_once):
            rows = [row for _, row in by_length[start : start + at_once]]
            # Right padding needs no mask: a causal model's earlier positions never see it.
            tokens_BT, lengths_B = self._padded([cut[row][0] + cut[row][1] for row in rows], 0)
            parts = (each.split(read_at_once(tokens_BT.shape[1], tokens_BT.device)) for each in (tokens_BT, lengths_B))
            scored = [score_batch(self._model, *part, start=before) for part in zip(*parts, strict=True)]
            nll_BS, mean_BD, last_BD = map(torch.cat, zip(*scored, strict=True))
            mean_ND[rows], last_ND[rows] = mean_BD.float().cpu().numpy(), last_BD.float().cpu().numpy()
            for row, values in zip(rows, nll_BS.cpu(), strict=True):
                prompt, text = cut[row]
                nll[row] = values[max(len(prompt), 1) - 1 : len(prompt) + len(text) - 1].tolist()
        return Scores(nll, mean_ND, last_ND)

    def padded_mean_nll(self, texts: Sequence[str], tokens: int) -> float:
        """Return the mean NLL over a padded batch of texts: over every position but the first, padding included.

        Rows are padded on the right with ends of text. Those count as tokens to be predicted and are masked
        from what is attended to, so that a row's padding is predicted from its text alone. The name of a special
        token in a text is that token.

        Args:
            texts: Of the batch; each is cut at `tokens`.
            tokens: The longest row, in the judge's tokens.

        Returns:
            In nats; NaN if no row has two tokens.

        Raises:
            ModelError: The judge's tokenizer has no end of text.
        """
        end = self._tokenizer.eos_token_id
        if end is None:
            raise ModelError(
                f"the judge '{self._id}' has a tokenizer without an end of text, with which `definition: table` pads "
                "what it reads. Take another judge for perplexity (judges.perplexity), or `definition: exact`."
            )
        rows = [row[: min(tokens, self._longest)] for row in token_lists(self._tokenizer, texts, names=True)]
        padded_BT, lengths_B = self._padded(rows, end)
        width = padded_BT.shape[1]
        mask_BT = (torch.arange(width, device=self._model.device) < lengths_B[:, None]).long()
        at_once = rows_at_once(self._model.config.vocab_size, max(width, 1), self._model.device, most=len(rows))
        parts = zip(*(whole.split(at_once) for whole in (padded_BT, lengths_B, mask_BT)), strict=True)
        return float(torch.cat([score_batch(self._model, *part)[0] for part in parts]).mean())

    def _padded(self, rows: Sequence[list[int]], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
        lengths = [len(row) for row in rows]
        padded = [row + [padding] * (max(lengths) - len(row)) for row in rows]
        return torch.tensor(padded, device=self._model.device), torch.tensor(lengths, device=self._model.device)


@torch.inference_mode()
def score_batch(
    model: Model,
    tokens_BT: torch.Tensor,
    lengths_B: torch.Tensor,
    mask_BT: torch.Tensor | None = None,
    *,
    start: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what a causal LM makes of right-padded rows, in one forward pass.

    Args:
        model: The judge.
        tokens_BT: The rows.
        lengths_B: How much of each is text.
        mask_BT: 1 where a token may be attended to; needed only by who asks what follows the text.
        start: Tokens of each row that are no text, but its start: their states are left out of the mean.

    Returns:
        The NLL of every token after the first, B x T - 1; the mean of the last layer's hidden states within
        each row's length, and the state at its end, both B x D.
    """
    hidden_BTD, logits = _states_and_logits(model, tokens_BT, mask_BT)
    # Flat, and not by `token_nll`: its other memory layout may round the last bit differently.
    nll = functional.cross_entropy(logits.flatten(0, 1), tokens_BT[:, 1:].flatten(), reduction="none")
    position_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
    inside_BT = (position_T >= start) & (position_T < lengths_B[:, None])
    mean_BD = (hidden_BTD * inside_BT[..., None]).sum(dim=1) / (lengths_B[:, None] - start)
    last_BD = hidden_BTD[torch.arange(len(tokens_BT), device=tokens_BT.device), lengths_B - 1]
    return nll.view(len(tokens_BT), -1), mean_BD, last_BD


def _states_and_logits(
    model: Model, tokens_BT: torch.Tensor, mask_BT: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the last layer's states, and the logits after all tokens but the last, as the model makes them of those.

    Gemma 2, Granite and Cohere scale or cap what their output matrix gives, so that it alone is not enough.
    """
    states: list[torch.Tensor] = []

    def all_but_the_last(head: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        states.append(inputs[0])
        return (inputs[0][:, :-1],)

    hook = model.get_output_embeddings().register_forward_pre_hook(all_but_the_last)
    try:
        logits = model(tokens_BT, attention_mask=mask_BT, use_cache=False).logits.float()
    finally:
        hook.remove()
    return states[0].float(), logits


@torch.inference_mode()
def score_tokens(model: Model, sequences: Sequences) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the model's first choice for each token, and the token's NLL in nats (fp64), from one forward pass.

    Both are N x T on the CPU; a text's first token and its padding have -1 and NaN.
    """
    predicted_NT = torch.full_like(sequences.tokens_NT, -1)
    nll_NT = torch.full(sequences.tokens_NT.shape, torch.nan, dtype=torch.float64)
    start = 0
    for tokens_BT, lengths_B in padded_batches(model, sequences, SCORED_ROWS):
        logits = model(input_ids=tokens_BT[:, :-1], use_cache=False).logits.float()
        is_padding_BS = torch.arange(1, tokens_BT.shape[1], device=tokens_BT.device) >= lengths_B[:, None]
        rows, width = slice(start, start + len(lengths_B)), tokens_BT.shape[1]
        predicted_NT[rows, 1:width] = logits.argmax(-1).masked_fill(is_padding_BS, -1).cpu()
        nll_BS = token_nll(logits, tokens_BT[:, 1:]).double()
        nll_NT[rows, 1:width] = nll_BS.masked_fill(is_padding_BS, torch.nan).cpu()
        start += len(lengths_B)
    return predicted_NT, nll_NT


def own_perplexity(model: Model, sequences: Sequences) -> float:
    """Return exp of the model's mean NLL over all predicted tokens of `sequences`; NaN if there are none."""
    _, nll_NT = score_tokens(model, sequences)
    is_predicted_NT = torch.arange(nll_NT.shape[1]) < sequences.lengths_N[:, None]
    values = nll_NT[:, 1:][is_predicted_NT[:, 1:]]
    return exponential(float(values.mean())) if len(values) else float("nan")


def memorization_accuracy(tokens_T: torch.Tensor, predicted_T: torch.Tensor, start: int, stop: int) -> float:
    """Return MA: the share of positions from `start` to before `stop` whose greedy choice is the text's token.

    1.0 means that every token is predicted from the true text before it.

    Args:
        tokens_T: The text.
        predicted_T: The greedy choice for each of its positions.
        start: The first position counted: the prefix's length, for the continuation; 1 for all.
        stop: One past the last: the length less one, since the paper's sum ends at p + q − 1.

    Returns:
        A fraction, or NaN if no position is counted.

    Source: Tirumala et al., arXiv:2205.10770; EMSO paper, section 4.1.3, MA.

    Example:
        >>> text, guess = torch.tensor([5, 6, 7, 8]), torch.tensor([-1, 6, 0, 8])
        >>> memorization_accuracy(text, guess, start=1, stop=3)
        0.5
    """
    if stop <= start:
        return float("nan")
    return float((tokens_T[start:stop] == predicted_T[start:stop]).float().mean())


def judge_key(judge: Checkpoint, *facts: str) -> str:
    """Return a sha256 that names a local judge: its weights, tokenizer and configuration, and these facts.

    A checkpoint's digest names its weights alone. The same weights with another tokenizer, or with another
    pooling (a file in a folder of its own, in sentence-transformers' format), are another judge.

    Args:
        judge: Its location and tokenizer are folders here.
        facts: What else decides its numbers, such as the precision that it computes in.
    """
    digest = hashlib.sha256(json.dumps([judge.digest, *facts]).encode())
    location = Path(judge.location)
    for role, folder in (("model", location), ("tokenizer", Path(judge.tokenizer))):
        for file in sorted({file for pattern in DESCRIPTION for file in folder.glob(pattern)}):
            digest.update(json.dumps([role, file.name, file_digest(file)]).encode())
    modules = location / "modules.json"
    for module in json.loads(modules.read_text(encoding="utf-8")) if modules.is_file() else []:
        for file in sorted((location / module["path"]).rglob("*")) if module["path"] else []:
            if file.is_file():
                name = str(file.relative_to(location))
                digest.update(json.dumps([module["path"], name, file_digest(file)]).encode())
    return digest.hexdigest()


def judge_identity(role: str, judge: Checkpoint) -> list[str]:
    """Return what decides a judge's numbers: its weights, how it reads a text, and whether it is the model itself."""
    own = [ORIGINAL] if judge.id == ORIGINAL else []
    facts = judge_facts(judge) if role in CAUSAL_ROLES else []
    weights = judge_key(judge) if Path(judge.location).is_dir() else judge.digest
    return [*own, weights, tokenizer_identity(judge), *facts]


def tokenizer_identity(checkpoint: Checkpoint) -> str:
    """Return a digest of a local tokenizer's files; one of the hub comes with its model's commit, or has a name."""
    folder = checkpoint.tokenizer
    return judge_key(replace(checkpoint, digest="", location=folder)) if Path(folder).is_dir() else folder
