"""Scoring: what another causal LM, the judge, thinks of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from harness.contracts import Checkpoint, Model
from harness.errors import ModelError
from harness.models.loading import load_model, load_tokenizer, positions
from harness.toolkit.batches import rows_at_once
from harness.toolkit.keys import judge_key

BATCH = 32


@dataclass(frozen=True)
class Reading:
    """What a judge made of N prompts and the texts after them."""

    nll: list[list[float]]
    """−log p of every token of each text given its prompt and what came before, in nats."""
    mean_ND: np.ndarray
    """The last layer's hidden states, averaged over each prompt and text; zeros where both are empty."""
    last_ND: np.ndarray
    """The last layer's hidden state at the end of each text."""


class CausalJudge:
    """A causal LM that reads texts; each text is tokenised with the judge's own tokenizer."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.digest = judge_key(checkpoint)
        self._id = checkpoint.id
        self._tokenizer = load_tokenizer(checkpoint)
        self._model = load_model(checkpoint).to("cuda" if torch.cuda.is_available() else "cpu")
        self._longest = positions(checkpoint)

    def read(self, prompts: Sequence[str], texts: Sequence[str]) -> Reading:
        """Read each prompt with its text, in one forward pass, and return what the judge made of them."""
        pairs = [(self._ids(prompt), self._ids(text)) for prompt, text in zip(prompts, texts, strict=True)]
        cut = [(prompt, text[: max(0, self._longest - len(prompt))]) for prompt, text in pairs]
        nll: list[list[float]] = [[] for _ in cut]
        mean_ND, last_ND = np.zeros((2, len(cut), self._model.config.hidden_size), dtype=np.float32)
        rows = [place for place, (prompt, text) in enumerate(cut) if prompt or text]
        lengths = [len(cut[row][0]) + len(cut[row][1]) for row in rows]
        config = self._model.config
        at_once = rows_at_once(config.vocab_size, max(lengths, default=1), self._model.device, most=BATCH)
        for part in _by_length(rows, lengths, at_once):
            nll_BS, mean_ND[part], last_ND[part] = self._forward([cut[row][0] + cut[row][1] for row in part])
            for row, values in zip(part, nll_BS, strict=True):
                prompt, text = cut[row]
                first = max(len(prompt), 1)
                nll[row] = values[first - 1 : len(prompt) + len(text) - 1].tolist()
        return Reading(nll, mean_ND, last_ND)

    def padded_mean_nll(self, texts: Sequence[str], tokens: int) -> float:
        """Return the mean NLL over a padded batch of texts: over every place but the first, padding included.

        Rows are padded on the right with ends of text. Those count as tokens to be predicted and are masked
        from what is attended to, so that a row's padding is predicted from its text alone.

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
        rows = [self._ids(text)[: min(tokens, self._longest)] for text in texts]
        width = max(len(row) for row in rows)
        padded_BT = torch.tensor([row + [end] * (width - len(row)) for row in rows], device=self._model.device)
        lengths_B = torch.tensor([len(row) for row in rows], device=self._model.device)
        mask_BT = (torch.arange(width, device=self._model.device) < lengths_B[:, None]).long()
        at_once = rows_at_once(self._model.config.vocab_size, max(width, 1), self._model.device, most=len(rows))
        parts = zip(*(whole.split(at_once) for whole in (padded_BT, lengths_B, mask_BT)), strict=True)
        return float(torch.cat([read_batch(self._model, *part)[0] for part in parts]).mean())

    def _forward(self, rows: Sequence[list[int]]) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
        lengths_B = torch.tensor([len(row) for row in rows], device=self._model.device)
        nll_BS, mean_BD, last_BD = read_batch(self._model, self._pad(rows), lengths_B)
        return nll_BS.cpu(), mean_BD.float().cpu().numpy(), last_BD.float().cpu().numpy()

    def _pad(self, rows: Sequence[list[int]]) -> torch.Tensor:
        # Right padding needs no mask: a causal model's earlier positions never see it.
        width = max(len(row) for row in rows)
        padded = [row + [0] * (width - len(row)) for row in rows]
        return torch.tensor(padded, device=self._model.device)

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


@torch.inference_mode()
def read_batch(
    model: Model, tokens_BT: torch.Tensor, lengths_B: torch.Tensor, mask_BT: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what a causal LM makes of right-padded rows, in one forward pass.

    Args:
        model: The judge.
        tokens_BT: The rows.
        lengths_B: How much of each is text.
        mask_BT: 1 where a token may be attended to; needed only by who asks what follows the text.

    Returns:
        The NLL of every token after the first, B x T - 1; the mean of the last layer's hidden states within
        each row's length, and the state at its end, both B x D.
    """
    hidden_BTD = model.base_model(tokens_BT, attention_mask=mask_BT, use_cache=False).last_hidden_state
    logits = model.get_output_embeddings()(hidden_BTD[:, :-1]).float()
    nll = functional.cross_entropy(logits.flatten(0, 1), tokens_BT[:, 1:].flatten(), reduction="none")
    inside_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device) < lengths_B[:, None]
    mean_BD = (hidden_BTD * inside_BT[..., None]).sum(dim=1) / lengths_B[:, None]
    last_BD = hidden_BTD[torch.arange(len(tokens_BT), device=tokens_BT.device), lengths_B - 1]
    return nll.view(len(tokens_BT), -1), mean_BD, last_BD


def _by_length(rows: Sequence[int], lengths: Sequence[int], at_once: int) -> list[list[int]]:
    ordered = [row for _, row in sorted(zip(lengths, rows, strict=True))]
    return [ordered[at : at + at_once] for at in range(0, len(ordered), at_once)]
