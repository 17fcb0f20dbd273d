"""Hidden states between a model's layers, and the logit lens."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

import torch

from harness.contracts import Model
from harness.errors import TrialError
from harness.models.blocks import FAMILIES


def lacks_layers(model_type: str) -> str | None:
    """Return why models of this type have no known layers, and what to do; None if they have."""
    if model_type in FAMILIES:
        return None
    return (
        f"where the layers of a '{model_type}' are is not known: add it to harness/models/blocks.py, or use a model "
        f"of {', '.join(FAMILIES)}."
    )


def hidden_states(model: Model, tokens_BT: torch.Tensor, depth: float = 1.0) -> list[torch.Tensor]:
    """Return the input of the first layer, and the output of each layer: batch x tokens x width, before the final norm.

    Gradients flow where they are enabled. Texts are padded on the right, which a causal mask ignores.

    Args:
        model: A model of a family in `harness/models/blocks.py`.
        tokens_BT: Token ids.
        depth: Share of the layers to run, from below.

    Raises:
        TrialError: The family is unknown.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=3, n_head=2, n_positions=16))
        >>> [len(hidden_states(model, torch.tensor([[1, 2, 3, 4]]), depth)) for depth in (0.5, 1.0)]
        [3, 4]
    """
    entered: list[torch.Tensor] = []
    outputs: list[Any] = []

    def keep_input(layer: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        entered.append(arguments[0] if arguments else named["hidden_states"])

    def keep_output(layer: torch.nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        outputs.append(output)

    layers = list(model_layers(model))
    count = layer_at(depth, len(layers))
    skipped = {layer: vars(layer).get("forward") for layer in layers[count:]}
    handles = [layers[0].register_forward_pre_hook(keep_input, with_kwargs=True)]
    handles += [layer.register_forward_hook(keep_output) for layer in layers[:count]]
    try:
        for layer in skipped:
            layer.forward = lambda *arguments, **named: outputs[-1]
        model(input_ids=tokens_BT, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
        for layer, forward in skipped.items():
            del layer.forward
            if forward is not None:  # Something wraps this layer.
                layer.forward = forward
    return [*entered, *map(state_of, outputs)]


def layer_at(depth: float, layers: int) -> int:
    """Return the layer, from 1, that a share of the layers falls into.

    Example:
        >>> [layer_at(depth, 8) for depth in (0.01, 0.5, 0.51, 1.0)]
        [1, 4, 5, 8]
    """
    return max(1, math.ceil(depth * layers))


class LogitLens:
    """Reads hidden states as its model reads the output of its last layer.

    It uses the final norm, the output matrix, and any cap or scale (Gemma 2, Granite, Cohere). The model's other layers
    are dropped: it belongs to the lens. `lens(states_BTD)` are logits, batch x tokens x vocabulary.

    Raises:
        TrialError: The family is unknown.

    Source:
        nostalgebraist, "interpreting GPT: the logit lens", 2020.

    Example:
        The state after the last layer gives the model's own logits:

        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=3, n_head=2, n_positions=16)).eval()
        >>> tokens = torch.tensor([[1, 2, 3, 4]])
        >>> states, logits = hidden_states(model, tokens), model(tokens).logits
        >>> torch.allclose(LogitLens(model)(states[-1]), logits, atol=1e-6)
        True
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        # A state takes the place of what the last layer gives, so that nothing needs to be known of what follows it.
        self._last = model_layers(model)[-1]
        parent, _, name = FAMILIES[model.config.model_type].layers.rpartition(".")
        setattr(attrgetter(parent)(model), name, torch.nn.ModuleList([self._last]))

    def __call__(self, states_BTD: torch.Tensor) -> torch.Tensor:
        """Return the logits, B x T x V, after these states."""

        def put_in(layer: torch.nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
            return (states_BTD, *output[1:]) if isinstance(output, tuple) else states_BTD

        handle = self._last.register_forward_hook(put_in)
        try:
            any_tokens_BT = torch.zeros(states_BTD.shape[:2], dtype=torch.int64, device=states_BTD.device)
            logits: torch.Tensor = self._model(input_ids=any_tokens_BT, use_cache=False).logits
        finally:
            handle.remove()
        return logits


def state_of(output: Any) -> torch.Tensor:
    """Return the hidden state in a layer's output, which may be a tuple."""
    state: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return state


def model_layers(model: Model) -> torch.nn.ModuleList:
    """Return the layers of a model, the shallowest first.

    Raises:
        TrialError: The family is unknown.
    """
    plain = getattr(model, "module", model)  # An engine that wraps a model has a `config` of its own.
    if reason := lacks_layers(plain.config.model_type):
        raise TrialError(reason)
    layers: torch.nn.ModuleList = attrgetter(FAMILIES[plain.config.model_type].layers)(plain)
    return layers
