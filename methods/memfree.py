"""MemFree decoding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any

import torch

from harness.contracts import Choice, ErasedModel, ErasureTask, LogUniform, Method, NonNegative, PositiveCount, Strength
from harness.toolkit import unpadded

BASE = 2**24
"""Exceeds every token id, so that node · BASE + token is unique."""
LAST = torch.iinfo(torch.int64).max
NONE = -1
"""Stands for no token and no node."""


@dataclass(frozen=True, kw_only=True)
class MemFree(Method):
    """Lowers by γ, while decoding, each token that would complete n tokens of a forget sequence.

    At the default γ no n-gram of the forget set is completed, as long as another token's logit is within 250 of it.
    Shorter runs, near copies and paraphrases stay. The weights are the original's: attacks that train weights or read
    layers refuse it, and rounding measures it with this decoding.

    Differs from the paper: n-grams are looked up in an exact trie, not in a Bloom filter, and γ is finite, so that
    log-probabilities stay numbers; the paper's method is γ → ∞.

    Source: Ippolito et al., arXiv:2210.17546, section 3 (MemFree decoding).
    """

    label = "MemFree"
    source = "Ippolito et al. 2023, arXiv:2210.17546"
    reference = "none"
    version = 1
    strength = Strength("gamma", cumulative=False, off=0.0)
    searched_training = ()

    gamma: Annotated[NonNegative, LogUniform(low=0.5, high=1000.0)] = 1000.0
    """Penalty on the logit of a token that would complete an n-gram."""
    n: Annotated[PositiveCount, Choice(values=(3, 5, 10))] = 10
    """Length of the n-grams, in tokens."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        # Here, not above: it imports all of transformers, and planning needs the settings only.
        from harness.toolkit import PairModel

        original = task.load_original()
        levels = trie(unpadded(task.forget), self.n)
        blocked = BlockedTokens(levels, original.config.get_text_config(decoder=True).vocab_size)
        pair = PairModel(original, blocked.to(original.device), self.lowered)
        yield ErasedModel(self.gamma, pair, {"blocked_ngrams": len(levels[-1]) - 1})

    def lowered(self, logits: torch.Tensor, is_blocked: torch.Tensor) -> torch.Tensor:
        """Return the logits to decode from.

        Example:
            >>> MemFree(gamma=5.0).lowered(torch.tensor([2.0, 1.0]), torch.tensor([True, False])).tolist()
            [-3.0, 1.0]
        """
        return torch.where(is_blocked, logits - self.gamma, logits)


def trie(texts: Sequence[Sequence[int]], n: int) -> list[torch.Tensor]:
    """Return the trie of all runs of n tokens, level by level.

    A level has its nodes' sorted keys, parent · BASE + token; a node's number is its key's index. A last key keeps
    every look-up inside.

    Example:
        In `7 8 7 8 9` 7 is followed by 8, and 8 by 7 and 9:

        >>> first, second = trie([[7, 8, 7, 8, 9]], 2)
        >>> first[:-1].tolist(), [(key // BASE, key % BASE) for key in second[:-1].tolist()]
        ([7, 8], [(0, 8), (1, 7), (1, 9)])
    """
    runs = [torch.tensor(text).unfold(0, n, 1) for text in texts if len(text) >= n]
    runs_RN = torch.cat(runs) if runs else torch.empty(0, n, dtype=torch.int64)
    node_R = torch.zeros(len(runs_RN), dtype=torch.int64)
    levels = []
    for token_R in runs_RN.unbind(dim=1):
        keys, node_R = (node_R * BASE + token_R).unique(return_inverse=True)
        levels.append(torch.cat([keys, torch.tensor([LAST])]))
    return levels


class BlockedTokens(torch.nn.Module):
    """Marks the tokens that would complete an n-gram: a pair's second model, without weights.

    One layer of the cache stores the tokens themselves.
    """

    def __init__(self, levels: Sequence[torch.Tensor], vocabulary: int) -> None:
        super().__init__()
        from transformers import PretrainedConfig

        self.config = PretrainedConfig(num_hidden_layers=1)
        self.n, self.vocabulary = len(levels), vocabulary
        for number, level in enumerate(levels):
            self.register_buffer(f"level_{number}", level, persistent=False)

    def forward(
        self, input_ids: torch.Tensor, past_key_values: Any = None, attention_mask: Any = None, **_: Any
    ) -> SimpleNamespace:
        """Return the blocked tokens after each position, bool BTV, in place of logits."""
        tokens_BT = input_ids
        if attention_mask is not None and attention_mask.ndim == 2:  # Padding is no text.
            tokens_BT = tokens_BT.masked_fill(attention_mask[:, -input_ids.shape[1] :] == 0, NONE)
        if past_key_values is not None:
            held = tokens_BT[:, None, :, None]
            tokens_BT = past_key_values.update(held, held, 0)[0][:, 0, :, 0]
        before = self.n - 1
        known = torch.nn.functional.pad(tokens_BT, (before, 0), value=NONE)[:, -(input_ids.shape[1] + before) :]
        return SimpleNamespace(logits=self._next_tokens(self._nodes(known, input_ids.shape[1])))

    def _nodes(self, known: torch.Tensor, positions: int) -> torch.Tensor:
        node_BT = torch.zeros_like(known[:, :positions])
        for depth in range(self.n - 1):
            level = self.get_buffer(f"level_{depth}")
            key_BT = node_BT * BASE + known[:, depth + 1 : depth + 1 + positions]
            at_BT = torch.searchsorted(level, key_BT)
            node_BT = torch.where(level[at_BT] == key_BT, at_BT, NONE)
        return node_BT

    def _next_tokens(self, node_BT: torch.Tensor) -> torch.Tensor:
        leaves = self.get_buffer(f"level_{self.n - 1}")
        node_P = node_BT.flatten()
        start_P, stop_P = (torch.searchsorted(leaves, (node_P + more) * BASE) for more in (0, 1))
        count_P = stop_P - start_P
        total = int(count_P.sum())
        position = torch.repeat_interleave(torch.arange(len(node_P), device=node_P.device), count_P, output_size=total)
        within = torch.arange(total, device=node_P.device) - (count_P.cumsum(0) - count_P)[position]
        is_blocked_PV = torch.zeros(len(node_P), self.vocabulary, dtype=torch.bool, device=node_P.device)
        is_blocked_PV[position, leaves[start_P[position] + within] % BASE] = True
        return is_blocked_PV.view(*node_BT.shape, self.vocabulary)
