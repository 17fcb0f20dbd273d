"""Log-likelihoods, perplexity and hidden states under a causal LM."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

from harness.base import files, hub
from harness.contracts import Checkpoint, Model, Sequences, exponential
from harness.errors import ModelError
from harness.models import loading, resolving, tokenizing
from harness.settings import ORIGINAL
from harness.toolkit import device


class Scores(NamedTuple):
    """Scores of N texts after their prompts."""

    nll: list[list[float]]
    """−log p of every token of each text, in nats."""
    mean_ND: np.ndarray
    """Mean of the last layer's states over prompt and text; zeros if both are empty."""
    last_ND: np.ndarray
    """The last layer's state at the end of each text."""


class CausalJudge:
    """A causal LM with its own tokenizer and start of text."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._id = checkpoint.id
        self._tokenizer = loading.load_tokenizer(checkpoint)
        self._start = tokenizing.start_tokens(self._tokenizer)
        dtype = device.judges_dtype()
        lowered = [] if dtype == torch.float32 else [str(dtype)]
        self.digest = judge_key(checkpoint, *map(str, self._start), *lowered)
        self._model = loading.load_model(checkpoint, dtype).to(device.computing_device())
        self._longest = loading.positions(checkpoint)

    def score(self, prompts: Sequence[str], texts: Sequence[str], *, names: bool = False) -> Scores:
        """Score each text after its prompt; for `names` see `token_lists`."""
        before = tokenizing.token_lists(self._tokenizer, prompts, starts=False, names=names)
        after = tokenizing.token_lists(self._tokenizer, texts, starts=False, names=names)
        if any(prompts):
            after = tokenizing.continuation_ids(self._tokenizer, texts, names=names)
        pairs = [([*self._start, *prompt], text) for prompt, text in zip(before, after, strict=True)]
        cut = [(prompt, text[: max(0, self._longest - len(prompt))]) for prompt, text in pairs]
        start_length = len(self._start)
        nll: list[list[float]] = [[] for _ in cut]
        width = self._model.get_output_embeddings().weight.shape[1]
        mean_ND, last_ND = np.zeros((2, len(cut), width), dtype=np.float32)
        lengths = [len(prompt) + len(text) for prompt, text in cut]
        by_length = sorted((length, row) for row, length in enumerate(lengths) if length > start_length)
        longest = by_length[-1][0] if by_length else 1
        at_once = device.rows_at_once(self._model.config.vocab_size, longest, self._model.device, device.SCORED_ROWS)
        for start in range(0, len(by_length), at_once):
            rows = [row for _, row in by_length[start : start + at_once]]
            # Right padding needs no mask: a causal model's earlier positions never see it.
            tokens_BT, lengths_B = self._padded([cut[row][0] + cut[row][1] for row in rows], 0)
            size = device.read_at_once(tokens_BT.shape[1], tokens_BT.device)
            parts = zip(tokens_BT.split(size), lengths_B.split(size), strict=True)
            first = max(min(len(cut[row][0]) for row in rows), 1)
            scored = [score_batch(self._model, *part, start=start_length, first=first) for part in parts]
            nll_BS, mean_BD, last_BD = map(torch.cat, zip(*scored, strict=True))
            mean_ND[rows], last_ND[rows] = mean_BD.float().cpu().numpy(), last_BD.float().cpu().numpy()
            for row, values in zip(rows, nll_BS.cpu(), strict=True):
                prompt, text = cut[row]
                nll[row] = values[max(len(prompt), 1) - first : len(prompt) + len(text) - first].tolist()
        return Scores(nll, mean_ND, last_ND)

    def padded_mean_nll(self, texts: Sequence[str], tokens: int) -> float:
        """Return the mean NLL over a padded batch, padding included, in nats; NaN if no row has two tokens.

        Padding is ends of text, predicted but masked from attention. Names of special tokens are read as those tokens.
        """
        end = self._tokenizer.eos_token_id
        if end is None:
            lacks = f"the judge '{self._id}' has a tokenizer without an end of text, which `definition: table` needs."
            raise ModelError(f"{lacks} Take another judge for perplexity (judges.perplexity), or `definition: exact`.")
        rows = [row[: min(tokens, self._longest)] for row in tokenizing.token_lists(self._tokenizer, texts, names=True)]
        padded_BT, lengths_B = self._padded(rows, end)
        width = padded_BT.shape[1]
        mask_BT = (torch.arange(width, device=self._model.device) < lengths_B[:, None]).long()
        at_once = device.rows_at_once(self._model.config.vocab_size, max(width, 1), self._model.device, most=len(rows))
        parts = zip(*(whole.split(at_once) for whole in (padded_BT, lengths_B, mask_BT)), strict=True)
        return float(torch.cat([score_batch(self._model, *part)[0] for part in parts]).mean())

    def _padded(self, rows: Sequence[list[int]], padding: int) -> tuple[Tensor, Tensor]:
        lengths = [len(row) for row in rows]
        padded = [row + [padding] * (max(lengths) - len(row)) for row in rows]
        return torch.tensor(padded, device=self._model.device), torch.tensor(lengths, device=self._model.device)


@torch.inference_mode()
def score_batch(
    model: Model, tokens_BT: Tensor, lengths_B: Tensor, mask_BT: Tensor | None = None, start: int = 0, first: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Score right-padded rows in one forward pass, with `mask_BT` if predictions after the text matter.

    Returns:
        NLL from token `first` on, B x T - first; the last layer's mean state from `start` within each length, and its
            state at the end, both B x D.
    """
    states: list[Tensor] = []

    def take_predicting_positions(head: torch.nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        states.append(inputs[0].float())
        return (inputs[0][:, first - 1 : -1],)

    hook = model.get_output_embeddings().register_forward_pre_hook(take_predicting_positions)
    try:
        logits = model(tokens_BT, attention_mask=mask_BT, use_cache=False).logits.float()
    finally:
        hook.remove()
    [hidden_BTD] = states
    position_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
    inside_BT = (position_T >= start) & (position_T < lengths_B[:, None])
    mean_BD = (hidden_BTD * inside_BT[..., None]).sum(dim=1) / (lengths_B[:, None] - start)
    last_BD = hidden_BTD[torch.arange(len(tokens_BT), device=tokens_BT.device), lengths_B - 1]
    return _token_nll(logits, tokens_BT[:, first:]), mean_BD, last_BD


def _token_nll(logits_BSV: Tensor, targets_BS: Tensor) -> Tensor:
    # Losses have the vocabulary in between, six times slower: flat, erased weights would have other last bits.
    nll_N = functional.cross_entropy(logits_BSV.flatten(0, 1), targets_BS.flatten(), reduction="none")
    return nll_N.view_as(targets_BS)


@torch.inference_mode()
def score_tokens(model: Model, sequences: Sequences) -> tuple[Tensor, Tensor]:
    """Return each token's greedy choice and NLL in nats (fp64), N x T on the CPU.

    First tokens and padding have -1 and NaN.
    """
    predicted_NT = torch.full_like(sequences.tokens_NT, -1)
    nll_NT = torch.full(sequences.tokens_NT.shape, torch.nan, dtype=torch.float64)
    start = 0
    for tokens_BT, lengths_B in device.padded_batches(model, sequences):
        logits = model(input_ids=tokens_BT[:, :-1], use_cache=False).logits.float()
        is_padding_BS = torch.arange(1, tokens_BT.shape[1], device=tokens_BT.device) >= lengths_B[:, None]
        rows, width = slice(start, start + len(lengths_B)), tokens_BT.shape[1]
        predicted_NT[rows, 1:width] = logits.argmax(-1).masked_fill(is_padding_BS, -1).cpu()
        nll_BS = _token_nll(logits, tokens_BT[:, 1:])
        nll_NT[rows, 1:width] = nll_BS.double().masked_fill(is_padding_BS, torch.nan).cpu()
        start += len(lengths_B)
    return predicted_NT, nll_NT


def own_perplexity(model: Model, sequences: Sequences) -> float:
    """Return exp of the mean NLL over all predicted tokens; NaN without any."""
    _, nll_NT = score_tokens(model, sequences)
    is_predicted_NT = torch.arange(nll_NT.shape[1]) < sequences.lengths_N[:, None]
    values = nll_NT[:, 1:][is_predicted_NT[:, 1:]]
    return exponential(float(values.mean())) if len(values) else float("nan")


def memorization_accuracy(tokens_T: Tensor, predicted_T: Tensor, start: int, stop: int) -> float:
    """Return MA: the share of right greedy choices from `start` to before `stop`; NaN without any.

    Source: Tirumala et al., arXiv:2205.10770; EMSO paper, section 4.1.3, MA.

    Example:
        >>> text, guess = torch.tensor([5, 6, 7, 8]), torch.tensor([-1, 6, 0, 8])
        >>> memorization_accuracy(text, guess, start=1, stop=3)
        0.5
    """
    if stop <= start:
        return float("nan")
    return float((tokens_T[start:stop] == predicted_T[start:stop]).float().mean())


def accuracies(sequences: Sequences, predicted_NT: Tensor, *, first: int, left_out: int) -> np.ndarray:
    """Return each sequence's MA from position `first` on, without the last `left_out` positions.

    Example:
        >>> texts = Sequences(torch.tensor([[5, 6, 7], [5, 8, 0]]), torch.tensor([3, 2]), 1, "")
        >>> accuracies(texts, torch.tensor([[-1, 6, 0], [-1, 8, -1]]), first=1, left_out=0)
        array([0.5, 1. ])
    """
    values = np.empty(len(sequences))
    for row, length in enumerate(sequences.lengths_N.tolist()):
        values[row] = memorization_accuracy(sequences.tokens_NT[row], predicted_NT[row], first, length - left_out)
    return values


def recited_lengths(sequences: Sequences, predicted_NT: Tensor) -> np.ndarray:
    """Return each sequence's number of right greedy choices after its prefix, before the first wrong one.

    A greedy continuation equals the text for as many tokens.

    Example:
        >>> texts = Sequences(torch.tensor([[5, 6, 7, 8], [5, 8, 9, 0]]), torch.tensor([4, 3]), 1, "")
        >>> recited_lengths(texts, torch.tensor([[-1, 6, 7, 0], [-1, 0, 9, -1]]))
        array([2, 0])
    """
    position_T = torch.arange(sequences.tokens_NT.shape[1])
    is_right_NT = (predicted_NT == sequences.tokens_NT) & (position_T < sequences.lengths_N[:, None])
    return is_right_NT[:, sequences.prefix_tokens :].long().cumprod(dim=1).sum(dim=1).numpy()


def judge_key(judge: Checkpoint, *facts: str) -> str:
    """Return a sha256 of all in a judge's folder that decides its numbers, and of these facts."""
    digest = hashlib.sha256(json.dumps([judge.digest, *facts]).encode())
    location = Path(judge.location)
    for role, folder in (("model", location), ("tokenizer", Path(judge.tokenizer))):
        for file in sorted({file for pattern in hub.DESCRIPTION for file in folder.glob(pattern)}):
            digest.update(json.dumps([role, file.name, files.file_digest(file)]).encode())
    modules = location / "modules.json"
    for module in json.loads(modules.read_text(encoding="utf-8")) if modules.is_file() else []:
        for file in sorted((location / module["path"]).rglob("*")) if module["path"] else []:
            if file.is_file():
                name = str(file.relative_to(location))
                digest.update(json.dumps([module["path"], name, files.file_digest(file)]).encode())
    return digest.hexdigest()


def judge_identity(role: str, judge: Checkpoint) -> list[str]:
    """Return everything that decides a judge's numbers."""
    own = [ORIGINAL] if judge.id == ORIGINAL else []
    facts = tokenizing.judge_facts(judge) if role in resolving.CAUSAL_ROLES else []
    weights = judge_key(judge) if Path(judge.location).is_dir() else judge.digest
    return [*own, weights, tokenizer_identity(judge), *facts]


def tokenizer_identity(checkpoint: Checkpoint) -> str:
    """Return a digest of a local tokenizer's files, or a hub name."""
    folder = checkpoint.tokenizer
    return judge_key(replace(checkpoint, digest="", location=folder)) if Path(folder).is_dir() else folder


def auc_items(
    members_N: ArrayLike, others_M: ArrayLike, members_are: Literal["higher", "lower"] = "higher"
) -> NDArray[np.float64]:
    """Return a value for each member, then for each other text, whose mean is the AUC of telling them apart.

    A is the share of pairs in which the member scores higher (or lower); ties count half. V_i is that share for member
    i, W_j for other j. With N members and M others, member i has the pseudo-value A + (V_i − A)·(N + M) / N, and
    another A + (W_j − A)·(N + M) / M. NaN is unknown. Declare `items="sequence_and_holdout"`. Variance and covariances
    of the means are DeLong's, with N and M for his N − 1 and M − 1.

    Source:
        E. R. DeLong et al., Biometrics 44, 1988.

    Example:
        A is 2.5 / 4; V is 1 and .25, W .75 and .5.

        >>> auc_items([3.0, 1.0], [1.0, 2.0]).tolist()
        [1.375, -0.125, 0.875, 0.375]
        >>> float(auc_items([3.0, 1.0], [1.0, 2.0], members_are="lower").mean())
        0.375
    """
    sign = 1.0 if members_are == "higher" else -1.0
    scores_N, scores_M = (sign * np.asarray(scores, dtype=np.float64) for scores in (members_N, others_M))
    items_N, items_M = np.full(len(scores_N), np.nan), np.full(len(scores_M), np.nan)
    known_N, known_M = ~np.isnan(scores_N), ~np.isnan(scores_M)
    if known_N.any() and known_M.any():
        above_N = _shares_below(scores_N[known_N], scores_M[known_M])
        above_M = 1.0 - _shares_below(scores_M[known_M], scores_N[known_N])
        auc, texts = above_N.mean(), len(above_N) + len(above_M)
        items_N[known_N] = auc + (above_N - auc) * (texts / len(above_N))
        items_M[known_M] = auc + (above_M - auc) * (texts / len(above_M))
    return np.concatenate([items_N, items_M])


def _shares_below(scores: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    ordered = np.sort(others)
    lower, not_higher = (np.searchsorted(ordered, scores, side) for side in ("left", "right"))
    return np.asarray((lower + not_higher) / (2 * len(ordered)), dtype=np.float64)
