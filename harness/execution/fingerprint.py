"""Fingerprints: a cheap check whether a tensor, a model or a task is as it was, to the last bit."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import torch

from harness.base.messages import first_names
from harness.contracts import Sequences

Fingerprints = Mapping[tuple[str, str], Hashable]
"""(what, which part of it) to its fingerprint: `("the model's weights", "lm_head.weight")`."""

NAMED_PARTS = 3
"""How many parts of one thing a message names; it counts the others."""


@torch.no_grad()
def fingerprint(tensor: torch.Tensor) -> Hashable:
    """Return type, shape, and a digest of the tensor's bits.

    Example:
        >>> fingerprint(torch.tensor([0.0, 1.0])) == fingerprint(torch.tensor([-0.0, 1.0]))
        False
    """
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = plain.detach().contiguous().reshape(-1)
    bits = hashlib.sha256(flat.cpu().view(torch.uint8).numpy().data).digest()
    return str(tensor.dtype), tuple(tensor.shape), bits


def model_fingerprints(model: torch.nn.Module) -> Fingerprints:
    """Return the parts of a model that decide its outputs: weights, buffers and modes."""
    modes: Fingerprints = {("the model's mode", name): module.training for name, module in model.named_modules()}
    return {**weights_fingerprints(model, "the model's"), **modes}


def weights_fingerprints(module: torch.nn.Module, whose: str) -> Fingerprints:
    """Return a module's weights and buffers."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {(f"{whose} weights", name): fingerprint(tensor) for name, tensor in tensors}


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
