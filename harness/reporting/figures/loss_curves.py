"""The losses of erasing as functions of p, the label token's probability: as the paper compares them, and in logits.

The paper compares 1/p with log p, which are derivatives with respect to p. What is trained are logits h, and there
∂p_k/∂h_j = p_k (1[k = j] − p_j) cancels the 1/p. A prediction here gives p to its label and shares 1 − p evenly among
the other V − 1 tokens; what is 1/V is uniform.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq

from harness.errors import DataError
from harness.reporting.template import text_file

Values = NDArray[np.float64]

_STEPS = 801


def nll(p: Values) -> Values:
    """Return −log p, in nats: what descent on NLL minimises and gradient ascent maximises.

    It is each term of the label smoothing loss too, at γ = 1.

    Source: EMSO paper, appendix "Difference in Minimizer", L_NLL.

    Example:
        >>> nll(np.array([1.0, 0.5])).round(4).tolist()
        [-0.0, 0.6931]
    """
    return -np.log(p)


def nll_derivative(p: Values) -> Values:
    """Return ∂(−log p)/∂p = −1/p, without bound as p goes to 0.

    Source: EMSO paper, equation of ∂L_ls/∂h, its first factor.

    Example:
        >>> nll_derivative(np.array([1.0, 0.25])).tolist()
        [-1.0, -4.0]
    """
    return -1 / p


def entropy_term(p: Values) -> Values:
    """Return p log p, one term of L_EM: 0 at both ends, −1/e at p = 1/e.

    Source: EMSO paper, equation 1.

    Example:
        >>> entropy_term(np.array([1.0, 0.5])).round(4).tolist()
        [0.0, -0.3466]
    """
    return p * np.log(p)


def entropy_term_derivative(p: Values) -> Values:
    """Return ∂(p log p)/∂p = log p + 1.

    Source: EMSO paper, equation of ∂L_EM/∂h, its first factor.

    Example:
        >>> entropy_term_derivative(np.array([1.0, np.exp(-1)])).round(4).tolist()
        [1.0, 0.0]
    """
    return np.log(p) + 1


def negative_entropy(p: Values, vocabulary: int) -> Values:
    """Return L_EM = Σ p_k log p_k of the whole prediction, in nats: least at p = 1/V, where it is −log V.

    Source: EMSO paper, equation 1.

    Example:
        >>> negative_entropy(np.array([0.25]), 4).round(4).tolist(), (-np.log([4.0])).round(4).tolist()
        ([-1.3863], [-1.3863])
    """
    return p * np.log(p) + (1 - p) * np.log(_others(p, vocabulary))


def label_smoothing(p: Values, vocabulary: int, gamma: float = 1.0) -> Values:
    """Return L_ls = −γ Σ log p_k of the whole prediction, a sum over V terms: least at p = 1/V, at γ V log V.

    Source: EMSO paper, L_ls in section 3.3.

    Example:
        >>> label_smoothing(np.array([0.25]), 4).round(4).tolist(), (4 * np.log([4.0])).round(4).tolist()
        ([5.5452], [5.5452])
    """
    log_sum: Values = np.log(p) + (vocabulary - 1) * np.log(_others(p, vocabulary))
    return -gamma * log_sum


def nll_gradient_l1(p: Values) -> Values:
    """Return ‖∂L_NLL/∂h‖₁ = 2 (1 − p): the gradient is p_k − 1[k = label].

    Example:
        >>> nll_gradient_l1(np.array([0.0, 0.5, 1.0])).tolist()
        [2.0, 1.0, 0.0]
    """
    return 2 * (1 - p)


def negative_entropy_gradient_l1(p: Values, vocabulary: int) -> Values:
    """Return ‖∂L_EM/∂h‖₁ = 2 p (1 − p) |log(p (V − 1) / (1 − p))|.

    The gradient is p_k (log p_k + H); it sums to 0, so the label's part is half of its L1 norm.

    Example:
        >>> negative_entropy_gradient_l1(np.array([0.5, 0.999]), 50257).round(3).tolist()
        [5.412, 0.035]
    """
    return 2 * p * (1 - p) * np.abs(np.log(p / _others(p, vocabulary)))


def label_smoothing_gradient_l1(p: Values, vocabulary: int, gamma: float = 1.0) -> Values:
    """Return ‖∂L_ls/∂h‖₁ = γ Σ |1 − V p_k| = 2 γ |V p − 1|.

    The mean over the vocabulary, which is what training frameworks call label smoothing, is this divided by V.

    Source: EMSO paper, section 3.3: ∂L_ls/∂h_k = −γ (1 − V p_k).

    Example:
        >>> label_smoothing_gradient_l1(np.array([0.25, 1.0]), 4).tolist()
        [0.0, 6.0]
    """
    return 2 * gamma * np.abs(vocabulary * p - 1)


def loss_curves(vocabulary: int) -> pd.DataFrame:
    """Return every curve of the figure, one row for each p, evenly spaced in log-odds and past 1/V at either end.

    Label smoothing is at γ = 1; `label_smoothing_mean` is the loss divided by V.

    Raises:
        DataError: The vocabulary has less than two tokens: there is nothing to predict.
    """
    if vocabulary < 2:
        raise DataError(f"a vocabulary of {vocabulary} leaves nothing to predict: give --vocabulary 2 or more.")
    ends = np.log(100.0 * vocabulary)
    p = 1 / (1 + np.exp(-np.linspace(-ends, ends, _STEPS)))
    return pd.DataFrame(
        {
            "p": p,
            "nll": nll(p),
            "nll_derivative": nll_derivative(p),
            "entropy_term": entropy_term(p),
            "entropy_term_derivative": entropy_term_derivative(p),
            "negative_entropy": negative_entropy(p, vocabulary),
            "label_smoothing": label_smoothing(p, vocabulary),
            "label_smoothing_mean": label_smoothing(p, vocabulary) / vocabulary,
            "nll_gradient_l1": nll_gradient_l1(p),
            "negative_entropy_gradient_l1": negative_entropy_gradient_l1(p, vocabulary),
            "label_smoothing_gradient_l1": label_smoothing_gradient_l1(p, vocabulary),
            "label_smoothing_mean_gradient_l1": label_smoothing_gradient_l1(p, vocabulary) / vocabulary,
        }
    )


def entropy_exceeds_nll_from(vocabulary: int) -> float:
    """Return the p above which EM's gradient in the logits has the larger L1 norm, and below which NLL's has.

    There p log(p (V − 1) / (1 − p)) = 1; the left side rises from 0 at p = 1/V without bound.

    Example:
        >>> round(entropy_exceeds_nll_from(50257), 3)
        0.114
    """

    def difference(p: float) -> float:
        return p * math.log(p * (vocabulary - 1) / (1 - p)) - 1

    return float(brentq(difference, 1 / vocabulary, 1 - 1e-12))


def statements(vocabulary: int) -> list[str]:
    """Return what the curves say, a sentence or two for each paragraph: first of p, then of the logits."""
    from_p, at = entropy_exceeds_nll_from(vocabulary), np.array([0.5, 0.999])
    half, nearly_one = negative_entropy_gradient_l1(at, vocabulary)
    highest = loss_curves(vocabulary)["negative_entropy_gradient_l1"].max()
    times = nearly_one / nll_gradient_l1(at)[1]
    numbers = {"half": half, "nearly_one": nearly_one, "highest": highest, "from_p": from_p, "times": times}
    return text_file("losses.txt.j2", vocabulary=vocabulary, **numbers).splitlines()


def _others(p: Values, vocabulary: int) -> Values:
    return (1 - p) / (vocabulary - 1)
