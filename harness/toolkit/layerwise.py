"""What losses ask of a model's weights, one layer at a time: for methods that look at every layer, and keep none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from harness.contracts import Model
from harness.errors import TrialError, unknown
from harness.models.families import FAMILIES
from harness.models.hidden_states import model_layers, state_of
from harness.toolkit.losses import Batch

LogitsLoss = Callable[[Batch, torch.Tensor], torch.Tensor]
"""(micro-batch, its logits_BSV) to this micro-batch's share of a loss, as `Batch.mean` makes it."""


def gradients_by_layer(
    model: Model, batches: Sequence[Batch], parameters: Collection[str], losses: Sequence[LogitsLoss]
) -> Iterator[list[dict[str, torch.Tensor]]]:
    """Yield the gradients of several losses in the parameters of one layer after the other, the deepest layer first.

    Each is the gradient of the whole global batch, to the last bit that of passes through the whole model, while no
    more than one layer's lie in memory. Every micro-batch goes forward once and leaves, for each layer, what enters it:
    width numbers a token of the global batch. Then layer after layer computes that again and is differentiated, for all
    micro-batches and losses, before it is the next one's turn. One more pass forward is the price: with two losses a
    fifth of the time. Neither the gradients nor the activations of the whole model are ever there.

    Where several workers share a process group, each computes its share of the micro-batches, and a layer's gradients
    are summed in one reduction. All workers call this with the same arguments, and get the same to the last bit; it
    differs by rounding from what one worker gets, since the sums are in another order.

    Args:
        model: Of a family in `harness/models/families.py`, in the mode of evaluation: dropout would make the second
            pass another one. Whenever a layer is yielded the model is as it was lent, without gradients or hooks.
        batches: All micro-batches of a global batch.
        parameters: The wanted ones, as `named_parameters` calls them; all of them in layers. Nothing is computed
            backwards below the first layer that has one.
        losses: What is differentiated: from (micro-batch, its logits_BSV) to its share, as `Batch.mean` makes it. A
            context such as autocast lies around the loop over the layers.

    Yields:
        For each loss, in their order, the gradients in a layer's wanted parameters, by their names. Who lets go of them
        before the next layer has one layer's in memory, else two layers'.

    Raises:
        TrialError: The family is not known, a parameter is not one of its layers, the model is in the mode of training,
            or its layers are not a chain, each of which is given what the one before it gave.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=9, n_embd=8, n_layer=2, n_head=2, n_positions=16)
        >>> model = GPT2LMHeadModel(config).eval()
        >>> batch = Batch(torch.tensor([[1, 2, 3]]), torch.ones(1, 2, dtype=torch.bool), 2, 1)
        >>> names = [f"transformer.h.{layer}.mlp.c_fc.weight" for layer in (0, 1)]
        >>> def highest(batch, logits_BSV):
        ...     return batch.mean(logits_BSV.amax(-1))
        >>> for [gradients] in gradients_by_layer(model, [batch], names, [highest]):
        ...     print({name: tuple(gradient.shape) for name, gradient in gradients.items()})
        {'transformer.h.1.mlp.c_fc.weight': (8, 32)}
        {'transformer.h.0.mlp.c_fc.weight': (8, 32)}
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
def asking_for_gradients(module: torch.nn.Module, weights: Collection[torch.nn.Parameter]) -> Iterator[None]:
    """Let these of a module's weights alone ask for a gradient meanwhile: then nothing is kept for that of others."""
    asked = [(weight, weight.requires_grad) for weight in module.parameters()]
    module.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_(True)
    try:
        yield
    finally:
        for weight, is_asking in asked:
            weight.requires_grad_(is_asking)


@dataclass
class _Call:
    """What a layer was given."""

    arguments: tuple[Any, ...]
    named: dict[str, Any]

    @property
    def state(self) -> torch.Tensor:
        """Return the hidden state among it."""
        state: torch.Tensor = self.arguments[0] if self.arguments else self.named["hidden_states"]
        return state

    def again(self, layer: torch.nn.Module, state: torch.Tensor) -> torch.Tensor:
        """Return what the layer makes of `state`, with all else as it was."""
        if self.arguments:
            return state_of(layer(state, *self.arguments[1:], **self.named))
        return state_of(layer(**self.named | {"hidden_states": state}))


@dataclass
class _Pass:
    """What is left of a micro-batch's way through the layers that have not been differentiated yet."""

    calls: list[_Call]
    """Of each layer, the shallowest first."""
    gradients: list[torch.Tensor]
    """Of each loss, in what the last of these layers gives."""


def _names_by_layer(model: Model, path: str, parameters: Collection[str]) -> dict[int, list[str]]:
    """Return the parameters of each layer in the model's order, whatever theirs is: all workers need the same one."""
    names_by_layer: dict[int, list[str]] = {}
    in_layers = [name for name, _ in model.named_parameters() if name.startswith(path)]
    if strangers := sorted(set(parameters) - set(in_layers)):
        raise TrialError(f"{unknown('parameter of a layer', strangers[0], in_layers)}")
    for name in in_layers:
        if name in parameters:
            names_by_layer.setdefault(int(name.removeprefix(path).partition(".")[0]), []).append(name)
    return names_by_layer


def _rank_and_workers() -> tuple[int, int]:
    """Return which worker of a process group this is, and how many there are: of one where there is no group."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _pieces(sums: torch.Tensor, weights: Mapping[str, torch.nn.Parameter]) -> dict[str, torch.Tensor]:
    pieces = sums.split([weight.numel() for weight in weights.values()])
    return {name: piece.view(weight.shape) for (name, weight), piece in zip(weights.items(), pieces, strict=True)}


def _forward(model: Model, layers: torch.nn.ModuleList, batch: Batch, losses: Sequence[LogitsLoss]) -> _Pass:
    """Return what a micro-batch gives each layer, and each loss's gradient in what the last one makes of it."""
    calls: list[_Call] = []
    states: list[torch.Tensor] = []

    def keep_call(layer: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        call = _Call(arguments, named)
        if layer is not next(iter(layers[len(calls) :]), None) or (states and call.state is not states.pop()):
            raise TrialError(
                f"the layers of this '{model.config.model_type}' are no chain: one is not given what the layer before "
                "it gave. Differentiate the whole model: torch.autograd.grad."
            )
        calls.append(call)

    def keep_state(layer: torch.nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
        states.append(state_of(output))
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
    """Return the state as something computed: of a leaf autocast shares one bf16 copy, and sums its gradient in bf16.

    A pass through the whole model casts once for each matrix, and sums in fp32: where a layer has no norm before them,
    the gradients would not be the same.
    """
    return state.view_as(state)


def _layer_gradients(
    layer: torch.nn.Module,
    weights: Mapping[str, torch.nn.Parameter],
    passes: Sequence[_Pass],
    losses: int,
    *,
    is_lowest: bool,
) -> list[dict[str, torch.Tensor]]:
    """Return each loss's gradients in a layer's weights, and bring each micro-batch to the layer before."""
    size = sum(weight.numel() for weight in weights.values())
    sums = next(layer.parameters()).detach().new_zeros(losses, size)
    gradients = [_pieces(of_loss, weights) for of_loss in sums]
    with asking_for_gradients(layer, weights.values()):
        for one_pass in passes:
            call = one_pass.calls.pop()
            state = call.state.detach().requires_grad_(not is_lowest)
            output = call.again(layer, _as_computed(state))
            inputs = [*weights.values()] if is_lowest else [*weights.values(), state]
            for index, of_output in enumerate(one_pass.gradients):
                parts = list(torch.autograd.grad(output, inputs, of_output, retain_graph=index < losses - 1))
                if not is_lowest:
                    one_pass.gradients[index] = parts.pop()
                for total in reversed(gradients[index].values()):
                    total += parts.pop()  # Or they would lie beside those of the next loss.
    # Autocast keeps a bf16 copy of each weight that asks for a gradient, until its context ends.
    torch.clear_autocast_cache()
    if weights and _rank_and_workers()[1] > 1:
        distributed.all_reduce(sums)
    return gradients
