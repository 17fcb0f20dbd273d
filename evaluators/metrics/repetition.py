"""Repetition and diversity: how often a text says the same n words again."""

from __future__ import annotations

import math

from evaluators.metrics.extraction_likelihood import ngrams


def rep_n(text: str, n: int) -> float:
    """Return 1 − unique / all n-grams of whitespace words: 0 if none comes twice, near 1 if one comes always.

    A text without an n-gram gets 1.0, the worst: a model that stops at once must not look perfect.

    Source: Su et al., arXiv:2202.06417, rep-n; EMSO paper, appendix E.

    Example:
        Of the bigrams "a b", "b a", "a b" two are different:

        >>> round(rep_n("a b a b", 2), 4)
        0.3333
    """
    grams = ngrams(text.split(), n)
    return 1.0 - len(set(grams)) / len(grams) if grams else 1.0


def div_n(text: str, n: int) -> float:
    """Return unique / all n-grams of whitespace words; 0.0, the worst, for a text without one.

    Example:
        >>> round(div_n("a b a b", 2), 4)
        0.6667
    """
    grams = ngrams(text.split(), n)
    return len(set(grams)) / len(grams) if grams else 0.0


def table_rep_n(text: str, n: int) -> float:
    """Return a text's rep-n as the published tables have it: 0 without repetition.

    Words are what stands between single spaces: two spaces hold an empty word, a newline stays inside its
    word. NaN for a text without an n-gram: it is left out of the mean.

    Differs from the paper: it says nothing of this; these are the habits of arXiv:2402.10052's code, but that
    it returns 0, here the best, where every text is left out.

    Example:
        Of the bigrams "a b", "b ", " a", "a b" three are different, and "word" holds none:

        >>> table_rep_n("a b  a b", 2), table_rep_n("word", 2)
        (0.25, nan)
    """
    grams = ngrams(text.split(" "), n)
    return 1.0 - len(set(grams)) / len(grams) if grams else math.nan


def table_div_n(text: str, n: int) -> float:
    """Return a text's unique n-grams / words, the published tables' diversity: below 1 without repetition too.

    Words and NaN as in `table_rep_n`.

    Differs from the paper: it cites Su et al., whose diversity is a product over n; its numbers fit only this.

    Example:
        Two different bigrams in four words:

        >>> table_div_n("a b a b", 2), table_div_n("word", 2)
        (0.5, nan)
    """
    words = text.split(" ")
    return len(set(ngrams(words, n))) / len(words) if len(words) >= n else math.nan
