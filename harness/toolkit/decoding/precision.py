"""What a precision can tell apart: near ties of a greedy choice, and rounding between two ways to compute one logit."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.contracts import Model

NEAR_TIE = 1e-4
"""In fp32, a greedy choice whose two best logits are closer than this may differ between batch shapes."""
HALF_NEAR_TIE_STEPS = 8
"""In bf16 and fp16 the same, in steps of the precision at the largest logit."""
ROUNDING = 2e-4
"""In fp32, the most that two ways to compute a logit may differ, as a share of the largest logit."""
HALF_ROUNDING_STEPS = 16
"""In bf16 and fp16 the same, in steps of the precision."""


@dataclass(frozen=True)
class LogitPrecision:
    """What the logits of a model in one type of numbers can tell apart.

    The limits were measured on random GPT-2, GPT-Neo, GPT-NeoX, Llama and Gemma 2 models (6 layers, width 512,
    logits to 14; two x86-64 cores, torch 2.13): greedy choices after 128 tokens that a key-value cache and a plain
    pass make differently, and how far their logits lie apart, in steps of the precision at the largest logit.

    | precision | step (of the largest logit) | choices that differ | their margin | logits apart |
    | --- | --: | --: | --: | --: |
    | bf16 | 2^-7 | to 2.1 % | to 1.9 steps | to 6.7 steps |
    | fp16 | 2^-10 | to 0.3 % | to 3.5 steps | to 10.3 steps |
    | fp32, 24 architectures of width 32 | 2^-23 | none | | to 34 steps = 4e-6 |
    """

    dtype: torch.dtype

    @classmethod
    def of(cls, model: Model, logits: torch.Tensor) -> LogitPrecision:
        """Return the coarsest precision among a model's weights and its logits."""
        floats = {tensor.dtype for tensor in (*model.parameters(), logits) if tensor.is_floating_point()}
        return cls(max(floats, key=lambda dtype: torch.finfo(dtype).eps))

    @property
    def is_half(self) -> bool:
        """Return whether it is coarser than fp32."""
        return torch.finfo(self.dtype).eps > torch.finfo(torch.float32).eps

    @property
    def near_tie_limit(self) -> str:
        """Return the margin under which a greedy choice is a near tie, in words.

        Example:
            >>> LogitPrecision(torch.float32).near_tie_limit
            'a margin below 0.0001 (float32)'
            >>> LogitPrecision(torch.bfloat16).near_tie_limit
            'a margin below 0.0625 of the largest logit (bfloat16)'
        """
        name = str(self.dtype).removeprefix("torch.")
        if self.is_half:
            return f"a margin below {HALF_NEAR_TIE_STEPS * torch.finfo(self.dtype).eps:g} of the largest logit ({name})"
        return f"a margin below {NEAR_TIE:g} ({name})"

    def near_tie(self, logits: torch.Tensor) -> torch.Tensor | float:
        """Return the margins under which these choices, ... x V, are near ties: ... of them, or one for all."""
        if not self.is_half:
            return NEAR_TIE
        # Without a copy of the logits, which outweigh all else.
        largest = torch.maximum(logits.amax(dim=-1), -logits.amin(dim=-1)).float()
        return HALF_NEAR_TIE_STEPS * torch.finfo(self.dtype).eps * largest

    def agree(self, ours: torch.Tensor, theirs: torch.Tensor, slack: float = 1.0) -> bool:
        """Return whether two computations of the same logits, ... x V, differ by no more than rounding.

        Example:
            >>> logits, fp32 = torch.tensor([[10.0, -2.0]]), LogitPrecision(torch.float32)
            >>> fp32.agree(logits, logits + 1e-3), fp32.agree(logits, logits + 1e-2)
            (True, False)
        """
        ours, theirs = ours.float(), theirs.float()
        share = HALF_ROUNDING_STEPS * torch.finfo(self.dtype).eps if self.is_half else ROUNDING
        largest = theirs.masked_fill(theirs.isinf(), 0.0).abs().amax(dim=-1, keepdim=True)
        return bool((((ours - theirs).abs() <= slack * share * largest) | (ours == theirs)).all())
