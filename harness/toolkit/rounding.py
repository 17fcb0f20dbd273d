"""Simulated rounding of weight matrices to a few bits."""

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import NormalDist

import torch
from torch import nn
from torch.nn import functional

from harness import contracts, errors

GROUP = 128
"""Inputs of a channel that share a scale, for integers."""
BLOCK = 64
"""Weights that share a scale, for NF4."""
_FUSED = (
    "keeps the matrices of several experts in one tensor, which is not rounded here, so that its experts would stay as "
    "they are. Leave this model, or this evaluator, out of the sweep."
)


def rounded_to_integers(weight_OI: torch.Tensor, bits: int, group: int = GROUP) -> torch.Tensor:
    """Return an fp32 matrix rounded to the nearest of 2^bits − 1 evenly spaced values, symmetric about 0.

    ŵ = s · clip(round(w / s)) with s = max|w| / (2^(bits−1) − 1) over a group of inputs of one output channel; bits >=
    2. The last group may be shorter.

    Source: Frantar et al., arXiv:2210.17323, section 4 (round-to-nearest), with symmetric scales.

    Example:
        In 3 bits the values are −3s … 3s; s is 0.5, then 0.2:

        >>> rounded_to_integers(torch.tensor([[1.5, -0.7, 0.2, 0.6]]), bits=3, group=3)
        tensor([[ 1.5000, -0.5000,  0.0000,  0.6000]])
    """
    largest = 2 ** (bits - 1) - 1
    groups = []
    for weight_OG in weight_OI.split(group, dim=1):
        scale_O1 = weight_OG.abs().amax(dim=1, keepdim=True) / largest
        multiples_OG = (weight_OG / scale_O1).round().clamp(-largest, largest)
        groups.append(torch.where(scale_O1 == 0, 0.0, scale_O1 * multiples_OG))
    return torch.cat(groups, dim=1)


def normal_float_values() -> tuple[float, ...]:
    """Return the 16 values of NF4: quantiles of a normal distribution, scaled to −1 to 1.

    Eight are above 0 and seven below, evenly spaced in probability.

    Source: Dettmers et al., arXiv:2305.14314 (QLoRA), equation 4 and appendix E.

    Example:
        >>> [round(value, 4) for value in normal_float_values()[6:10]]
        [-0.091, 0.0, 0.0796, 0.1609]
    """
    outermost = 1 - (1 / 32 + 1 / 30) / 2
    values = [0.0]
    for sign, count in ((1, 8), (-1, 7)):
        values += [sign * NormalDist().inv_cdf(0.5 + (outermost - 0.5) * step / count) for step in range(1, count + 1)]
    return tuple(value / max(values) for value in sorted(values))


def rounded_to_normal_float(weight_OI: torch.Tensor, block: int = BLOCK) -> torch.Tensor:
    """Return an fp32 matrix rounded to NF4: the nearest of 16 values times the block's largest magnitude.

    Blocks are consecutive weights, row by row; the last may be shorter.

    Differs from the paper: the blocks' magnitudes are not rounded in turn (double quantisation).

    Source: Dettmers et al., arXiv:2305.14314 (QLoRA), section 3.

    Example:
        >>> rounded_to_normal_float(torch.tensor([[2.0, 0.1, -0.2, -2.0]]))
        tensor([[ 2.0000,  0.1592, -0.1821, -2.0000]])
    """
    values = torch.tensor(normal_float_values(), dtype=weight_OI.dtype, device=weight_OI.device)
    flat = weight_OI.flatten()
    blocks_KB = functional.pad(flat, (0, -len(flat) % block)).view(-1, block)
    magnitude_K1 = blocks_KB.abs().amax(dim=1, keepdim=True)
    shares_KB = torch.where(magnitude_K1 == 0, 0.0, blocks_KB / magnitude_K1)
    nearest_KB = torch.bucketize(shares_KB, (values[1:] + values[:-1]) / 2)
    return (values[nearest_KB] * magnitude_K1).flatten()[: len(flat)].view_as(weight_OI)


def make_rounding(scheme: contracts.RoundingScheme) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function that rounds a matrix, outputs by inputs."""
    if scheme == "nf4":
        return rounded_to_normal_float
    return partial(rounded_to_integers, bits=8 if scheme == "int8" else 4)


def experts_in_one_tensor(config: Mapping[str, contracts.Json]) -> str | None:
    """Return why `rounded_copy` cannot round such a model; None if it can."""
    for name, count in config.items():
        if "experts" in name and isinstance(count, int) and count > 1:
            return f"it {_FUSED}"
    return None


@torch.no_grad()
def rounded_copy(model: contracts.Model, rounded: Callable[[torch.Tensor], torch.Tensor]) -> contracts.Model:
    """Return a copy with rounded linear layers.

    Embeddings, output head, norms and biases stay. `rounded` gets outputs by inputs.

    Raises:
        TrialError: It has no linear layer, or several matrices in one tensor.
    """
    copied = copy.deepcopy(model)
    is_rounded = False
    for weight, is_transposed in _linear_weights(copied):
        matrix_OI = weight.T if is_transposed else weight
        matrix_OI.copy_(rounded(matrix_OI))
        is_rounded = True
    if not is_rounded:
        remedy = "Leave this model, or this evaluator, out of the sweep."
        raise errors.TrialError(f"{type(model).__name__} has no linear layer but its output head to round. {remedy}")
    return copied


def _linear_weights(model: contracts.Model) -> Iterator[tuple[torch.Tensor, bool]]:
    from transformers import PreTrainedModel
    from transformers.pytorch_utils import Conv1D

    left_out: set[int] = set()
    for part in model.modules():
        if isinstance(part, nn.Embedding):
            left_out.add(id(part.weight))
        elif isinstance(part, PreTrainedModel) and (head := part.get_output_embeddings()) is not None:
            left_out.add(id(head.weight))
    for part in model.modules():
        if isinstance(part, nn.Linear | Conv1D) and id(part.weight) not in left_out:
            left_out.add(id(part.weight))
            yield part.weight, isinstance(part, Conv1D)
        elif not isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            for weight in part.parameters(recurse=False):
                if weight.ndim > 2 and min(weight.shape) > 1:
                    raise errors.TrialError(f"{type(model).__name__} {_FUSED}")
