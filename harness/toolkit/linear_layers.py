"""What flows through a model's MLP matrices, and what a loss asks of them: for methods that edit weights themselves.

Tensor letters: I inputs and O outputs of a matrix. All passes are over micro-batches, in `training.precision`, and what
comes back does not depend on how the texts are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from harness.contracts import Model, Sequences, Training
from harness.errors import TrialError
from harness.models.blocks import MLP_KINDS
from harness.models.families import FAMILIES
from harness.models.hidden_states import lacks_layers
from harness.toolkit.engines.torch import plain_forward, training_forward
from harness.toolkit.finetune import micro_batches
from harness.toolkit.layerwise import asking_for_gradients
from harness.toolkit.losses import Batch, token_nll


@dataclass(frozen=True)
class MLPMatrix:
    """Which weight matrix of an MLP this is, and how it lies in its model."""

    parameter: str
    """The matrix, as `named_parameters` calls it."""
    layer: int
    """From 0, the shallowest."""
    kinds: tuple[str, ...]
    """What it holds: `C_gate`, `C_fc` (up), `C_proj` (down), or the first two, one after the other."""
    inputs_first: bool
    """Whether it is stored as I x O, as in transformers' Conv1D; else O x I, as in Linear."""

    def outputs_first(self, stored: torch.Tensor) -> torch.Tensor:
        """Return the O x I view of the matrix, or of its gradient: writing to it writes to what was given.

        Example:
            >>> matrix = MLPMatrix("transformer.h.0.mlp.c_fc.weight", 0, ("C_fc",), inputs_first=True)
            >>> tuple(matrix.outputs_first(torch.zeros(4, 16)).shape)
            (16, 4)
        """
        return stored.T if self.inputs_first else stored

    def rows_of_blocks(self, stored: torch.Tensor) -> dict[str, slice]:
        """Return the outputs of each block that the matrix holds, by the block's name: `L2.C_fc`.

        Example:
            >>> both = MLPMatrix("model.layers.0.mlp.gate_up_proj.weight", 0, ("C_gate", "C_fc"), inputs_first=False)
            >>> both.rows_of_blocks(torch.zeros(16, 4))
            {'L0.C_gate': slice(0, 8, None), 'L0.C_fc': slice(8, 16, None)}
        """
        size = len(self.outputs_first(stored)) // len(self.kinds)
        rows: dict[str, slice] = {}
        for number, kind in enumerate(self.kinds):
            rows[f"L{self.layer}.{kind}"] = slice(number * size, (number + 1) * size)
        return rows


@dataclass(frozen=True)
class SecondMoments:
    """What passes through a matrix: the two factors of its curvature in K-FAC, in fp64."""

    inputs_II: torch.Tensor
    """A = E[a aᵀ] over the counted positions, of what the matrix is given."""
    gradients_OO: torch.Tensor
    """G = E[g gᵀ] over the same positions, of the gradient in what it gives, before its bias."""


def mlp_matrices(model: Model) -> tuple[MLPMatrix, ...]:
    """Return the weight matrices of the model's MLPs, layer by layer, in the order in which they are used.

    Args:
        model: Of a family in `harness/models/families.py`.

    Raises:
        TrialError: The family is not known, so nobody knows where its matrices are.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=2, n_head=2, n_positions=16))
        >>> [(matrix.parameter, matrix.kinds) for matrix in mlp_matrices(model)[2:]]
        [('transformer.h.1.mlp.c_fc.weight', ('C_fc',)), ('transformer.h.1.mlp.c_proj.weight', ('C_proj',))]
    """
    if reason := lacks_layers(model.config.model_type):
        raise TrialError(reason)
    family = FAMILIES[model.config.model_type]
    kinds_of: dict[str, list[str]] = {}
    for kind in MLP_KINDS:
        if kind in family.matrices:
            kinds_of.setdefault(family.matrices[kind], []).append(kind)
    matrices: list[MLPMatrix] = []
    for layer in range(model.config.num_hidden_layers):
        for module, kinds in kinds_of.items():
            parameter = f"{family.layers}.{layer}.{module}.weight"
            matrices.append(MLPMatrix(parameter, layer, tuple(kinds), family.inputs_first))
    return tuple(matrices)


def second_moments(
    model: Model,
    sequences: Sequences,
    matrices: Sequence[MLPMatrix],
    training: Training,
    labels_seed: int | None = None,
) -> dict[str, SecondMoments]:
    """Return A and G of each matrix, by its parameter's name, over the positions whose prediction counts.

    The gradient is that of the NLL, summed over a sequence: what a position gives is used by all later ones. Neither
    padding nor the last token, which predicts nothing, is a position. Products are in fp32; sums are in fp64, since
    the smallest eigenvalues, whose mass an edit counts, would drown in the rounding of the largest.

    Args:
        model: Of a family in `harness/models/families.py`. It is left as it was, without gradients or hooks.
        sequences: The texts.
        matrices: Some of `mlp_matrices(model)`. Nothing is computed backwards below the first of them.
        training: Says which tokens count, how many sequences are read at once, and in which precision.
        labels_seed: Draw each label from the model's own prediction, with this seed: G is then a factor of the Fisher
            information. Without it labels are the texts' next tokens.

    Raises:
        TrialError: A loss is NaN or infinite.

    Source:
        Martens and Grosse, arXiv:1503.05671, section 3.
    """
    uniform_NT = None
    if labels_seed is not None:
        # For all texts at once, on the CPU: a draw depends neither on the batch that it is used in nor on a device.
        generator = torch.Generator().manual_seed(labels_seed)
        uniform_NT = torch.rand(sequences.tokens_NT.shape, generator=generator)
    batches = _batches(sequences, training, model, None)
    weights = [model.get_parameter(matrix.parameter) for matrix in matrices]
    with torch.inference_mode(False), torch.enable_grad(), asking_for_gradients(model, weights):
        moments = {matrix.parameter: _no_moments(model, matrix) for matrix in matrices}
        for number, batch in enumerate(batches):
            first = number * len(batches[0].tokens_BT)
            uniform_BT = None if uniform_NT is None else uniform_NT[first : first + len(batch.tokens_BT)]
            _add_products(moments, model, matrices, batch, training, uniform_BT)
        for of_matrix in moments.values():
            of_matrix.inputs_II.div_(batches[0].total)
            of_matrix.gradients_OO.div_(batches[0].total)
    return moments


def _add_products(
    moments: Mapping[str, SecondMoments],
    model: Model,
    matrices: Sequence[MLPMatrix],
    batch: Batch,
    training: Training,
    uniform_BT: torch.Tensor | None,
) -> None:
    """Add a micro-batch's products to the moments; nothing else of it is left when the next one goes forward."""
    with _recorded(model, matrices) as passed, plain_forward(model, training):
        logits_BSV, targets_BS = batch.logits(model), batch.targets_BS
    if uniform_BT is not None:
        targets_BS = _drawn(logits_BSV.detach(), uniform_BT)
    losses_BS = token_nll(logits_BSV, targets_BS)
    # Summed over the sequences: what a position's gradient is does not depend on how many others there are.
    loss = _checked(losses_BS.masked_fill(~batch.counted_BS, 0.0).sum())
    gradients = torch.autograd.grad(loss, [passed[matrix.parameter][1] for matrix in matrices])
    for matrix, gradient in zip(matrices, gradients, strict=True):
        of_matrix = moments[matrix.parameter]
        of_matrix.inputs_II.add_(_product(passed[matrix.parameter][0], batch.counted_BS))
        of_matrix.gradients_OO.add_(_product(gradient, batch.counted_BS))


def loss_gradient(
    model: Model,
    sequences: Sequences,
    matrices: Sequence[MLPMatrix],
    loss: Callable[[Model, Batch], torch.Tensor],
    training: Training,
    rows: torch.Tensor | None = None,
) -> dict[str, torch.Tensor]:
    """Return the gradient of a loss over whole texts in each matrix, by its parameter's name, as the matrix is stored.

    Args:
        model: It is left as it was, without gradients.
        sequences: The texts.
        matrices: Some of `mlp_matrices(model)`.
        loss: From (model, batch) to this micro-batch's share of the loss, as `Batch.mean` makes it.
        training: Says which tokens count, how many sequences are read at once, and in which precision.
        rows: Of `sequences`; all of them unless given.

    Raises:
        TrialError: A loss is NaN or infinite.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=2, n_positions=16))
        >>> texts = Sequences(torch.tensor([[1, 2, 3, 4]]), torch.tensor([4]), prefix_tokens=1, digest="")
        >>> def loss(model, batch):
        ...     return batch.mean(token_nll(batch.logits(model), batch.targets_BS))
        >>> gradients = loss_gradient(model, texts, mlp_matrices(model), loss, Training())
        >>> {name[16:]: tuple(gradient.shape) for name, gradient in gradients.items()}
        {'mlp.c_fc.weight': (8, 32), 'mlp.c_proj.weight': (32, 8)}
    """
    weights = [model.get_parameter(matrix.parameter) for matrix in matrices]
    with torch.inference_mode(False), torch.enable_grad(), asking_for_gradients(model, weights):
        totals = [torch.zeros_like(weight, requires_grad=False) for weight in weights]
        for batch in _batches(sequences, training, model, rows):
            with training_forward(model, training):
                share = _checked(loss(model, batch))
            for total, gradient in zip(totals, torch.autograd.grad(share, weights), strict=True):
                total += gradient
    return {matrix.parameter: total for matrix, total in zip(matrices, totals, strict=True)}


def _batches(sequences: Sequences, training: Training, model: Model, rows: torch.Tensor | None) -> list[Batch]:
    rows = torch.arange(len(sequences)) if rows is None else rows
    return micro_batches(sequences, rows, training, next(model.parameters()).device)


@contextmanager
def _recorded(model: Model, matrices: Sequence[MLPMatrix]) -> Iterator[dict[str, tuple[torch.Tensor, torch.Tensor]]]:
    """Record, by its parameter's name, what each matrix is given and what it gives in the forward pass meanwhile."""
    passed: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def recorder(name: str) -> Callable[[torch.nn.Module, tuple[torch.Tensor], torch.Tensor], None]:
        def record(module: torch.nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
            passed[name] = inputs[0].detach(), output

        return record

    with ExitStack() as hooks:
        for matrix in matrices:
            module = model.get_submodule(matrix.parameter.removesuffix(".weight"))
            hooks.callback(module.register_forward_hook(recorder(matrix.parameter)).remove)
        yield passed


def _no_moments(model: Model, matrix: MLPMatrix) -> SecondMoments:
    weight = model.get_parameter(matrix.parameter).detach()
    outputs, inputs = matrix.outputs_first(weight).shape
    return SecondMoments(
        weight.new_zeros(inputs, inputs, dtype=torch.float64), weight.new_zeros(outputs, outputs, dtype=torch.float64)
    )


def _product(values: torch.Tensor, counted_BS: torch.Tensor) -> torch.Tensor:
    """Return the sum of v vᵀ over the counted positions, in fp64; some models have all positions in one dimension."""
    flat = values.reshape(counted_BS.numel(), -1).float()
    flat = flat * counted_BS.reshape(-1, 1)
    return (flat.T @ flat).double()


def _drawn(logits_BSV: torch.Tensor, uniform_BT: torch.Tensor) -> torch.Tensor:
    """Return a token for each prediction, drawn from it: the one in whose share of [0, 1) its number lies."""
    up_to_BSV = logits_BSV.softmax(-1).cumsum(-1)
    uniform_BS1 = uniform_BT[:, : logits_BSV.shape[1], None].to(logits_BSV.device)
    return (up_to_BSV <= uniform_BS1).sum(-1).clamp(max=logits_BSV.shape[-1] - 1)


def _checked(loss: torch.Tensor) -> torch.Tensor:
    """Return the loss.

    Raises:
        TrialError: It is NaN or infinite.
    """
    if not torch.isfinite(loss.detach()):
        raise TrialError(f"the loss is {float(loss.detach())}: the weights moved too far. Take a smaller step.")
    return loss
