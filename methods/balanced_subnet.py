"""BalancedSubnet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Lt

from harness import contracts
from harness.contracts import ErasedModel, ErasureTask, Json, LogUniform, Positive, PositiveCount, Training
from harness.toolkit import LossTerms, WeightMasks, ascent, lacks_layers, mean_nll, mlp_matrices, train


@dataclass(frozen=True, kw_only=True)
class BalancedSubnet(contracts.Method):
    """Drops the MLP weights that matter for forget texts only, by masks trained on −L_NLL(forget) + L_NLL(retain).

    Masks are edge-popup's: a score for each weight, straight-through gradients. Kept weights are bit-identical.
    Rounding, as by another micro_batch, changes which weights are dropped.

    Differs from the paper: AdamW steps the scores instead of SGD at .1 with momentum .9; retain texts are the sweep's,
    not random tokens.

    Source: Sakarvadia et al., arXiv:2410.02159, section 4; code: msakarvadia/memorization.
    """

    label = "Subnet"
    source = "Sakarvadia et al. 2025, arXiv:2410.02159"
    reference = "retain_data"
    version = 2
    strength = contracts.Strength("dropped", cumulative=False, off=0.0)
    searched_training = ()

    dropped: Annotated[float, Ge(0.0), Lt(1.0), LogUniform(low=0.001, high=0.3)] = 0.01
    """Share of each matrix that becomes 0."""
    epochs: Annotated[PositiveCount, LogUniform(low=1, high=12)] = 5
    """Passes over the forget set; masks begin as noise, so none stops early."""
    score_rate: Annotated[Positive, LogUniform(low=0.001, high=0.1)] = 0.01
    """AdamW's learning rate for the scores."""

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        return lacks_layers(str(config.get("model_type")))

    def refuses_training(self, training: Training) -> str | None:
        reason = "it trains masks, and no weights or adapters. Say lora: null in this row's training."
        return reason if training.lora else None

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        model = task.load_original()
        names = [matrix.parameter for matrix in mlp_matrices(model)]
        loss = LossTerms(ascent, mean_nll)
        masks = WeightMasks(model, names, self.dropped, task.seed, self.score_rate)
        *_, last = train(task, model, loss, self.epochs, masks=masks)
        yield ErasedModel(self.dropped, model, last.notes)
