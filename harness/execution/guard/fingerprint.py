"""Fingerprints: a cheap check whether a tensor, a model or a task is as it was, to the last bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache, partial
from types import FunctionType, MethodType
from typing import Any

import torch

from harness.base.messages import first_names
from harness.contracts import Sequences

Fingerprints = Mapping[tuple[str, str], Hashable]
"""(what, which part of it) to its fingerprint: `("the model's weights", "lm_head.weight")`."""

CHUNK = 1 << 18
"""How many elements are summed at once, so that their products take little memory."""
NAMED_PARTS = 3
"""How many parts of one thing a message names; it counts the others."""
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FUNCTIONS = (FunctionType, MethodType, partial)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@torch.no_grad()
def fingerprint(tensor: torch.Tensor) -> Hashable:
    """Return type, shape, and a digest of the tensor's bits, which is made where the tensor is and reads it once.

    Example:
        >>> fingerprint(torch.tensor([0.0, 1.0])) == fingerprint(torch.tensor([-0.0, 1.0]))
        False
    """
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = plain.detach().contiguous().reshape(-1)
    on_cpu = flat.device.type == "cpu"
    bits = hashlib.sha256(flat.view(torch.uint8).numpy().data).digest() if on_cpu else bit_sums(flat)
    return str(tensor.dtype), tuple(tensor.shape), bits


def bit_sums(values: torch.Tensor) -> tuple[int, ...]:
    """Return, for every chunk, the sum of its elements' bits, each times its position's own odd number.

    What a GPU can do without handing over the tensor. Arithmetic is modulo 2^64, where an odd factor loses
    nothing: another bit in one element is always another sum. Elements that swap, or change together, escape
    with a chance of about 2^-32.

    Args:
        values: One dimension, of elements of 1, 2, 4 or 8 bytes.
    """
    bits = values.view(_INTEGERS[values.element_size()])
    factors = _factors(bits.device)
    sums = [(part.long() * factors[: len(part)]).sum() for part in bits.split(CHUNK)]
    return tuple(torch.stack(sums).tolist())


@lru_cache(maxsize=8)
def _factors(device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    limits = torch.iinfo(torch.int64)
    numbers = torch.randint(limits.min, limits.max, (CHUNK,), generator=generator, dtype=torch.int64, device="cpu")
    return (numbers | 1).to(device)


def model_fingerprints(model: torch.nn.Module) -> Fingerprints:
    """Return all of a model that an evaluator leaves as it was: its weights, modes, gradients and settings."""
    fingerprints: dict[tuple[str, str], Hashable] = dict(weights_fingerprints(model, "the model's"))
    for name, module in model.named_modules():
        fingerprints["the model's mode", name] = module.training
    for name, weight in model.named_parameters():
        fingerprints["the model's requires_grad", name] = weight.requires_grad
        fingerprints["the model's gradients", name] = None if weight.grad is None else fingerprint(weight.grad)
    for settings in ("config", "generation_config"):
        held: Any = getattr(model, settings, None)
        for name, value in held.to_dict().items() if hasattr(held, "to_dict") else ():
            fingerprints[f"the model's {settings}", name] = json.dumps(value, sort_keys=True, default=str)
    return fingerprints


def weights_fingerprints(module: torch.nn.Module, whose: str) -> Fingerprints:
    """Return what decides a module's outputs: weights and buffers, its parts, and the hooks on them."""
    fingerprints: dict[tuple[str, str], Hashable] = {}
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        fingerprints[f"{whose} weights", name] = fingerprint(tensor)
    for name, part in module.named_modules():
        patched = [(held, id(value)) for held, value in vars(part).items() if isinstance(value, _FUNCTIONS)]
        fingerprints[f"{whose} modules", name] = type(part), tuple(patched)
        fingerprints[f"{whose} hooks", name] = tuple(tuple(getattr(part, hooks)) for hooks in _HOOKS)
    return fingerprints


def sequences_fingerprints(what: str, sequences: Sequences | None) -> Fingerprints:
    """Return the fingerprint of each part of the sequences that a task calls `what`."""
    if sequences is None:
        return {(what, ""): None}
    return {
        (what, "tokens_NT"): fingerprint(sequences.tokens_NT),
        (what, "lengths_N"): fingerprint(sequences.lengths_N),
        (what, "prefix_tokens"): sequences.prefix_tokens,
        (what, "digest"): sequences.digest,
    }


def changes(before: Fingerprints, after: Fingerprints) -> list[str]:
    """Return the things that differ, each with the names of its first parts.

    Example:
        >>> changes({("task.seed", ""): 0, ("the weights", "a"): 1}, {("task.seed", ""): 0, ("the weights", "a"): 2})
        ['the weights (a)']
    """
    absent = object()
    parts: dict[str, list[str]] = {}
    for what, part in {**before, **after}:
        if before.get((what, part), absent) != after.get((what, part), absent):
            parts.setdefault(what, []).append(part)
    clauses = []
    for what, named in parts.items():
        names = [name for name in named if name]
        clauses.append(f"{what} ({first_names(names, NAMED_PARTS)})" if names else what)
    return clauses


def modules_in(value: Any, depth: int = 3) -> Iterator[torch.nn.Module]:
    """Yield the models that an object holds, itself or in its attributes, lists and dictionaries."""
    if isinstance(value, torch.nn.Module):
        yield value
    elif depth:
        inside = value if isinstance(value, list | tuple | dict) else vars(value) if hasattr(value, "__dict__") else ()
        for held in list(inside.values()) if isinstance(inside, Mapping) else inside:
            yield from modules_in(held, depth - 1)
