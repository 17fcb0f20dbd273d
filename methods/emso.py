"""EMSO."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import torch

from harness import contracts
from harness.contracts import Choice, ErasedModel, ErasureTask, Json, Model, PositiveCount, Training
from harness.models.blocks import Block, block_count, blocks, counts_by_kind, lacks_blocks
from harness.toolkit import Batch, Epochs, gradients_by_layer, token_negative_entropy, token_nll, train_and_yield

Selection = Literal["contrastive", "saliency", "random", "all"]


@dataclass(frozen=True, kw_only=True)
class EMSO(contracts.Method):
    """Entropy maximisation on the few blocks where it means forgetting; its ablations are its settings.

    Each epoch scores every block by M = cos(g_NLL, g_EM) · |g_EM|_1 / √D on one random global batch, and trains the k
    blocks with the largest −M. Both gradients are of losses to minimise, L_NLL = −mean log p and L_EM = mean sum p log
    p. The optimiser starts again with each epoch.

    Differs from the paper: losses cover the prefix too, unless `training.loss_region` is `continuation`. The paper's
    |·|_1 / √D favours large blocks; `scale: d` does not.

    Source: EMSO paper, sections 3.2 and 3.3, equations 1 and 7 to 9; ablations: table 2.
    """

    label = "EMSO"
    source = "Zhang et al. 2024, arXiv:2408.04983"
    reference = "none"
    version = 2
    strength = contracts.Strength("epochs", cumulative=True, off=0, divisible=True)

    epochs: Epochs = 7
    """Passes over the forget set, with a new choice of blocks before each."""
    k: Annotated[PositiveCount, Choice(values=(1, 2, 4, 8))] = 2
    """Blocks trained in an epoch."""
    loss: Annotated[Literal["em", "nll"], Choice(values=("em", "nll"))] = "em"
    """`em`: entropy maximisation; `nll`: gradient ascent on the same blocks."""
    selection: Annotated[Selection, Choice(values=get_args(Selection))] = "contrastive"
    """`saliency`: |g_EM|_1 / √D without its direction; `all`: the whole model."""
    reselect: Literal["epoch", "once"] = "epoch"
    norm: Literal["l1", "l2"] = "l1"
    """Norm of the entropy gradient in M."""
    scale: Literal["sqrt_d", "d", "none"] = "sqrt_d"
    """Divisor of the norm; D is the block's number of weights."""
    require_negative: bool = False
    """Drop chosen blocks whose M is not negative, down to one."""

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        if self.selection == "all":
            return None
        reason = lacks_blocks(str(config.get("model_type")))
        if reason is None and self.k > (count := block_count(config)):
            reason = f"it has {count} blocks, and k asks for {self.k}. Say {count} at most."
        return f"{reason} Or use selection: all, which trains the whole model." if reason else None

    def refuses_training(self, training: Training) -> str | None:
        if training.lora is None or self.selection == "all":
            return None
        remedy = "Say lora: null in this row's training; or selection: all, which selects none."
        return f"it trains the weights of the blocks that it selects, and LoRA trains adapters in their stead. {remedy}"

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the model after each epoch; the notes contain blocks and scores."""
        model = task.load_original()
        if self.selection == "all":
            yield from train_and_yield(task, model, self.erasure_loss)
            return
        generator = torch.Generator().manual_seed(task.seed)
        history: list[tuple[list[Block], dict[str, Json]]] = []

        def select(model: Model, batches: Sequence[Batch]) -> tuple[Sequence[Block], dict[str, Json]]:
            if self.reselect == "epoch" or not history:
                history.append(self.choose(model, batches, generator))
            return history[-1]

        yield from train_and_yield(task, model, self.erasure_loss, select=select)

    def erasure_loss(self, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        """Return L_EM, or −L_NLL for `loss: nll`."""
        logits = forget.logits(model)
        return _negative_entropy(forget, logits) if self.loss == "em" else -_nll(forget, logits)

    def choose(
        self, model: Model, batches: Sequence[Batch], generator: torch.Generator
    ) -> tuple[list[Block], dict[str, Json]]:
        """Return the k blocks to train, best first, and notes."""
        candidates = blocks(model)
        among: dict[str, Json] = {"candidate_blocks": counts_by_kind(candidates)}
        if self.selection == "random":
            order = torch.randperm(len(candidates), generator=generator).tolist()
            chosen = [candidates[index] for index in order[: self.k]]
            return chosen, {**among, "selected_blocks": [{"block": block.name} for block in chosen]}
        scores: dict[Block, dict[str, float]] = {}
        matrices = {block.parameter for block in candidates}
        for nll, entropy in gradients_by_layer(model, batches, matrices, (_nll, _negative_entropy)):
            scores |= {block: self.score(nll, entropy, block) for block in candidates if block.parameter in nll}
            del nll, entropy  # Before the next layer's are made.
        contrastive = self.selection == "contrastive"
        ranked = sorted(candidates, key=lambda block: scores[block]["m"] if contrastive else -scores[block]["saliency"])
        chosen = ranked[: self.k]
        if self.require_negative:
            chosen = [block for block in chosen if scores[block]["m"] < 0] or chosen[:1]
        notes = {**among, "selected_blocks": [{"block": block.name, **scores[block]} for block in chosen]}
        if any(scores[block]["m"] >= 0 for block in chosen):
            notes["warnings"] = ["a selected block has M >= 0: raising entropy there does not undo memorising"]
        return chosen, notes

    def score(self, nll: dict[str, torch.Tensor], entropy: dict[str, torch.Tensor], block: Block) -> dict[str, float]:
        """Return a block's cosine, saliency and M."""
        g_nll, g_em = block.of(nll[block.parameter]).flatten(), block.of(entropy[block.parameter]).flatten()
        cosine = float(torch.nn.functional.cosine_similarity(g_nll, g_em, dim=0))
        size = float(g_em.abs().sum() if self.norm == "l1" else g_em.norm())
        saliency = size / {"sqrt_d": g_em.numel() ** 0.5, "d": g_em.numel(), "none": 1.0}[self.scale]
        return {"m": cosine * saliency, "cosine": cosine, "saliency": saliency}


def _nll(batch: Batch, logits_BSV: torch.Tensor) -> torch.Tensor:
    return batch.mean(token_nll(logits_BSV, batch.targets_BS))


def _negative_entropy(batch: Batch, logits_BSV: torch.Tensor) -> torch.Tensor:
    return batch.mean(token_negative_entropy(logits_BSV))
