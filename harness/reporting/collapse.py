"""When a model no longer writes: the collapse flag and its two classes.

The paper marks collapsed models red and says what they look like, without a threshold. MAUVE
below a quarter of the original's gives all 10 red cells of its Table 1 and none of the 11 others.
"""

from __future__ import annotations

import math
from typing import Literal

import pandas as pd

from harness.specs import ORIGINAL

MAUVE_FRACTION = 0.25
CollapseClass = Literal["healthy", "degenerate", "gibberish", "unknown"]


def has_collapsed(mauve: float, original_mauve: float, fraction: float = MAUVE_FRACTION) -> bool | None:
    """Return whether MAUVE fell below `fraction` of the original's; None where either is NaN.

    Example:
        >>> has_collapsed(0.137, 0.790), has_collapsed(0.276, 0.702), has_collapsed(float("nan"), 0.7)
        (True, False, None)
    """
    if math.isnan(mauve) or math.isnan(original_mauve):
        return None
    return bool(mauve < fraction * original_mauve)


def collapse_class(
    collapsed: bool | None, rep_2: float, perplexity: float, original_perplexity: float
) -> CollapseClass:
    """Return how a model collapsed: it repeats itself (`degenerate`) or writes nonsense (`gibberish`).

    Degenerate text repeats (rep_2 above one half) or is far too predictable (perplexity below half
    the original's); every other collapse is gibberish. `unknown` is never 'healthy': it stands
    where the collapse itself, or all that would tell its class, could not be measured.

    Source:
        EMSO, section 4.2, "Model collapse".

    Example:
        >>> collapse_class(True, rep_2=0.99, perplexity=1.9, original_perplexity=27.7)
        'degenerate'
        >>> collapse_class(True, rep_2=0.04, perplexity=535.8, original_perplexity=17.0)
        'gibberish'
    """
    if collapsed is None:
        return "unknown"
    if not collapsed:
        return "healthy"
    if rep_2 > 0.5 or perplexity < 0.5 * original_perplexity:
        return "degenerate"
    if math.isnan(rep_2) and math.isnan(perplexity / original_perplexity):
        return "unknown"
    return "gibberish"


def flag(table: pd.DataFrame, fraction: float = MAUVE_FRACTION) -> pd.DataFrame:
    """Return the table with `collapsed` (True, False or None) and `collapse_class` set anew on every row.

    Each row is held against its own model's original row: that of its own seed, or, where that
    seed has none, the mean of all.
    """
    numbers = table.reindex(columns=["mauve", "rep_2", "perplexity"]).astype(float)
    flags: list[bool | None] = []
    classes: list[CollapseClass] = []
    for (_, row), (_, number) in zip(table.iterrows(), numbers.iterrows(), strict=True):
        of_model = (table["method"] == ORIGINAL) & (table["model"] == row["model"])
        of_seed = of_model & (table["seed"] == row["seed"])
        original = numbers[of_seed if of_seed.any() else of_model].mean()
        flags.append(has_collapsed(number["mauve"], original["mauve"], fraction))
        classes.append(collapse_class(flags[-1], number["rep_2"], number["perplexity"], original["perplexity"]))
    return table.assign(
        collapsed=pd.Series(flags, index=table.index, dtype=object),
        collapse_class=pd.Series(classes, index=table.index, dtype=object),
    )
