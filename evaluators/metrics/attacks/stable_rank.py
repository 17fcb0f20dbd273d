"""Stable rank: over how many directions a matrix spreads, without a threshold."""

from __future__ import annotations

import math

import torch


def stable_rank(matrix: torch.Tensor) -> float:
    """Return ‖A‖_F² / ‖A‖_2²: 1 for a matrix of rank one, n for n directions of one size.

    It is at most the rank, and small singular values hardly count. NaN for zeros, and for what is not finite.

    Args:
        matrix: Of two dimensions. The largest singular value is exact, by the eigenvalues of the smaller of A Aᵀ and
            AᵀA in double precision.

    Source: M. Rudelson and R. Vershynin, "Sampling from large matrices", 2007.

    Example:
        >>> stable_rank(torch.tensor([[1.0, 2.0], [2.0, 4.0]])), stable_rank(3 * torch.eye(5))
        (1.0, 5.0)
        >>> stable_rank(torch.diag(torch.tensor([2.0, 1.0, 1.0])))
        1.5
    """
    wide = matrix.double() if matrix.shape[0] <= matrix.shape[1] else matrix.double().T
    # Of about size 1, so that squares neither vanish nor overflow.
    largest = wide.abs().max()
    if not 0 < largest < math.inf:
        return math.nan
    products = (wide / largest) @ (wide / largest).T
    return float(products.trace() / torch.linalg.eigvalsh(products)[-1])
