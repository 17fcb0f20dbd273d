"""When a model no longer writes: the collapse flag, which rule raised it, and its two classes.

The paper marks collapsed models red and says what they look like, without a threshold. MAUVE below a
quarter of the original's gives all 10 red cells of its Table 1 and none of the 11 others, and perplexity
outside 0.5 to 5 times the original's gives nine of the 10 and none of the others. Each misses what the
other sees: MAUVE takes a model that writes retain text at 12 times the original's perplexity for a
healthy one, and perplexity does not see the tenth, which repeats itself at 0.86 times the original's.
Either is enough.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Literal

import pandas as pd

from harness.specs import ORIGINAL, RETRAINED, CollapseBounds

CollapseClass = Literal["healthy", "degenerate", "gibberish", "unknown"]
REPEATS = 0.5
"""More repeated n-grams than new ones: text that turns in circles."""
_AND = " and "


def outside(value: float, original: float, low: float, high: float = math.inf) -> bool | None:
    """Return whether `value` lies outside `low` to `high` times the original's.

    None where it cannot be told: either is NaN, or the original's is infinite.

    Example:
        >>> outside(0.137, 0.790, 0.25), outside(0.276, 0.702, 0.25), outside(math.nan, 0.7, 0.25)
        (True, False, None)
        >>> outside(57.0, 4.6, 0.5, 5.0), outside(22.9, 4.6, 0.5, 5.0), outside(2.2, 4.6, 0.5, 5.0)
        (True, False, True)
    """
    if math.isnan(value) or not math.isfinite(original):
        return None
    return bool(value < low * original or value > high * original)


def broken_rules(
    number: Mapping[str, float], original: Mapping[str, float], bounds: CollapseBounds
) -> dict[str, bool | None]:
    """Return for `mauve` and for `perplexity` whether it says that the model collapsed; None: it cannot tell."""
    return {
        "mauve": outside(number["mauve"], original["mauve"], bounds.mauve),
        "perplexity": outside(number["perplexity"], original["perplexity"], *bounds.perplexity),
    }


def has_collapsed(broken: Mapping[str, bool | None]) -> bool | None:
    """Return whether any rule is broken; None where none is and one cannot tell.

    One broken rule is enough, so a model whose MAUVE is NaN has collapsed if its perplexity says so,
    and is healthy only if both rules were looked at.

    Example:
        >>> has_collapsed({"mauve": False, "perplexity": True}), has_collapsed({"mauve": None, "perplexity": True})
        (True, True)
        >>> has_collapsed({"mauve": None, "perplexity": False}), has_collapsed({"mauve": False, "perplexity": False})
        (None, False)
    """
    if any(broken.values()):
        return True
    return None if None in broken.values() else False


def collapse_class(
    collapsed: bool | None,
    repetition: float,
    perplexity: float,
    original_perplexity: float,
    low: float = CollapseBounds.perplexity[0],
) -> CollapseClass:
    """Return how a model collapsed: it repeats itself (`degenerate`) or writes nonsense (`gibberish`).

    Degenerate text repeats (rep_n above one half) or is far too predictable (perplexity below `low`
    times the original's); every other collapse is gibberish. `unknown` is never 'healthy': it stands
    where the collapse itself, or all that would tell its class, could not be measured.

    Source:
        EMSO, section 4.2, "Model collapse".

    Example:
        >>> collapse_class(True, repetition=0.99, perplexity=1.9, original_perplexity=27.7)
        'degenerate'
        >>> collapse_class(True, repetition=0.04, perplexity=535.8, original_perplexity=17.0)
        'gibberish'
    """
    if collapsed is None:
        return "unknown"
    if not collapsed:
        return "healthy"
    if repetition > REPEATS or perplexity < low * original_perplexity:
        return "degenerate"
    if math.isnan(repetition) and math.isnan(perplexity / original_perplexity):
        return "unknown"
    return "gibberish"


def repetitions(table: pd.DataFrame) -> pd.DataFrame:
    """Return each row's shares of repeated n-grams, whichever n were measured: the columns `rep_<n>`."""
    return table[[name for name in table.columns if re.fullmatch(r"rep_\d+", name)]].astype(float)


def flag(table: pd.DataFrame, bounds: CollapseBounds | None = None) -> pd.DataFrame:
    """Return the table with its collapse columns set anew on every row.

    `collapsed` is True, False or None; `collapse_class` is one of the four; `collapse_reason` names the
    metrics whose rule is broken (`mauve`, `perplexity`, `mauve and perplexity`, or '').

    Each row is held against its own model's original row: that of its own seed, or, where that
    seed has none, the mean of all. The retrained model, what perfect erasure looks like, has no bounds to keep.
    """
    bounds = bounds or CollapseBounds()
    numbers = table.reindex(columns=["mauve", "perplexity"]).astype(float)
    repeated = repetitions(table).max(axis=1)
    flags: list[bool | None] = []
    classes: list[CollapseClass] = []
    reasons: list[str] = []
    for (_, row), (_, number), repeats in zip(table.iterrows(), numbers.iterrows(), repeated, strict=True):
        of_model = (table["method"] == ORIGINAL) & (table["model"] == row["model"])
        of_seed = of_model & (table["seed"] == row["seed"])
        original = numbers[of_seed if of_seed.any() else of_model].mean()
        # Nothing was erased from the retrained model: where it differs from the original it is the better of the two.
        is_retrained = row["method"] == RETRAINED
        broken = {} if is_retrained else broken_rules(dict(number), dict(original), bounds)
        flags.append(has_collapsed(broken))
        perplexities = number["perplexity"], original["perplexity"]
        classes.append(collapse_class(flags[-1], repeats, *perplexities, bounds.perplexity[0]))
        reasons.append(_AND.join(name for name, is_broken in broken.items() if is_broken))
    columns = {"collapsed": flags, "collapse_class": classes, "collapse_reason": reasons}
    return table.assign(
        **{name: pd.Series(values, index=table.index, dtype=object) for name, values in columns.items()}
    )


def all_reasons(reasons: Iterable[str]) -> str:
    """Return the reasons of several seeds as one.

    Example:
        >>> all_reasons(["mauve and perplexity", "", "perplexity"]), all_reasons([])
        ('mauve and perplexity', '')
    """
    return _AND.join(sorted({name for reason in reasons if reason for name in reason.split(_AND)}))


def verdict(collapse_class: str, reason: str) -> str:
    """Return a row's class with what told it, as tables print it.

    Example:
        >>> verdict("gibberish", "perplexity"), verdict("healthy", "")
        ('gibberish: perplexity', 'healthy')
    """
    return f"{collapse_class}: {reason}" if reason else collapse_class
