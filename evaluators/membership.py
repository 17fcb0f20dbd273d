"""Membership."""

import math
import zlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Literal

import numpy as np
import torch

from evaluators.metrics import attack_share, item_evaluation, standard_error, weighted_mean
from harness.contracts import CloserTo, Evaluation, EvaluationTask, Evaluator, Metric, Model, Read, Sequences, Tokenizer
from harness.toolkit import auc_items, decoded, padded_batches, token_nll, true_continuations, unpadded

WIDTH = 1.96
"""Standard errors of half a 95 % interval."""
MIN_K_SHARE = 0.2
"""Least likely share of tokens, in Min-K and Min-K++."""
ATTACKS: Mapping[str, tuple[str, Literal["higher", "lower"], str]] = {
    "min_k": ("Min-K", "higher", "Shi et al., arXiv:2310.16789"),
    "loss": ("Loss", "lower", "Yeom et al., arXiv:1709.01604"),
    "zlib": ("Zlib", "lower", "Carlini et al., arXiv:2012.07805"),
    "min_k_plus": ("Min-K++", "higher", "Zhang et al., arXiv:2404.02936"),
    "reference": ("Reference", "lower", "Carlini et al., arXiv:2012.07805, with the retrained model as the reference"),
}
"""Title, members' side and source of each attack, in the table's order."""

Scores = dict[str, np.ndarray]
"""By attack, a score for each text."""


@dataclass(frozen=True, kw_only=True)
class Membership(Evaluator):
    """AUCs of attacks that tell forget sequences from unseen texts of their kind (`data.holdout`).

    .5 is a guess. Higher shows training; lower reveals the texts as well, so the aim is the retrained model's AUC.
    `blind_auc` needs no model: it shows that the tokens themselves tell the sets apart.

    The reference attack (`reference: true`) compares each loss with the retrained model's.
    """

    version = 1

    reference: bool = False
    """Attack with the retrained model as reference too."""

    @property
    def reads(self) -> tuple[Read, ...]:
        return ("holdout", "retrained") if self.reference else ("holdout",)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        auc = partial(attack_share, better=CloserTo("retrained"), items="sequence_and_holdout")
        metrics = []
        for name, (title, _, source) in ATTACKS.items():
            if name != "reference" or self.reference:
                attack = "Membership" if name == "min_k" else ""
                metrics.append(auc(name=f"membership_{name}", title=f"{title} AUC", source=source, attack=attack))
        blind = partial(auc, better=CloserTo(0.5), source="Das et al., arXiv:2406.16201")
        return (*metrics, blind(name="blind_auc", title="Blind AUC"))

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        members, others = scores_by_side(model, task)
        if self.reference:
            losses = self._losses_of_retrained(task)
            # Rounded: on another kind of CPU than the one that read the reference, its own losses differ in last bits.
            members["reference"] = np.round(members["loss"] - losses["members"], 5)
            others["reference"] = np.round(others["loss"] - losses["others"], 5)
        per_item = {"blind_auc": self._blind_items(task)}
        for name, scores_N in members.items():
            per_item[f"membership_{name}"] = auc_items(scores_N, others[name], ATTACKS[name][1])
        return item_evaluation(per_item, {"warnings": _warnings(per_item)})

    def _losses_of_retrained(self, task: EvaluationTask) -> Scores:
        def make() -> Scores:
            members, others = scores_by_side(task.load_retrained(), task)
            return {"members": members["loss"], "others": others["loss"]}

        digests = task.retrained_digest(), *(texts.digest for texts in sides(task))
        return task.cached(("membership_reference", str(self.version), *digests), make)

    def _blind_items(self, task: EvaluationTask) -> np.ndarray:
        forget, holdout = sides(task)

        def make() -> Scores:
            copies = [tuple(tokens) for texts in (forget, holdout) for tokens in true_continuations(texts)]
            seed = int(forget.digest[:8] or "0", 16)
            return {"items": blind_auc_items(unpadded(forget), unpadded(holdout), copies, seed=seed)}

        key = "membership_blind", str(self.version), forget.digest, holdout.digest
        return task.cached(key, make)["items"]


def sides(task: EvaluationTask) -> tuple[Sequences, Sequences]:
    """Return the forget sequences and the unseen texts."""
    assert task.holdout is not None, "it is read"
    return task.forget, task.holdout


def scores_by_side(model: Model, task: EvaluationTask) -> list[Scores]:
    """Return the `text_scores` of either side."""
    return [text_scores(model, texts, task.tokenizer) for texts in sides(task)]


@torch.inference_mode()
def text_scores(model: Model, texts: Sequences, tokenizer: Tokenizer) -> Scores:
    """Return scores (N,) of attacks without a reference, each over the tokens after the first."""
    scores: dict[str, list[float]] = {"loss": [], "zlib": [], "min_k": [], "min_k_plus": []}
    written = iter(decoded(tokenizer, unpadded(texts)))
    for tokens_BT, lengths_B in padded_batches(model, texts):
        logits_BTV = model(input_ids=tokens_BT[:, :-1], use_cache=False).logits
        for length, logits_TV, tokens_T in zip(lengths_B.tolist(), logits_BTV, tokens_BT, strict=True):
            # Text by text: standardising takes several times the memory of the logits.
            text_logits_TV, asked_T = logits_TV[: length - 1].float(), tokens_T[1:length]
            nll_T = token_nll(text_logits_TV[None], asked_T[None])[0].double()
            scores["loss"].append(float(nll_T.mean()))
            scores["zlib"].append(zlib_ratio(float(nll_T.sum()), next(written)))
            scores["min_k"].append(mean_of_lowest(-nll_T))
            scores["min_k_plus"].append(mean_of_lowest(standardized(text_logits_TV, asked_T)))
    return {name: np.array(values) for name, values in scores.items()}


def _warnings(per_item: dict[str, np.ndarray]) -> list[str]:
    warnings = []
    blind = weighted_mean(per_item["blind_auc"])
    bound = blind - WIDTH * standard_error(per_item["blind_auc"])
    if math.isnan(bound):
        needs = "that takes two different texts of each"
        warnings.append(f"whether forget and unseen texts can be told apart without a model is not known: {needs}")
    elif bound > 0.5:
        apart = f"by the tokens in them (AUC {blind:.2f}, with 95 % confidence above {bound:.2f})"
        reason = f"forget sequences and unseen texts can be told apart without any model, {apart}"
        remedy = "Name unseen texts of the forget set's own kind (data.holdout)"
        warnings.append(f"the AUCs of membership are void: {reason}. {remedy}")
    if unknown := int(np.isnan(per_item["membership_loss"]).sum()):
        left_out = f"{unknown} of {len(per_item['membership_loss'])} texts take no part in the AUCs of membership"
        warnings.append(f"{left_out}: the model's log-probabilities of them are not numbers")
    return warnings


FOLDS = 5


def blind_auc_items(
    members: Sequence[Sequence[int]], others: Sequence[Sequence[int]], copies: Sequence[Hashable] = (), *, seed: int
) -> np.ndarray:
    """Return a value for each member, then each other text, whose mean is the AUC of a blind attack.

    A logistic regression on the tokens that occur is trained on four fifths of the texts and scores the last fifth,
    five times. Texts are compared only within their fifth; those of equal names (`copies`, by default the tokens) share
    one. Values are 1.5 times wider apart, since the five classifiers share training texts: 95 % intervals then contain
    .5 in 95 or 96 %. NaN where a fifth, or all, has no text of one side.

    Source:
        Das et al., arXiv:2406.16201; width: Nadeau and Bengio, "Inference for the Generalization Error", 2003.
    """
    # Here, not above: it takes a second, and planning a sweep needs the settings of its evaluators only.
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold

    texts = [*members, *others]
    is_member_K = np.arange(len(texts)) < len(members)
    codes: dict[Hashable, int] = {}
    groups_K = np.array([codes.setdefault(name, len(codes)) for name in (copies or map(tuple, texts))])
    groups_by_side = [np.unique(groups_K[is_member_K == side]) for side in (True, False)]
    folds = min(FOLDS, *map(len, groups_by_side))
    items_K = np.full(len(texts), np.nan)
    if folds < 2:
        return items_K
    starts = np.cumsum([0, *map(len, texts)])
    tokens = np.fromiter(chain.from_iterable(texts), dtype=np.int64)
    occurs_KV = csr_matrix((np.ones(len(tokens)), tokens, starts))
    occurs_KV.sum_duplicates()
    occurs_KV.data[:] = 1.0
    split = StratifiedGroupKFold(folds, shuffle=True, random_state=seed).split(occurs_KV, is_member_K, groups_K)
    for shown, asked in split:
        if len(np.unique(is_member_K[shown])) == 2:
            attack = LogisticRegression(solver="liblinear").fit(occurs_KV[shown], is_member_K[shown])
            scores = attack.decision_function(occurs_KV[asked])
            # Rows of a fold are in the order of the texts, so that its members come first.
            items_K[asked] = auc_items(scores[is_member_K[asked]], scores[~is_member_K[asked]])
    width = math.sqrt(1 + folds / (folds - 1))
    mean = weighted_mean(items_K)
    return mean + (items_K - mean) * width


MIN_VARIANCE = 1e-6
"""Avoids a division by 0 where a model is certain."""


def zlib_ratio(total_nll: float, text: str) -> float:
    """Return a text's total NLL, in nats, for each byte of it compressed by zlib's default; members have less.

    Source: Carlini et al., arXiv:2012.07805, section 5.2.

    Differs from the paper: the total, not the mean, so that texts of different lengths compare.

    Example:
        >>> len(zlib.compress(b"a" * 100)), zlib_ratio(24.0, "a" * 100)
        (12, 2.0)
    """
    return total_nll / len(zlib.compress(text.encode()))


def mean_of_lowest(scores_T: torch.Tensor, share: float = MIN_K_SHARE) -> float:
    """Return the mean of the lowest share of the scores, at least one; NaN without any. Members have more.

    It is Min-K of log-probabilities, and Min-K++ of `standardized` ones.

    Source: Shi et al., arXiv:2310.16789, equation 1.

    Example:
        >>> mean_of_lowest(torch.tensor([-1.0, -6.0, -2.0, -4.0, -3.0]), share=0.4)
        -5.0
    """
    if not len(scores_T):
        return math.nan
    count = max(1, math.floor(len(scores_T) * share))
    return float(scores_T.double().sort().values[:count].mean())


def standardized(logits_TV: torch.Tensor, tokens_T: torch.Tensor) -> torch.Tensor:
    """Return z = (log p of each token − μ) / σ, with μ = Σ p log p and σ² = Σ p (log p − μ)² over the vocabulary.

    Source: Zhang et al., arXiv:2404.02936, equation 3; σ² is at least 1e-6, as in OpenUnlearning's code.

    Example:
        With p = ½, ¼ and ¼, μ is −1.5 log 2, σ is ½ log 2, and the first token has (−1 + 1.5) / ½:

        >>> logits = torch.tensor([[0.5, 0.25, 0.25]] * 2).log()
        >>> [round(value, 4) for value in standardized(logits, torch.tensor([0, 2])).tolist()]
        [1.0, -1.0]
    """
    log_p_TV = logits_TV.log_softmax(-1)
    p_TV = log_p_TV.exp()
    # An impossible token adds nothing, though its logarithm may be infinite.
    finite_TV = log_p_TV.masked_fill(p_TV == 0, 0.0)
    mean_T1 = (p_TV * finite_TV).sum(-1, keepdim=True)
    variance_T = (p_TV * (finite_TV - mean_T1) ** 2).sum(-1).clamp(min=MIN_VARIANCE)
    log_p_T = log_p_TV.gather(-1, tokens_T[..., None])[..., 0]
    return (log_p_T - mean_T1[..., 0]) / variance_T.sqrt()
