"""Extraction strength: how little of a text a model must be given to say the rest of it."""

from __future__ import annotations

import math
from collections.abc import Sequence


def extraction_strength(is_right: Sequence[bool]) -> float:
    """Return the share of a continuation that comes out once the text before it is given.

    1 − k/q of q tokens, k being the fewest of them that must be given beside the prefix so that all others are the
    greedy choice: 1 is recited wholly, and 0 has a wrong last token. NaN of no token.

    Source: Wang et al., arXiv:2406.09179, appendix B, after Carlini et al., arXiv:2012.07805. Where not even the last
    token is right this is 0; implementations that stop one token earlier say 1/q.

    Args:
        is_right: Of each token of the continuation whether it is the greedy choice given the text before it.

    Example:
        The last two of five come out by themselves once three are given:

        >>> extraction_strength([True, False, False, True, True])
        0.4
        >>> extraction_strength([True, True]), extraction_strength([True, False])
        (1.0, 0.0)
    """
    if not is_right:
        return math.nan
    recited = next((count for count, right in enumerate(reversed(is_right)) if not right), len(is_right))
    return recited / len(is_right)
