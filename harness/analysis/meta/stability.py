"""Whether a metric says the same of a model after it was disturbed: the formulas of the public meta-evaluation.

Of every metric m is the side that is higher the more a model knows of the forget set (`pools.knowledge`).
"""

from __future__ import annotations

import math


def agreement(value: float, other: float) -> float:
    """Return 1 − |a − b| / (|a| + |b|): 1 where two numbers are equal, 0 where one is 0 or their signs differ.

    Of two zeros it is 1. NaN where either is.

    Relearning: a is how far an erased model's m rose after an epoch on the forget set, b how far the retrained
    model's did (R): texts that are as new to both should be learned as fast. Rounding: a and b are an erased model's m
    before and after (Q): rounding teaches nothing.

    Source: `docs/data/meta_eval.json` and `docs/paper_guide.md`, section 4.1, of github.com/gnueaj/
    unlearning-depth-score (arXiv:2605.24614), the symmetric formulas, which its published figures are of. An ε in its
    denominators is left out here.

    Example:
        An erased model that rose by .3 where the retrained one rose by .1, and one that fell:

        >>> round(agreement(0.3, 0.1), 9), agreement(-0.1, 0.1), agreement(0.0, 0.0)
        (0.5, 0.0, 1.0)
    """
    size = abs(value) + abs(other)
    return 1.0 if size == 0.0 else 1.0 - abs(value - other) / size


def one_sided_relearning(rise: float, rise_of_retrained: float) -> float:
    """Return min(Δ_ret / Δ, 1): below 1 where an erased model's m rises by more than the retrained model's.

    Source: Dorna et al., arXiv:2506.12618 (OpenUnlearning), section 4: what the public study used before its symmetric
    formulas. Its quotient has no meaning where the erased model's m does not rise: nothing came back then, and this is
    1; where only the retrained model's falls, it is 0.

    Example:
        >>> one_sided_relearning(0.4, 0.1), one_sided_relearning(0.1, 0.4), one_sided_relearning(-0.1, 0.1)
        (0.25, 1.0, 1.0)
    """
    if math.isnan(rise) or math.isnan(rise_of_retrained):
        return math.nan
    return 1.0 if rise <= 0 else min(max(rise_of_retrained / rise, 0.0), 1.0)


def one_sided_rounding(before: float, after: float) -> float:
    """Return min(before / after, 1): below 1 where rounding brings something back; NaN of negative numbers.

    Source: as `one_sided_relearning`.

    Example:
        >>> one_sided_rounding(0.2, 0.8), one_sided_rounding(0.8, 0.2), one_sided_rounding(0.0, 0.0)
        (0.25, 1.0, 1.0)
    """
    if not (before >= 0 and after >= 0):
        return math.nan
    return 1.0 if after <= before else before / after


def harmonic_mean(first: float, second: float) -> float:
    """Return 2ab / (a + b): 0 where either is 0.

    The study's robustness is that of R and Q, each a mean over models first; its overall score that of the AUC and the
    robustness.

    Example:
        The published logit lens: R .8116 and Q .9587.

        >>> round(harmonic_mean(0.8116, 0.9587), 4)
        0.879
    """
    total = first + second
    return 0.0 if total == 0 else 2 * first * second / total
