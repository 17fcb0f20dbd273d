"""The tanh approximation of GELU as one kernel, which keeps its input alone: as eight kernels it keeps five tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch.nn import functional

from harness.errors import TrialError
from harness.models.loading import NO_GELU_TO_FUSE, gelus_to_fuse


@contextmanager
def fused_gelu(*models: torch.nn.Module) -> Iterator[None]:
    """Compute every `gelu_new` of these models in one kernel meanwhile; afterwards no trace is left.

    Values and gradients agree but for the last bits. So models that are compared, a student and its teacher, are given
    together: what rounds differently is no disagreement.

    Raises:
        TrialError: The first of them has none.

    Source:
        Hendrycks and Gimpel, "Gaussian error linear units", arXiv:1606.08415, section 2: the tanh approximation.
    """
    if not gelus_to_fuse(models[0]):
        raise TrialError(f"a {type(models[0]).__name__} {NO_GELU_TO_FUSE}")
    bare = [module for model in models for module in gelus_to_fuse(model) if "forward" not in vars(module)]
    for module in bare:
        vars(module)["forward"] = partial(functional.gelu, approximate="tanh")
    try:
        yield
    finally:
        for module in bare:
            del vars(module)["forward"]
