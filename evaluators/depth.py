"""Depth."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike

from evaluators.metrics import attack_share, item_evaluation
from harness.contracts import Evaluation, EvaluationTask, Evaluator, Json, MeasuredCurve, Metric, Model, Sequences
from harness.toolkit import LogitLens, hidden_states, lacks_layers, padded_batches, token_nll


@dataclass(frozen=True, kw_only=True)
class Depth(Evaluator):
    """Share of the forget set that is gone from the layers, by the logit lens: 0 for the original, 1 for the retrained.

    The original's final norm and output matrix read each layer's output. A method that only closes the output is near
    0; a collapsed model is near 1 as well.

    Differs from the paper: the mean loss on unseen texts (`data.holdout`) is subtracted first, since the original's
    output matrix reads little of a retrained model. `depth_uncorrected` is the paper's.
    """

    version = 1
    needs_fp32 = True
    reads = ("holdout", "retrained", "original")

    @property
    def metrics(self) -> tuple[Metric, ...]:
        share = partial(attack_share, better="higher", source="arXiv:2605.24614, logit lens")
        plain = share(name="depth_uncorrected", title="Depth (as published)")
        return share(name="depth", title="Depth", attack="Depth"), plain

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        return lacks_layers(str(config.get("model_type")))

    def prepare(self, original: Model, task: EvaluationTask) -> None:
        self._references(task, lambda: original)

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        # Here, not above: it imports all of transformers, and planning needs the settings only.
        from harness.toolkit import PairModel

        if isinstance(model, PairModel):
            unknown = dict.fromkeys((metric.name for metric in self.metrics), np.full(len(task.forget), np.nan))
            warning = "depth is not known: a pair of models, which is combined while decoding, has no layers of its own"
            return item_evaluation(unknown, {"warnings": [warning]})
        references = self._references(task, task.load_original)
        lens = LogitLens(task.load_original())
        lost: dict[str, np.ndarray] = {}
        for name, texts in texts_of(task).items():
            original_NL = references[f"original_{name}"]
            lost[f"retrained_{name}"] = original_NL - references[f"retrained_{name}"]
            lost[f"model_{name}"] = original_NL - continuation_log_p(model, lens, texts)
        plain = lost["retrained_forget"], lost["model_forget"]
        beyond = [lost[f"{who}_forget"] - lost[f"{who}_unseen"].mean(axis=0) for who in ("retrained", "model")]
        per_item = {"depth": _depths(*beyond), "depth_uncorrected": _depths(*plain)}
        warnings = []
        if np.isnan(per_item["depth"]).all():
            knows = f"does the original know more than the retrained model (by {MIN_DROP} nats a token)"
            reason = f"on no layer, and of no sequence, {knows}, or the model's states are not numbers"
            warnings.append(f"depth is not known: {reason}")
        lost_L = tuple(beyond[1].mean(axis=0).tolist())
        layers = tuple(map(float, range(1, 1 + len(lost_L))))
        curve = MeasuredCurve("depth", "Lost of the texts, by layer", "layer", "nats a token", layers, lost_L)
        return item_evaluation(per_item, {"warnings": warnings}, curves=(curve,))

    def _references(self, task: EvaluationTask, load_original: Callable[[], Model]) -> dict[str, np.ndarray]:
        by_texts = texts_of(task)

        def make() -> dict[str, np.ndarray]:
            lens = LogitLens(task.load_original())
            read: dict[str, np.ndarray] = {}
            for who, load in (("original", load_original), ("retrained", task.load_retrained)):
                reference = load()
                for name, texts in by_texts.items():
                    read[f"{who}_{name}"] = continuation_log_p(reference, lens, texts)
                del reference
            return read

        digests = task.original_digest(), task.retrained_digest(), *(texts.digest for texts in by_texts.values())
        return task.cached(("depth", str(self.version), *digests), make)


def texts_of(task: EvaluationTask) -> dict[str, Sequences]:
    """Return the read texts."""
    assert task.holdout is not None, "it is read"
    return {"forget": task.forget, "unseen": task.holdout}


@torch.inference_mode()
def continuation_log_p(model: Model, lens: LogitLens, sequences: Sequences) -> np.ndarray:
    """Return the mean log p of each continuation's tokens after each layer (N, L), in nats."""
    start = max(sequences.prefix_tokens, 1)
    parts = []
    for tokens_BT, lengths_B in padded_batches(model, sequences):
        asked_BS = tokens_BT[:, start:]
        counts_BS = torch.arange(start, tokens_BT.shape[1], device=tokens_BT.device) < lengths_B[:, None]
        layer_means = []
        for states_BTD in hidden_states(model, tokens_BT)[1:]:
            nll_BS = token_nll(lens(states_BTD[:, start - 1 : -1]).float(), asked_BS).double()
            layer_means.append(-nll_BS.masked_fill(~counts_BS, 0.0).sum(dim=1) / counts_BS.sum(dim=1))
        parts.append(torch.stack(layer_means, dim=1).cpu().numpy())
    return np.concatenate(parts)


def _depths(retrained_lost_NL: np.ndarray, model_lost_NL: np.ndarray) -> np.ndarray:
    return np.array([erasure_depth(*text_losses) for text_losses in zip(retrained_lost_NL, model_lost_NL, strict=True)])


MIN_DROP = 0.05
"""In nats a token: below it a layer knows nothing of the text."""


def erasure_depth(lost_by_retrained_L: ArrayLike, lost_by_model_L: ArrayLike) -> float:
    """Return Σ d_ret · clip(d / d_ret, 0, 1) / Σ d_ret over the layers at which d_ret exceeds .05; NaN without one.

    d_ret and d are the mean log p at a layer, in nats a token, that the retrained and the measured model lost.

    Source: the logit lens of the meta-evaluation of arXiv:2605.24614, with its threshold.

    Example:
        The first layer knows nothing; of the others the model lost half, and more than all:

        >>> erasure_depth([0.01, 1.0, 3.0], [0.5, 0.5, 4.0])
        0.875
    """
    retrained_L, model_L = (np.asarray(lost, dtype=float) for lost in (lost_by_retrained_L, lost_by_model_L))
    knows_L = retrained_L > MIN_DROP
    if not knows_L.any():
        return math.nan
    could_L, lost_L = retrained_L[knows_L], model_L[knows_L]
    # d_ret · clip(d / d_ret, 0, 1), without a division.
    return float(np.clip(lost_L, 0.0, could_L).sum() / could_L.sum())
