"""Near-verbatim copies: how alike two texts are, counted in tokens that would have to be edited."""

from __future__ import annotations

from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein


def token_similarity(generated: Sequence[int], reference: Sequence[int]) -> float:
    """Return 1 − d / max(lengths), d being the fewest tokens to insert, delete or replace between the two.

    1 is the same text, 0 one without anything in common; two empty texts are the same.

    Source: Levenshtein, Soviet Physics Doklady 10, 1966; as a measure of near-verbatim recitation, of which 0.75 is
    loose and 0.95 a copy: Merullo et al., arXiv:2510.24256.

    Example:
        One token is left out of four, and all that follow are one place early; an exact match sees one token:

        >>> token_similarity([4, 6, 7], [4, 5, 6, 7])
        0.75
    """
    return float(Levenshtein.normalized_similarity(generated, reference))
