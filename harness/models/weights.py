"""Weights against the model that they are for: whatever is missing, left over or of another shape is refused by name.

transformers fills in what a checkpoint lacks with random numbers, and says so in a log at most. Its own
account of what it did is what decides here, so its renamed, fused and tied weights are understood.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from harness.base.messages import first_names
from harness.contracts import Checkpoint, Model
from harness.errors import ModelError
from harness.models.configurations import check_causal, read_config

LOGGING_MODULES = ("modeling_utils", "distributed.tensor_parallel")
"""Modules of transformers that log while a checkpoint is loaded."""
NAMED_TENSORS = 3
"""Tensors that a message names for each kind of fault."""
MASK = re.compile(r"(^|\.)(attn|attention)\.(bias|masked_bias)$")
"""Masks that older versions of transformers stored beside the weights: the hub's GPT-Neos and GPT-Js have them."""


def check_weights(auto_class: str, local: Checkpoint, may_lack: str = "", *, leftovers: bool = False) -> None:
    """Refuse a checkpoint folder as `matched_model` would, from the headers of its files alone.

    Args:
        auto_class: The name of a class of transformers. See `matched_model` for the others, and for what is raised.
        local: In folders of this machine.
        may_lack: A pattern of names that need not be stored.
        leftovers: Whether the checkpoint may hold more than the model uses.
    """
    import transformers

    matched_model(getattr(transformers, auto_class), local, may_lack, leftovers=leftovers, device_map="meta")


def own_finite_weights(model: torch.nn.Module, local: Checkpoint) -> None:
    """Give the weights memory of their own; they may lie in the file, and would change with it.

    Raises:
        ModelError: One of them is NaN or infinite.
    """
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        tensor.data = tensor.data.clone()
        # An extreme takes no memory, as a mask over the tensor would; NaN is both the least and the greatest value.
        if tensor.is_floating_point() and tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():
            raise ModelError(
                f"the weights of '{local.id}' ({local.location}) hold NaN or infinity in {name}: the training that "
                "made them went wrong, or the file is damaged."
            )


def matched_model(
    auto_class: Any, local: Checkpoint, may_lack: str = "", *, leftovers: bool = False, **options: Any
) -> Model:
    """Return the model of a checkpoint folder in fp32, all of its weights from there.

    Args:
        auto_class: The class of transformers that knows which model the configuration means.
        local: In folders of this machine.
        may_lack: A pattern of names that need not be stored, '' for none.
        leftovers: Whether the checkpoint may hold more than the model uses: a head, say.
        options: For `from_pretrained`.

    Raises:
        ModelError: A tensor is missing, left over or of another shape, or a file is damaged.
    """
    from transformers import AutoModelForCausalLM

    config = read_config(local)
    if auto_class is AutoModelForCausalLM:
        check_causal(config, local)
    with _errors_translated(local):
        model, account = auto_class.from_pretrained(
            local.location,
            dtype="float32",
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
        account["unexpected_keys"] -= _computed(model, local, account["unexpected_keys"])
    faults = _mismatches(account, may_lack, leftovers)
    if faults:
        raise ModelError(
            f"the weights of '{local.id}' ({local.location}) do not fit its config.json: {'; '.join(faults)}. "
            "Save the model again with save_pretrained, or put the configuration right that belongs to the weights."
        )
    return model.eval()


@contextmanager
def _errors_translated(local: Checkpoint) -> Iterator[None]:
    """Meanwhile, keep what transformers logs of a checkpoint, and make its errors ours, with the tensors it names."""
    from transformers.utils.logging import disable_progress_bar

    loggers, logged = [logging.getLogger(f"transformers.{name}") for name in LOGGING_MODULES], list[str]()

    def keep(record: logging.LogRecord) -> bool:
        logged.append(record.getMessage())
        return False

    disable_progress_bar()
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
        logger.addFilter(keep)
    try:
        yield
    # A damaged file, or a configuration of nonsense, makes transformers and its parts raise just about anything.
    except Exception as error:
        rows = [line.partition("|") for text in logged for line in text.splitlines() if "| CONVERSION" in line]
        fused = (
            f" These cannot be put together: {first_names(sorted(row[0].strip() for row in rows), NAMED_TENSORS)}."
            if rows
            else ""
        )
        reason = f"({type(error).__name__}). {' '.join(str(error).split())}{fused}"
        raise ModelError(f"the model '{local.id}' ({local.location}) cannot be loaded {reason}") from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeFilter(keep)
            logger.setLevel(level)


def _mismatches(account: dict[str, Any], may_lack: str, leftovers: bool) -> list[str]:
    missing = [name for name in account["missing_keys"] if not may_lack or not re.match(may_lack, name)]
    unused = [] if leftovers else account["unexpected_keys"]
    shapes = []
    for name, stored, needed in account["mismatched_keys"]:
        shapes.append(f"{name} ({_dimensions(stored)} stored, {_dimensions(needed)} needed)")
    kinds = {"missing": missing, "not part of the model": unused, "of another shape": shapes}
    return [f"{kind}: {first_names(sorted(names), NAMED_TENSORS)}" for kind, names in kinds.items() if names]


def _dimensions(size: Iterable[int]) -> str:
    return "×".join(map(str, size)) or "a single number"


def _computed(model: Model, local: Checkpoint, unused: Iterable[str]) -> set[str]:
    """Return those of the unused names that every model computes for itself: masks and tables of positions."""
    from safetensors import safe_open

    buffers = {name for name, _ in model.named_buffers()}
    computed = {name for name in unused if buffers & {name, f"{model.base_model_prefix}.{name}"}}
    masks = {name for name in unused if MASK.search(name)}
    if not masks:
        return computed
    for file in Path(local.location).glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            for name in masks.intersection(tensors.keys()):
                # A bias that was learned has one dimension; a mask is queries by keys, or the number it masks with.
                if len(tensors.get_slice(name).get_shape()) in (0, 4):
                    computed.add(name)
    return computed
