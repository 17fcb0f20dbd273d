"""Exact match: how many tokens come out right before the first that does not."""

from __future__ import annotations

from collections.abc import Sequence


def exact_match(generated: Sequence[int], reference: Sequence[int]) -> int:
    """Return the number of tokens before the first difference; the whole length if there is none.

    Source: EMSO paper, section 4.4 (EMatch); Nasr et al., arXiv:2311.17035.

    Example:
        >>> exact_match([4, 5, 6, 7], [4, 5, 0, 7])
        2
        >>> exact_match([4, 5], [4, 5])
        2
    """
    matched = 0
    for ours, theirs in zip(generated, reference, strict=False):
        if ours != theirs:
            break
        matched += 1
    return matched
