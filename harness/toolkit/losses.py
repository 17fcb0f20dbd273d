"""Losses of a next-token predictor, one value a prediction, and their means.

Tensor letters: B rows, T tokens, S = T - 1 predictions, V vocabulary. Logits at S predict tokens 1 to T - 1.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from harness.contracts import Model


@dataclass(frozen=True)
class Batch:
    """Some rows of a global batch."""

    tokens_BT: torch.Tensor
    counted_BS: torch.Tensor
    """bool."""
    total: int
    """In the global batch."""
    total_sequences: int
    """In the global batch, with a counted prediction."""

    @property
    def targets_BS(self) -> torch.Tensor:
        return self.tokens_BT[:, 1:]

    def logits(self, model: Model) -> torch.Tensor:
        """Return logits_BSV in fp32."""
        return model(input_ids=self.tokens_BT[:, :-1], use_cache=False).logits.float()  # type: ignore[no-any-return]

    def mean(self, values_BS: torch.Tensor) -> torch.Tensor:
        """Return this micro-batch's share of the mean over the global batch's counted predictions.

        Example:
            >>> whole = Batch(torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 2, dtype=torch.bool), 4, 2)
            >>> float(whole.mean(torch.tensor([[1.0, 2.0], [3.0, 6.0]])))
            3.0
        """
        return self._mask_uncounted(values_BS).sum() / max(self.total, 1)

    def sums_per_sequence(self, values_BS: torch.Tensor) -> torch.Tensor:
        """Return each sequence's sum over its counted predictions."""
        return self._mask_uncounted(values_BS).sum(dim=-1)

    def means_per_sequence(self, values_BS: torch.Tensor) -> torch.Tensor:
        """Return each sequence's mean over its counted predictions; 0 where none counts."""
        return self.sums_per_sequence(values_BS) / self.counted_BS.sum(dim=-1).clamp(min=1)

    def sequence_mean(self, values_B: torch.Tensor) -> torch.Tensor:
        """Return this micro-batch's share of the mean over the global batch's sequences.

        Sequences without a counted prediction are left out.

        Example:
            >>> part = Batch(torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 2, dtype=torch.bool), 4, 2)
            >>> [float(part.sequence_mean(torch.tensor([value]))) for value in (1.0, 5.0)]
            [0.5, 2.5]
        """
        _refuse_shape(values_B, self.counted_BS.shape[:1], "one value for each sequence")
        return values_B.masked_fill(~self.counted_BS.any(dim=-1), 0.0).sum() / max(self.total_sequences, 1)

    def _mask_uncounted(self, values_BS: torch.Tensor) -> torch.Tensor:
        _refuse_shape(values_BS, self.counted_BS.shape, "one value for each prediction")
        return values_BS.masked_fill(~self.counted_BS, 0.0)


def _refuse_shape(values: torch.Tensor, shape: torch.Size, expected: str) -> None:
    if values.shape != shape:
        raise ValueError(f"a loss was given values of shape {tuple(values.shape)}; give {expected}, {tuple(shape)}.")


def token_nll(logits_BSV: torch.Tensor, targets_BS: torch.Tensor) -> torch.Tensor:
    """Return −log p(target) of each prediction, in nats.

    Source: EMSO paper, section 3.3, L_NLL (before its mean).

    Example:
        >>> token_nll(torch.zeros(1, 1, 4), torch.tensor([[2]])).exp().round().item()
        4.0
    """
    return functional.cross_entropy(logits_BSV.transpose(1, 2), targets_BS, reduction="none")


def mean_nll(model: Model, batch: Batch) -> torch.Tensor:
    """Return this micro-batch's share of the mean NLL, in nats: L_NLL."""
    return batch.mean(token_nll(batch.logits(model), batch.targets_BS))


def nll_loss(model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
    """Return L_NLL on the forget set."""
    return mean_nll(model, forget)


def nll_rise(original: Model, model: Model, batch: Batch) -> torch.Tensor:
    """Return each prediction's NLL above the original's, in nats; only `model` gets a gradient."""
    with torch.no_grad():
        before_BS = token_nll(batch.logits(original), batch.targets_BS)
    return token_nll(batch.logits(model), batch.targets_BS) - before_BS


def ascent(model: Model, forget: Batch, *others: Batch) -> torch.Tensor:
    """Return −L_NLL on the forget set: gradient ascent."""
    return -mean_nll(model, forget)


def npo_loss(original: Model, model: Model, forget: Batch, *, beta: float) -> torch.Tensor:
    """Return this micro-batch's share of NPO's mean over sequences, each with the rise of its summed NLL."""
    rise_B = forget.sums_per_sequence(nll_rise(original, model, forget))
    return forget.sequence_mean(preference_loss(rise_B, beta))


def preference_loss(rise_B: torch.Tensor, beta: float) -> torch.Tensor:
    """Return −(2/β) log σ(β Δ) of each sequence whose NLL has risen by Δ nats.

    As β → 0 it becomes gradient ascent.

    Source: Zhang et al., "Negative preference optimization", arXiv:2404.05868, equation 3.

    Example:
        >>> preference_loss(torch.zeros(1), beta=2.0).exp().round().item()
        2.0
    """
    return functional.softplus(-beta * rise_B) * (2 / beta)


def token_negative_entropy(logits_BSV: torch.Tensor) -> torch.Tensor:
    """Return sum_y p log p of each prediction, from 0 down to −log V.

    Its gradient in the logits is p_k (log p_k + H).

    Source: EMSO paper, equation 1, L_EM (before its mean).

    Example:
        >>> round(token_negative_entropy(torch.zeros(1, 1, 8)).exp().item(), 6)
        0.125
    """
    log_p = functional.log_softmax(logits_BSV, dim=-1)
    return (log_p.exp() * log_p).sum(dim=-1)


def token_kl(reference_BSV: torch.Tensor, logits_BSV: torch.Tensor) -> torch.Tensor:
    """Return KL(p_reference ‖ p) of each prediction, in nats.

    Source: TOFU, arXiv:2401.06121.
    """
    log_p, log_q = functional.log_softmax(logits_BSV, dim=-1), functional.log_softmax(reference_BSV, dim=-1)
    return (log_q.exp() * (log_q - log_p)).sum(dim=-1)


def token_distillation(teacher_BSV: torch.Tensor, logits_BSV: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of each prediction with the teacher's distribution, in nats.

    The gradient is softmax(logits) − softmax(teacher): log-softmax's own is rounding noise where both agree.

    Source: Dong et al., arXiv:2402.10052, self-distillation loss.
    """
    target = functional.softmax(teacher_BSV.detach(), dim=-1)
    gradient = functional.softmax(logits_BSV.detach(), dim=-1) - target
    with torch.no_grad():
        value = -(target * functional.log_softmax(logits_BSV, dim=-1)).sum(dim=-1)
    linear = (gradient * logits_BSV).sum(dim=-1)
    return value + linear - linear.detach()
