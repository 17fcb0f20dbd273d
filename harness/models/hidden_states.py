"""What flows through a model's layers: the hidden states between them."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch

from harness.contracts import Model
from harness.errors import TrialError
from harness.models.families import FAMILIES


def hidden_states(model: Model, tokens_BT: torch.Tensor) -> list[torch.Tensor]:
    """Return what enters a model's first layer, and what leaves each layer: before the final norm.

    Gradients flow through them where they are enabled, so that a loss may be made of them. Texts are padded on the
    right: under a causal mask no token sees what follows it.

    Args:
        model: Of a family in `harness/models/families.py`.
        tokens_BT: Token ids.

    Returns:
        One tensor more than there are layers, each of the shape batch, tokens, width.

    Raises:
        TrialError: The family is not known, so nobody knows where its layers are.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=3, n_head=2, n_positions=16))
        >>> states = hidden_states(model, torch.tensor([[1, 2, 3, 4]]))
        >>> len(states), tuple(states[0].shape)
        (4, (1, 4, 8))
    """
    family = FAMILIES.get(model.config.model_type)
    if family is None:
        raise TrialError(
            f"where the layers of a '{model.config.model_type}' are is not known: add it to "
            f"harness/models/families.py, or use a model of {', '.join(FAMILIES)}."
        )
    states: list[torch.Tensor] = []

    def keep_input(layer: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        states.append(arguments[0] if arguments else named["hidden_states"])

    def keep_output(layer: torch.nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        states.append(output[0] if isinstance(output, tuple) else output)

    layers = attrgetter(family.layers)(model)
    handles = [layers[0].register_forward_pre_hook(keep_input, with_kwargs=True)]
    handles += [layer.register_forward_hook(keep_output) for layer in layers]
    try:
        model(input_ids=tokens_BT, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return states
