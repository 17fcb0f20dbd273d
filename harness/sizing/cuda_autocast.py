"""CUDA's autocast on tensors of the CPU: a GPU computes other operations in fp32 than a CPU does.

A trial for a GPU is dry-run on the CPU's fake tensors: on fake tensors of a GPU, torch without a GPU cannot compute
gradients. What autocast lowers to bf16 is the same for every operation of a causal LM, and torch does it here as there;
what it raises to fp32 is written down here, as torch documents it for CUDA (tested against torch's own casts).

Casts inside a function that torch composes in Python (`multi_head_attention_forward`) are the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as tree

_IN_FP32 = """
    __pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cdist cosh
    cosine_embedding_loss cosine_similarity cross_entropy dist erfinv exp expm1 group_norm hinge_embedding_loss
    kl_div l1_loss layer_norm log log10 log1p log2 margin_ranking_loss mse_loss multi_margin_loss
    multilabel_margin_loss nll_loss norm pdist poisson_nll_loss pow reciprocal renorm rsqrt sinh smooth_l1_loss
    soft_margin_loss softplus tan triplet_margin_loss
"""
IN_FP32 = frozenset(_IN_FP32.split())
"""Operations whose arguments CUDA's autocast casts to fp32."""
TO_FP32 = frozenset({"cumprod", "cumsum", "log_softmax", "prod", "softmax", "softmin", "sum"})
"""Operations that CUDA's autocast asks for an fp32 result, unless the caller asked for a type."""


class CudaAutocast(TorchFunctionMode):
    """Casts to fp32 what CUDA's autocast would, wherever autocast is on."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one function of torch."""
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name in IN_FP32 and torch.is_autocast_enabled("cpu"):
            args, kwargs = tree.tree_map_only(torch.Tensor, _raised, (args, kwargs))
        elif name in TO_FP32 and torch.is_autocast_enabled("cpu") and _raised(args[0]) is not args[0]:
            kwargs = {**kwargs, "dtype": kwargs.get("dtype") or torch.float32}
        return function(*args, **kwargs)


def _raised(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
