"""Hidden states, gradients and second moments of layers, and the logit lens."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import distributed
from torch.nn import Module, ModuleList, Parameter

from harness.contracts import Model, Sequences, Training
from harness.errors import TrialError, unknown
from harness.models.blocks import FAMILIES, MLP_KINDS, lacks_blocks
from harness.toolkit import engines, finetune
from harness.toolkit.losses import Batch, token_nll

LogitsLoss = Callable[[Batch, torch.Tensor], torch.Tensor]
"""(micro-batch, its logits_BSV) to its share of a loss, as `Batch.mean` makes it."""
_Passed = dict[str, tuple[torch.Tensor, torch.Tensor]]
"""Input and output of each matrix's module, by parameter."""


def gradients_by_layer(
    model: Model, batches: Sequence[Batch], parameters: Collection[str], losses: Sequence[LogitsLoss]
) -> Iterator[list[dict[str, torch.Tensor]]]:
    """Yield each loss's gradients in one layer's parameters, by name, the deepest layer first.

    They are bit-identical to those of whole passes, with one layer's gradients in memory: drop them before the next
    layer. Workers share the micro-batches. `parameters` are names in `named_parameters`, all in layers.

    Raises:
        TrialError: The family is unknown, a parameter is in no layer, the model is in training mode, or its layers are
            no chain.
    """
    layers, path = model_layers(model), f"{FAMILIES[model.config.model_type].layers}."
    names_by_layer = _names_by_layer(model, path, parameters)
    if model.training:
        raise TrialError("the model is in the mode of training, where dropout changes each pass. Call model.eval().")
    if not names_by_layer:
        return
    lowest = min(names_by_layer)
    rank, workers = _rank_and_workers()
    passes = [_forward(model, layers[lowest:], batch, losses) for batch in batches[rank::workers]]
    for number in reversed(range(lowest, len(layers))):
        weights = {name: model.get_parameter(name) for name in names_by_layer.get(number, ())}
        # Not held here: while the next layer's are made, only the caller could still hold these.
        yield _layer_gradients(layers[number], weights, passes, len(losses), is_lowest=number == lowest)


@contextmanager
def asking_for_gradients(module: Module, weights: Collection[Parameter]) -> Iterator[None]:
    """Let only these weights require gradients."""
    flags = [(weight, weight.requires_grad) for weight in module.parameters()]
    module.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_(True)
    try:
        yield
    finally:
        for weight, flag in flags:
            weight.requires_grad_(flag)


class _Pass(NamedTuple):
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]]
    """Arguments of each layer, from the shallowest."""
    gradients: list[torch.Tensor]
    """By loss: gradient in the output of the last of these layers."""


def _input_state(arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    state: torch.Tensor = arguments[0] if arguments else kwargs["hidden_states"]
    return state


def _names_by_layer(model: Model, path: str, parameters: Collection[str]) -> dict[int, list[str]]:
    names_by_layer: dict[int, list[str]] = {}
    in_layers = [name for name, _ in model.named_parameters() if name.startswith(path)]
    if strangers := sorted(set(parameters) - set(in_layers)):
        raise TrialError(f"{unknown('parameter of a layer', strangers[0], in_layers)}")
    for name in in_layers:
        if name in parameters:
            names_by_layer.setdefault(int(name.removeprefix(path).partition(".")[0]), []).append(name)
    return names_by_layer


def _rank_and_workers() -> tuple[int, int]:
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _forward(model: Model, layers: ModuleList, batch: Batch, losses: Sequence[LogitsLoss]) -> _Pass:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    states: list[torch.Tensor] = []

    def keep_call(layer: Module, arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        is_next = layer is next(iter(layers[len(calls) :]), None)
        if not is_next or (states and _input_state(arguments, kwargs) is not states.pop()):
            raise TrialError(
                f"the layers of this '{model.config.model_type}' are no chain: one is not given what the layer before "
                "it gave. Differentiate the whole model: torch.autograd.grad."
            )
        calls.append((arguments, kwargs))

    def keep_state(layer: Module, arguments: tuple[Any, ...], output: Any) -> Any:
        states.append(take_hidden_state(output))
        if layer is not layers[-1]:
            return output
        states[0] = states[0].detach().requires_grad_(True)  # The graph begins here.
        state = _as_computed(states[0])
        return (state, *output[1:]) if isinstance(output, tuple) else state

    with asking_for_gradients(model, ()), ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_pre_hook(keep_call, with_kwargs=True).remove)
            hooks.callback(layer.register_forward_hook(keep_state).remove)
        logits_BSV = batch.logits(model)
    gradients: list[torch.Tensor] = []
    for index, loss in enumerate(losses):
        gradients += torch.autograd.grad(loss(batch, logits_BSV), states, retain_graph=index < len(losses) - 1)
    return _Pass(calls, gradients)


def _as_computed(state: torch.Tensor) -> torch.Tensor:
    # Autocast would share one bf16 copy of a leaf, and sum in bf16.
    return state.view_as(state)


def _layer_gradients(
    layer: Module, weights: Mapping[str, Parameter], passes: Sequence[_Pass], losses: int, *, is_lowest: bool
) -> list[dict[str, torch.Tensor]]:
    sums = next(layer.parameters()).detach().new_zeros(losses, sum(weight.numel() for weight in weights.values()))
    gradients = []
    for loss_sums in sums:
        pieces = loss_sums.split([weight.numel() for weight in weights.values()])
        views = [piece.view(weight.shape) for piece, weight in zip(pieces, weights.values(), strict=True)]
        gradients.append(dict(zip(weights, views, strict=True)))
    with asking_for_gradients(layer, weights.values()):
        for one_pass in passes:
            arguments, kwargs = one_pass.calls.pop()
            state = _input_state(arguments, kwargs).detach().requires_grad_(not is_lowest)
            computed = _as_computed(state)
            args = (computed, *arguments[1:]) if arguments else ()
            output = take_hidden_state(layer(*args, **kwargs if arguments else kwargs | {"hidden_states": computed}))
            inputs = [*weights.values()] if is_lowest else [*weights.values(), state]
            for index, output_gradient in enumerate(one_pass.gradients):
                parts = list(torch.autograd.grad(output, inputs, output_gradient, retain_graph=index < losses - 1))
                if not is_lowest:
                    one_pass.gradients[index] = parts.pop()
                for total in reversed(gradients[index].values()):
                    total += parts.pop()  # Or memory would hold them with the next loss's.
    # Autocast keeps a bf16 copy of each weight that asks for a gradient, until its context ends.
    torch.clear_autocast_cache()
    if weights and _rank_and_workers()[1] > 1:
        distributed.all_reduce(sums)
    return gradients


class MLPMatrix(NamedTuple):
    """A weight matrix of an MLP."""

    parameter: str
    """Name in `named_parameters`."""
    layer: int
    """From 0, the shallowest."""
    kinds: tuple[str, ...]
    """`C_gate`, `C_fc` (up) or `C_proj` (down); both of the first two in a fused matrix."""
    inputs_first: bool
    """Stored as I x O, as in transformers' Conv1D."""

    def outputs_first(self, stored: torch.Tensor) -> torch.Tensor:
        """Return an O x I view."""
        return stored.T if self.inputs_first else stored

    def rows_of_blocks(self, stored: torch.Tensor) -> dict[str, slice]:
        """Return each block's outputs, such as those of `L2.C_fc`."""
        size = len(self.outputs_first(stored)) // len(self.kinds)
        rows: dict[str, slice] = {}
        for number, kind in enumerate(self.kinds):
            rows[f"L{self.layer}.{kind}"] = slice(number * size, (number + 1) * size)
        return rows


class SecondMoments(NamedTuple):
    """K-FAC's two factors of a matrix's curvature, in fp64."""

    inputs_II: torch.Tensor
    """A = E[a aᵀ] of the inputs over the counted positions."""
    gradients_OO: torch.Tensor
    """G = E[g gᵀ] of the gradients in the outputs before the bias, over the same positions."""


def mlp_matrices(model: Model) -> tuple[MLPMatrix, ...]:
    """Return the MLPs' weight matrices in the order of use."""
    if reason := lacks_blocks(model.config.model_type):
        raise TrialError(reason)
    family = FAMILIES[model.config.model_type]
    kinds_by_module: dict[str, list[str]] = {}
    for kind in MLP_KINDS:
        if kind in family.matrices:
            kinds_by_module.setdefault(family.matrices[kind], []).append(kind)
    matrices: list[MLPMatrix] = []
    for layer in range(model.config.num_hidden_layers):
        for module, kinds in kinds_by_module.items():
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
    """Return A and G of each matrix, by parameter, over the counted positions.

    Gradients are of the NLL summed over a sequence. Sums are fp64, or the smallest eigenvalues would be lost. With
    `labels_seed` labels are drawn from the model, and G is a factor of the Fisher information; else they are the
    texts'.

    Source:
        Martens and Grosse, arXiv:1503.05671, section 3.
    """
    draws_NT = None
    if labels_seed is not None:
        # For all texts at once, on the CPU: a draw depends neither on the batch that it is used in nor on a device.
        draws_NT = torch.rand(sequences.tokens_NT.shape, generator=torch.Generator().manual_seed(labels_seed))
    batches = _batches(sequences, training, model, None)
    weights = [model.get_parameter(matrix.parameter) for matrix in matrices]
    with torch.inference_mode(False), torch.enable_grad(), asking_for_gradients(model, weights):
        moments: dict[str, SecondMoments] = {}
        for matrix in matrices:
            weight = model.get_parameter(matrix.parameter).detach()
            sizes = reversed(matrix.outputs_first(weight).shape)
            zeros = (weight.new_zeros(size, size, dtype=torch.float64) for size in sizes)
            moments[matrix.parameter] = SecondMoments(*zeros)
        for number, batch in enumerate(batches):
            first = number * len(batches[0].tokens_BT)
            draws_BT = None if draws_NT is None else draws_NT[first : first + len(batch.tokens_BT)]
            _add_products(moments, model, batch, training, draws_BT)
        for matrix_moments in moments.values():
            matrix_moments.inputs_II.div_(batches[0].total)
            matrix_moments.gradients_OO.div_(batches[0].total)
    return moments


def _add_products(
    moments: Mapping[str, SecondMoments], model: Model, batch: Batch, training: Training, draws_BT: torch.Tensor | None
) -> None:
    passed: _Passed = {}
    with ExitStack() as hooks, engines.plain_forward(model, training):
        for name in moments:
            module = model.get_submodule(name.removesuffix(".weight"))
            hooks.callback(module.register_forward_hook(partial(_record, passed, name)).remove)
        logits_BSV, targets_BS = batch.logits(model), batch.targets_BS
    if draws_BT is not None:
        up_to_BSV = logits_BSV.detach().softmax(-1).cumsum(-1)
        uniform_BS1 = draws_BT[:, : logits_BSV.shape[1], None].to(logits_BSV.device)
        targets_BS = (up_to_BSV <= uniform_BS1).sum(-1).clamp(max=logits_BSV.shape[-1] - 1)
        del up_to_BSV  # As large as the logits.
    losses_BS = token_nll(logits_BSV, targets_BS)
    # Summed over the sequences: a position's gradient does not depend on how many others there are.
    loss = _checked(losses_BS.masked_fill(~batch.counted_BS, 0.0).sum())
    gradients = torch.autograd.grad(loss, [passed[name][1] for name in moments])
    for (name, matrix_moments), gradient in zip(moments.items(), gradients, strict=True):
        matrix_moments.inputs_II.add_(_product(passed[name][0], batch.counted_BS))
        matrix_moments.gradients_OO.add_(_product(gradient, batch.counted_BS))


def loss_gradient(
    model: Model,
    sequences: Sequences,
    matrices: Sequence[MLPMatrix],
    loss: Callable[[Model, Batch], torch.Tensor],
    training: Training,
    rows: torch.Tensor | None = None,
) -> dict[str, torch.Tensor]:
    """Return the gradient of a loss over whole texts or `rows` in each matrix, by parameter.

    `loss` maps (model, batch) to the micro-batch's share, as `Batch.mean` makes it.
    """
    weights = [model.get_parameter(matrix.parameter) for matrix in matrices]
    with torch.inference_mode(False), torch.enable_grad(), asking_for_gradients(model, weights):
        totals = [torch.zeros_like(weight, requires_grad=False) for weight in weights]
        for batch in _batches(sequences, training, model, rows):
            with engines.training_forward(model, training):
                share = _checked(loss(model, batch))
            for total, gradient in zip(totals, torch.autograd.grad(share, weights), strict=True):
                total += gradient
    return {matrix.parameter: total for matrix, total in zip(matrices, totals, strict=True)}


def _batches(sequences: Sequences, training: Training, model: Model, rows: torch.Tensor | None) -> list[Batch]:
    rows = torch.arange(len(sequences)) if rows is None else rows
    return finetune.micro_batches(sequences, rows, training, next(model.parameters()).device)


def _record(passed: _Passed, name: str, module: Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    passed[name] = inputs[0].detach(), output


def _product(values: torch.Tensor, counted_BS: torch.Tensor) -> torch.Tensor:
    flat = values.reshape(counted_BS.numel(), -1).float() * counted_BS.reshape(-1, 1)
    return (flat.T @ flat).double()


def _checked(loss: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(loss.detach()):
        raise TrialError(f"the loss is {float(loss.detach())}: the weights moved too far. Take a smaller step.")
    return loss


def hidden_states(model: Model, tokens_BT: torch.Tensor, depth: float = 1.0) -> list[torch.Tensor]:
    """Return the input of the first layer, and the output of each layer: batch x tokens x width, before the final norm.

    Texts are padded on the right. `depth` is the share of the layers to return.
    """
    states: list[torch.Tensor] = []
    layers = model_layers(model)
    first = layers[0].register_forward_pre_hook
    with ExitStack() as hooks:
        handle = first(lambda _, args, kwargs: states.append(_input_state(args, kwargs)), with_kwargs=True)
        hooks.callback(handle.remove)
        for layer in layers[: layer_at(depth, len(layers))]:
            handle = layer.register_forward_hook(lambda _, args, output: states.append(take_hidden_state(output)))
            hooks.callback(handle.remove)
        model(input_ids=tokens_BT, use_cache=False)
    return states


def layer_at(depth: float, layers: int) -> int:
    """Return the layer, from 1, at a share of the layers."""
    return max(1, math.ceil(depth * layers))


class LogitLens:
    """Maps hidden states to logits as a model's last layers do.

    It uses the final norm, the output matrix, and any cap or scale (Gemma 2, Granite, Cohere). It owns the model and
    drops its other layers.

    Source:
        nostalgebraist, "interpreting GPT: the logit lens", 2020.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        # A state takes the place of the last layer's output, so that nothing needs to be known of later layers.
        self._last = model_layers(model)[-1]
        parent, _, name = FAMILIES[model.config.model_type].layers.rpartition(".")
        setattr(attrgetter(parent)(model), name, ModuleList([self._last]))

    def __call__(self, states_BTD: torch.Tensor) -> torch.Tensor:
        """Return the states' logits, B x T x V."""

        def put_in(layer: Module, arguments: tuple[Any, ...], output: Any) -> Any:
            return (states_BTD, *output[1:]) if isinstance(output, tuple) else states_BTD

        handle = self._last.register_forward_hook(put_in)
        try:
            any_tokens_BT = torch.zeros(states_BTD.shape[:2], dtype=torch.int64, device=states_BTD.device)
            logits: torch.Tensor = self._model(input_ids=any_tokens_BT, use_cache=False).logits
        finally:
            handle.remove()
        return logits


def take_hidden_state(output: Any) -> torch.Tensor:
    """Return the hidden state in a layer's output."""
    state: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return state


def model_layers(model: Model) -> ModuleList:
    """Return the layers, the shallowest first."""
    plain = getattr(model, "module", model)  # An engine that wraps a model has a `config` of its own.
    if reason := lacks_blocks(plain.config.model_type):
        raise TrialError(reason)
    layers: ModuleList = attrgetter(FAMILIES[plain.config.model_type].layers)(plain)
    return layers
