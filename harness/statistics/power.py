"""How many replicates or items would tell two methods apart, from how far their contrast varies.

More replicates never make up for items: the same ones are measured in each. So both parts of a contrast's variance
count here, as they do in its test.

Array letters: Q quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import chdtri, ndtr, ndtri

from harness.statistics.contrasts import LEVEL, POWER, Contrast, power, replicates_needed

MOST_REPLICATES = 1000
_MOST_ITEMS = 10_000_000
_QUANTILES = 16
"""Of the estimated variance, over which power is averaged: it is then off by about .01 at most."""


def contrast_power(difference: float, contrast: Contrast, replicates: int, tests: int = 1) -> float:
    """Return how often a true difference is found with so many replicates, on the same items as the contrast.

    The replicates' variance is estimated each time, which is part of it; that of the items counts as known.

    Args:
        difference: That is there, of logarithms.
        contrast: What was measured, of at least two replicates: how far items and replicates vary.
        replicates: Models, or seeds of one model.
        tests: How many contrasts are planned; the correction is Bonferroni's, what Holm asks of the smallest p.

    Returns:
        A share; NaN where the contrast has a single replicate.

    Example:
        A difference of .42 whose replicates vary by .13: five find it nearly always. Where so few items were measured
        that they alone leave it uncertain by .2, a thousand find it in 55 of 100 tries.

        >>> of_seeds = Contrast(0.42, 0.0, 0.13**2 / 3, 256, 3)
        >>> of_few_items = replace(of_seeds, items_variance=0.2**2)
        >>> [round(contrast_power(0.42, one, count), 2) for one, count in ((of_seeds, 5), (of_few_items, 1000))]
        [1.0, 0.55]
    """
    if contrast.replicates < 2:
        return math.nan
    if replicates < 2:
        return 0.0
    variance = contrast.replicates_variance * contrast.replicates / replicates
    error = math.sqrt(contrast.items_variance + variance)
    if error == 0:
        return float(difference != 0)
    freedom, quantiles = replicates - 1, min(_QUANTILES, 3 + 100 // replicates)  # Of many it is nearly known.
    estimated_Q = variance * chdtri(freedom, (np.arange(quantiles) + 0.5) / quantiles) / freedom
    shares = []
    for estimated in estimated_Q if variance else estimated_Q[:1]:
        drawn = replace(contrast, difference=0.0, replicates_variance=float(estimated), replicates=replicates)
        _, half = drawn.interval(LEVEL / tests)
        shares.append(ndtr((difference - half) / error) + ndtr((-difference - half) / error))
    return float(np.mean(shares))


def replicates_to_find(difference: float, contrast: Contrast, tests: int = 1) -> int | None:
    """Return the least number of replicates that find a difference in 8 of 10 tries, on the same items.

    None where a thousand would not, because it is too small, or because the items leave it too uncertain; and where
    the contrast has a single replicate.

    Example:
        >>> of_seeds = Contrast(0.42, 0.0, 0.13**2 / 3, 256, 3)
        >>> replicates_to_find(0.42, of_seeds), replicates_to_find(0.42, replace(of_seeds, items_variance=0.2**2))
        (4, None)
    """
    if contrast.replicates < 2 or not math.isfinite(difference):
        return None
    deviation = math.sqrt(contrast.replicates_variance * contrast.replicates)
    least = replicates_needed(difference, deviation, tests) if deviation else 2
    if least is None:
        return None
    return _least(lambda count: contrast_power(difference, contrast, count, tests), least, MOST_REPLICATES)


def items_to_find(difference: float, variance: float, items: int) -> int | None:
    """Return the least number of items that find a difference in 8 of 10 tries, were there no other uncertainty.

    Args:
        difference: That is there, of logarithms.
        variance: Of the contrast, over the items that were measured.
        items: How many those were.

    Returns:
        Items; None where ten million would not, or one item or none was measured.

    Example:
        Of 256 prompts that leave a contrast uncertain by .055, a difference of 10 % takes 672.

        >>> items_to_find(math.log(1.1), 0.055**2, 256)
        672
    """
    deviation = math.sqrt(variance * items)
    if items < 2 or not difference:
        return None
    if deviation == 0:
        return 2
    about = ((ndtri(1 - LEVEL / 2) + ndtri(POWER)) * deviation / difference) ** 2
    if about > _MOST_ITEMS:
        return None
    return _least(lambda count: power(difference, deviation, count), max(2, int(0.9 * about)), 2 * int(about) + 10)


def _least(power_of: Callable[[int], float], least: int, most: int) -> int | None:
    """Return the least count in a range whose power suffices; power rises with the count."""
    if power_of(least) >= POWER:
        return least
    if power_of(most) < POWER:
        return None
    low, high = least, least + 1
    while power_of(min(high, most)) < POWER:
        low, high = high, 2 * high
    high = min(high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle) >= POWER else (middle, high)
    return high
