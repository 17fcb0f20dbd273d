"""Membership inference: can a forget sequence be told from an unseen one by the model's loss on it?"""

from dataclasses import dataclass

import torch

from harness.contracts import CloserTo, Evaluation, EvaluationTask, Evaluator, Metric, Model, Sequences
from harness.toolkit import auc_items, token_nll


@dataclass(frozen=True, kw_only=True)
class LossAttack(Evaluator):
    """The AUC of an attack that calls a text a member of the training set where the model's loss on it is low."""

    version = 1
    reads = ("holdout",)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return the AUC, in a group of its own."""
        return (
            Metric(
                name="loss_auc",
                title="Loss AUC",
                better=CloserTo(
                    0.5
                ),  # above, members are recognised; below, they have become unlikely, which shows too
                unit="fraction",
                low=0.0,
                high=1.0,
                group="membership",
                source="Yeom et al. 2018, arXiv:1709.01604",
            ),
        )

    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        """Return the AUC of forget sequences against unseen ones."""
        values = auc_items(losses(model, task.forget), losses(model, task.holdout), "lower")
        return Evaluation({"loss_auc": float(values.mean())})


@torch.inference_mode()
def losses(model: Model, texts: Sequences) -> list[float]:
    """Return the mean NLL of each text's tokens, in nats."""
    found = []
    for tokens_T, length in zip(texts.tokens_NT, texts.lengths_N.tolist(), strict=True):
        tokens_1T = tokens_T[None, :length].to(model.device)
        logits = model(input_ids=tokens_1T[:, :-1], use_cache=False).logits.float()
        found.append(float(token_nll(logits, tokens_1T[:, 1:]).mean()))
    return found
