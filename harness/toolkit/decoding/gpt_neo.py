"""A GPT-Neo's forward pass for one token, with nothing in it that one token does not need."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import GPTNeoForCausalLM
from transformers.activations import NewGELUActivation
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention

from harness.contracts import Model


def is_plain_gpt_neo(model: Model) -> bool:
    """Return whether `GPTNeoStepper` computes this model's function: exactly that class and its modules, in fp32.

    In bf16 the stepper rounds at other places than the model does: of a random one (6 layers, width 256) 6.5 % of the
    greedy choices differ, and none where the model's own forward pass is stepped, which is then done.
    """
    if type(model) is not GPTNeoForCausalLM or model.training:
        return False
    attentions = [layer.attn.attention for layer in model.transformer.h]
    projections = [linear for a in attentions for linear in (a.q_proj, a.k_proj, a.v_proj)]
    return (
        all(type(attention) is GPTNeoSelfAttention for attention in attentions)
        and all(type(linear) is nn.Linear and linear.bias is None for linear in projections)
        and all(weight.dtype == torch.float32 for weight in model.parameters())
        and not torch.is_autocast_enabled(model.device.type)
        and not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    )


class GPTNeoStepper:
    """Steps a GPT-Neo for which `is_plain_gpt_neo` holds.

    The same formulas as the model's own: no scaling of the scores, a local layer sees its window. Keys
    are kept transposed, queries, keys and values come from one product, and a local layer reads no more
    than its window. Logits differ from the model's by rounding only (tested).
    """

    def __init__(self, model: Model, source: Any, rows: int, tokens: int, start: int) -> None:
        self._model, self._source = model, source
        self._live, self._length = 0, start
        config = model.config
        self._heads, self._width = config.num_heads, config.hidden_size // config.num_heads
        weight = model.transformer.wte.weight
        self._keys = [weight.new_empty(rows, self._heads, self._width, tokens) for _ in source]
        self._values = [weight.new_empty(rows, self._heads, tokens, self._width) for _ in source]
        self._windows = [config.window_size if kind == "local" else tokens for kind in config.attention_layers]
        attentions = [layer.attn.attention for layer in model.transformer.h]
        self._projections = [torch.cat([a.q_proj.weight, a.k_proj.weight, a.v_proj.weight]) for a in attentions]
        # Of GPT-Neo's usual activation the kernel, which takes a third of the time.
        self._activations = [
            partial(functional.gelu, approximate="tanh") if type(layer.mlp.act) is NewGELUActivation else layer.mlp.act
            for layer in model.transformer.h
        ]

    def join(self, sources: torch.Tensor) -> None:
        """Add rows."""
        rows, held = slice(self._live, self._live + len(sources)), slice(self._length)
        for keys, values, layer in zip(self._keys, self._values, self._source, strict=True):
            keys[rows, :, :, held] = layer.keys[sources, :, held].transpose(-1, -2)
            values[rows, :, held] = layer.values[sources, :, held]
        self._live += len(sources)

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        """Feed one token to every row."""
        transformer = self._model.transformer
        hidden = transformer.wte(tokens_R) + transformer.wpe.weight[self._length]
        for number, layer in enumerate(transformer.h):
            hidden = hidden + layer.attn.attention.out_proj(self._attend(number, layer.ln_1(hidden)))
            inner = self._activations[number](layer.mlp.c_fc(layer.ln_2(hidden)))
            hidden = hidden + layer.mlp.c_proj(inner)
        self._length += 1
        return self._model.lm_head(transformer.ln_f(hidden))  # type: ignore[no-any-return]

    def skip(self, tokens: int) -> None:
        """Go on as if so many tokens had been fed."""
        self._length += tokens

    def _attend(self, number: int, inputs: torch.Tensor) -> torch.Tensor:
        rows, end = len(inputs), self._length + 1
        query, key, value = (
            functional.linear(inputs, self._projections[number]).view(rows, 3, self._heads, -1).unbind(1)
        )
        keys, values = self._keys[number][:rows], self._values[number][:rows]
        keys[..., self._length] = key
        values[:, :, self._length] = value
        seen = slice(max(0, end - self._windows[number]), end)
        scores = torch.matmul(query.unsqueeze(2), keys[..., seen])
        mixed = torch.matmul(scores.softmax(-1), values[:, :, seen])
        return mixed.reshape(rows, -1)
