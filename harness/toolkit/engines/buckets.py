"""How much DeepSpeed reduces at once: apart from the engine, since sizing a sweep needs it without DeepSpeed."""

from __future__ import annotations

BUCKET = 50_000_000
"""Elements; DeepSpeed's own half a billion would take 2 GB beside any model."""


def bucket_elements(weights: int) -> int:
    """Return the gradient elements of one reduction, for a model of so many weights.

    Example:
        >>> bucket_elements(1_000), bucket_elements(2_700_000_000)
        (1000, 50000000)
    """
    return min(weights, BUCKET)
