"""Repetition and diversity: how often a text says the same n words again."""

from __future__ import annotations

from collections.abc import Sequence


def rep_n(text: str, n: int) -> float:
    """Return 1 − unique / all n-grams of whitespace words: 0 if none comes twice, near 1 if one comes always.

    A text without an n-gram gets 1.0, the worst: a model that stops at once must not look perfect.

    Source: Su et al., arXiv:2202.06417, rep-n; EMSO paper, appendix E.

    Example:
        Of the bigrams "a b", "b a", "a b" two are different:

        >>> round(rep_n("a b a b", 2), 4)
        0.3333
    """
    grams = _word_ngrams(text, n)
    return 1.0 - len(set(grams)) / len(grams) if grams else 1.0


def div_n(text: str, n: int) -> float:
    """Return unique / all n-grams of whitespace words; 0.0, the worst, for a text without one.

    Example:
        >>> round(div_n("a b a b", 2), 4)
        0.6667
    """
    grams = _word_ngrams(text, n)
    return len(set(grams)) / len(grams) if grams else 0.0


def div_n_over_words(text: str, n: int) -> float:
    """Return unique n-grams / words, the published tables' diversity: below 1 even without repetition.

    Differs from the paper: it cites Su et al., whose diversity is a product over n; its numbers fit only this.

    Example:
        >>> div_n_over_words("a b a b", 2)
        0.5
    """
    words = len(text.split())
    return len(set(_word_ngrams(text, n))) / words if words else 0.0


def _word_ngrams(text: str, n: int) -> Sequence[tuple[str, ...]]:
    words = text.split()
    return list(zip(*(words[shift:] for shift in range(n)), strict=False))
