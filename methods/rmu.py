"""RMU."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from annotated_types import Gt, Le

from harness.contracts import ErasedModel, ErasureTask, Json, LogUniform, Model, Positive
from harness.toolkit import Batch, RetainMethod, SumRetainWeight, hidden_states, lacks_layers, train_and_yield


@dataclass(frozen=True, kw_only=True)
class RMU(RetainMethod):
    """Turns a layer's output on forget texts at random: ‖h(forget) − c u‖²/d + α ‖h(retain) − h_original(retain)‖²/d.

    h is a layer's output of width d, u a fixed random direction of non-negative parts and length 1, and c = β
    ‖h_original(forget)‖ for each token.

    Differs from the paper: its c is one number, 6.5 or 20 for 7B models; c in proportion to the original's states is
    Dang et al.'s, arXiv:2408.06223, with β = 5. All weights up to the layer are trained, as in open-unlearning, where
    the paper's code trains three matrices.

    Source: Li et al., "The WMDP Benchmark", arXiv:2403.03218, section 4.
    """

    label = "RMU"
    source = "Li et al. 2024, arXiv:2403.03218"
    version = 1

    steering: Annotated[Positive, LogUniform(low=0.5, high=20.0)] = 5.0
    """β: target length of the states, as a multiple of the original's."""
    retain_weight: SumRetainWeight = 1.0
    """α, of the retain term; the paper's code has 100 to 1,200."""
    depth: Annotated[float, Gt(0.0), Le(1.0)] = 0.5
    """Steered layer, as a share of the layers; 1 is the last."""

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        return lacks_layers(str(config.get("model_type")))

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        model, original = task.load_original(), task.load_original()
        parts_D = torch.rand(model.config.hidden_size, generator=torch.Generator().manual_seed(task.seed))
        direction_D = (parts_D / parts_D.norm()).to(model.device)
        yield from train_and_yield(task, model, partial(self.loss, original, direction_D), frozen=[original])

    def loss(
        self, original: Model, direction_D: torch.Tensor, model: Model, forget: Batch, retain: Batch
    ) -> torch.Tensor:
        with torch.no_grad():
            before_BSD, kept_BSD = self.states(original, forget), self.states(original, retain)
            aim_BSD = self.steering * before_BSD.norm(dim=-1, keepdim=True) * direction_D
        steered = forget.mean((self.states(model, forget) - aim_BSD).square().mean(dim=-1))
        moved = retain.mean((self.states(model, retain) - kept_BSD).square().mean(dim=-1))
        return steered + self.retain_weight * moved

    def states(self, model: Model, batch: Batch) -> torch.Tensor:
        """Return the layer's states_BSD in fp32."""
        return hidden_states(model, batch.tokens_BT[:, :-1], self.depth)[-1].float()
