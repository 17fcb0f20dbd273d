"""Counts floating-point operations as a model computes: the same on every machine, where seconds are not."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

_OPERATIONS = torch.ops.aten


def operation_counter() -> FlopCounterMode:
    """Return a context that counts the operations of matrix products, convolutions and attention inside it.

    A multiplication with its addition counts as two. What it slows down is what computes little: a small model takes up
    to half as long again.

    Example:
        >>> with operation_counter() as counter:
        ...     _ = torch.ones(3, 4) @ torch.ones(4, 5)
        >>> counter.get_total_flops()
        120
    """
    return FlopCounterMode(
        display=False,
        custom_mapping={  # PyTorch's own list lacks what a CPU calls.
            _OPERATIONS._scaled_dot_product_flash_attention_for_cpu: _attention,
            _OPERATIONS._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
        },
    )


def _attention(query: torch.Size, key: torch.Size, value: torch.Size, *rest: object, **named: object) -> int:
    return int(sdpa_flop_count(query, key, value))


def _attention_backward(
    gradient: torch.Size, query: torch.Size, key: torch.Size, value: torch.Size, *rest: object, **named: object
) -> int:
    return int(sdpa_backward_flop_count(gradient, query, key, value))
