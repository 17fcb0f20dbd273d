"""LoRA adapters and masks that are trained instead of weights, and patches that store an erasure.

The adapted model wraps the plain model's tensors. Merging adds the update; unmerging restores them bit for bit.
Matrices: A [rank, inputs] and B [outputs, rank].
"""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.nn.utils import parametrize

from harness.base.files import writing
from harness.contracts import Checkpoint, LoRA, Model
from harness.errors import ModelError, unknown
from harness.models import blocks, loading
from harness.settings import ALL_LINEAR

ADAPTER_FILE = "adapter_model.safetensors"
# peft's name of a model's only adapter.
_NAME = "default"
# In peft's files.
_PREFIX = "base_model.model."


class Adapter(NamedTuple):
    """A trained adapter: A and B of each module, on the CPU."""

    lora: LoRA
    updates: Mapping[str, tuple[torch.Tensor, torch.Tensor]]
    inputs_first: bool
    """As in transformers' Conv1D."""


_MERGED: WeakKeyDictionary[Model, Adapter] = WeakKeyDictionary()


def merged_adapter(model: Model) -> Adapter | None:
    """Return the adapter that training merged into this model, if any."""
    return _MERGED.get(model)


class _Overlay:
    """Shares a frozen model's weights, and is merged into them for as long as that is measured."""

    def __init__(self, model: Model) -> None:
        self._plain, self._copies = model, dict[str, torch.Tensor]()
        shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        self.model: Model = copy.deepcopy(model, shared)

    def _keep(self, name: str) -> torch.Tensor:
        matrix: torch.Tensor = self._plain.get_parameter(name)
        self._copies[name] = matrix.detach().to("cpu", copy=True)
        return matrix

    @torch.no_grad()
    def unmerge(self) -> None:
        """Restore the plain model's matrices, if merged."""
        _MERGED.pop(self._plain, None)
        while self._copies:
            name, matrix = self._copies.popitem()
            self._plain.get_parameter(name).copy_(matrix)

    def close(self) -> None:
        self._copies.clear()


class LowRankAdapters(_Overlay):
    """Adapters of a model in training, whose weights are frozen. B starts as 0; the seed draws A."""

    def __init__(self, model: Model, lora: LoRA, seed: int) -> None:
        from peft import inject_adapter_in_model

        super().__init__(model)
        self._lora, self._modules = lora, target_modules(model, lora)
        self._inputs_first = any(_is_inputs_first(model.get_submodule(name)) for name in self._modules)
        config = _peft_config(lora, self._modules, self._inputs_first)
        # Without memory, and so without the process's random state.
        inject_adapter_in_model(config, self.model, _NAME, low_cpu_mem_usage=True)
        self.model.eval()
        generator = torch.Generator().manual_seed(seed)
        for name in self._modules:
            layer, weight = self.model.get_submodule(name), model.get_submodule(name).weight
            inner, outer = layer.lora_A[_NAME], layer.lora_B[_NAME]
            inner.weight = torch.nn.Parameter(_drawn_like(weight, inner.weight.shape, generator))
            outer.weight = torch.nn.Parameter(weight.detach().new_zeros(outer.weight.shape))

    @torch.no_grad()
    def merge(self) -> None:
        """Add the update to the plain model's matrices, and keep copies on the CPU."""
        updates = {}
        for name in self._modules:
            layer, module = self.model.get_submodule(name), self._plain.get_submodule(name)
            update = layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight
            updates[name] = update[0].cpu().clone(), update[1].cpu().clone()
            self._keep(f"{name}.weight")
            _add_update(module, updates[name], self._lora.scaling)
        _MERGED[self._plain] = Adapter(self._lora, updates, self._inputs_first)


def _peft_config(lora: LoRA, modules: Sequence[str], inputs_first: bool, **options: Any) -> Any:
    from peft import LoraConfig

    own: dict[str, Any] = {"r": lora.rank, "lora_alpha": lora.alpha or 0, "target_modules": list(modules)}
    return LoraConfig(**own, fan_in_fan_out=inputs_first, **options)


def _drawn_like(weight: torch.Tensor, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    values = torch.nn.init.kaiming_uniform_(torch.empty(shape), a=5**0.5, generator=generator)
    # Made from the matrix itself: where that is, and as real or fake as it is.
    return weight.detach().new_empty(shape).copy_(values)


def target_modules(model: Model, lora: LoRA) -> tuple[str, ...]:
    """Return the modules that get an adapter, in the model's order; by default peft's `all-linear`."""
    output = model.get_output_embeddings()
    modules = [pair for pair in model.named_modules() if pair[1] is not output]
    names = [name for name, module in modules if isinstance(module, torch.nn.Linear) or _is_inputs_first(module)]
    if isinstance(lora.targets, str):
        if not names:
            raise ModelError(f"a {type(model).__name__} has no linear modules that LoRA could adapt.")
        return tuple(names)
    short_names = {name.rpartition(".")[2] for name in names}
    for target in lora.targets:
        if not _names_meant(names, [target]):
            raise ModelError(f"{unknown('linear module of this model', target, short_names)} Or say {ALL_LINEAR}.")
    return tuple(_names_meant(names, lora.targets))


def missing_targets(checkpoint: Checkpoint, lora: LoRA | None) -> str | None:
    """Return why LoRA's targets are not in the model; None if they are."""
    if lora is None or isinstance(lora.targets, str):
        return None
    try:
        with torch.device("meta"):
            target_modules(loading.unloaded_model(checkpoint), lora)
    except ModelError as error:
        return f"'{checkpoint.id}' lacks a target of lora: {error}"
    return None


def _names_meant(names: Sequence[str], targets: Sequence[str]) -> list[str]:
    ends = tuple(f".{target}" for target in targets)
    return [name for name in names if f".{name}".endswith(ends)]


def _is_inputs_first(module: torch.nn.Module) -> bool:
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, Conv1D)


def _add_update(module: Any, update: tuple[torch.Tensor, torch.Tensor], scaling: float) -> None:
    inner, outer = update
    change = (outer.float() @ inner.float()) * scaling
    module.weight.add_((change.T if _is_inputs_first(module) else change).to(module.weight))


@torch.no_grad()
def add_adapter(model: Model, adapter: Adapter) -> Model:
    """Apply an adapter to `model` in place."""
    for name, update in adapter.updates.items():
        _add_update(model.get_submodule(name), update, adapter.lora.scaling)
    return model


def has_same_weights(model: Model, erased: Model) -> bool:
    """Return whether a model on the CPU has the erased model's weights bit for bit."""
    weights, model_weights = dict(erased.named_parameters()), dict(model.named_parameters())
    same = (torch.equal(model_weights[name], weight.detach().cpu()) for name, weight in weights.items())
    return model_weights.keys() == weights.keys() and all(same)


def save_adapter(adapter: Adapter, original: Checkpoint, folder: Path) -> None:
    """Write an adapter of `original` in peft's format."""
    # A path would tell where its user keeps files.
    base = original.id if original.revision else Path(original.id).name
    options = {"base_model_name_or_path": base, "revision": original.revision, "task_type": "CAUSAL_LM"}
    config = _peft_config(adapter.lora, [*adapter.updates], adapter.inputs_first, inference_mode=True, **options)
    config.target_modules = [*adapter.updates]  # In this order: peft makes a set of them.
    tensors: dict[str, torch.Tensor] = {}
    for module, (inner, outer) in adapter.updates.items():
        tensors[f"{_PREFIX}{module}.lora_A.weight"] = inner.contiguous()
        tensors[f"{_PREFIX}{module}.lora_B.weight"] = outer.contiguous()
    not_in_config = {name: value for name, value in adapter.lora.model_dump().items() if name not in ("rank", "alpha")}
    facts = {"original": original.digest, **not_in_config}
    folder.mkdir(exist_ok=True)
    with writing(folder, "an adapter"):
        save_file(tensors, folder / ADAPTER_FILE, metadata={"format": "pt", "lethe": json.dumps(facts)})
        config.save_pretrained(str(folder))


def read_adapter(folder: Path, original_digest: str) -> Adapter:
    """Return an adapter from `save_adapter`."""
    facts, tensors = _read_tensors(folder / ADAPTER_FILE, original_digest)
    updates, config = {}, json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    for stem in dict.fromkeys(name.rpartition(".lora_")[0] for name in tensors):
        updates[stem.removeprefix(_PREFIX)] = tensors[f"{stem}.lora_A.weight"], tensors[f"{stem}.lora_B.weight"]
    return Adapter(LoRA(rank=config["r"], alpha=config["lora_alpha"], **facts), updates, bool(config["fan_in_fan_out"]))


def _read_tensors(file: Path, original_digest: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    try:
        with safe_open(file, framework="pt") as stored:
            facts = json.loads(stored.metadata()["lethe"])
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
            original = facts.pop("original")
    except (SafetensorError, OSError, ValueError, TypeError, LookupError) as error:
        raise ModelError(f"{file} is damaged, or Lethe did not write it ({type(error).__name__}).") from error
    if original != original_digest:
        raise ModelError(f"{file} belongs to the model with digest {original}, and this one's is {original_digest}.")
    return facts, tensors


class WeightMasks(_Overlay):
    """Masks of some matrices of a model in training, whose weights are frozen.

    Each weight has a score, Kaiming-uniform with a = √5. The share `dropped` of each matrix with the smallest |score|
    is 0. A score's gradient is that of the weight's factor, as if that were |score| (straight through).

    Source: Ramanujan et al., arXiv:1911.13299, section 3 (edge-popup).
    """

    def __init__(self, model: Model, matrices: Sequence[str], dropped: float, seed: int, learning_rate: float) -> None:
        super().__init__(model)
        self.learning_rate = learning_rate
        self._masks: dict[str, _Mask] = {}
        generator, weights = torch.Generator().manual_seed(seed), dict(model.named_parameters())
        model.requires_grad_(False)
        for name in matrices:
            weight = weights.get(name)
            if weight is None or weight.dim() != 2 or not name.endswith(".weight"):
                raise ModelError(f"{name} is no matrix of this model (a weight with two dimensions) to mask.")
            self._masks[name] = _Mask(_drawn_like(weight, weight.shape, generator), dropped)
            module = self.model.get_submodule(name.removesuffix(".weight"))
            parametrize.register_parametrization(module, "weight", self._masks[name])

    @torch.no_grad()
    def merge(self) -> None:
        """Mask the plain model's matrices, and keep copies on the CPU."""
        for name, mask in self._masks.items():
            weight = self._keep(name)
            weight.copy_(mask(weight))


class _Mask(torch.nn.Module):
    def __init__(self, scores: torch.Tensor, dropped: float) -> None:
        super().__init__()
        self.scores = torch.nn.Parameter(scores)
        self._dropped = round(dropped * scores.numel())

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * straight_through_mask(self.scores, self._dropped)


def straight_through_mask(scores: torch.Tensor, dropped: int) -> torch.Tensor:
    """Return 0 for the `dropped` smallest |scores| and 1 elsewhere, with the gradient of |score|.

    Source: Ramanujan et al., arXiv:1911.13299, section 3.

    Example:
        >>> scores = torch.tensor([0.5, -0.1, -0.9], requires_grad=True)
        >>> mask = straight_through_mask(scores, dropped=1)
        >>> mask.tolist()
        [1.0, 0.0, 1.0]
        >>> mask.sum().backward()
        >>> scores.grad.tolist()
        [1.0, -1.0, -1.0]
    """
    sizes = scores.abs()
    mask = torch.ones_like(sizes)
    if dropped:
        mask.view(-1)[sizes.detach().flatten().topk(dropped, largest=False).indices] = 0.0
    return (sizes - sizes.detach()) + mask


PATCH_FILE = "patch.safetensors"


def save_patch(model: Model, names: Iterable[str], original_digest: str, file: Path) -> None:
    """Write the blocks `names` of `model`, with their original's digest."""
    by_name, tensors = {block.name: block for block in blocks.blocks(model)}, dict[str, torch.Tensor]()
    for name in sorted(set(names)):
        if name not in by_name:
            raise ModelError(f"a patch cannot hold {name}: this model has no such block.")
        block = by_name[name]
        tensors[name] = block.of(model.get_parameter(block.parameter)).detach().cpu().clone().contiguous()
    with writing(file, "a patch"):
        save_file(tensors, file, metadata={"lethe": json.dumps({"original": original_digest})})


def apply_patch(original: Model, original_digest: str, file: Path) -> Model:
    """Apply a patch to `original` in place."""
    by_name = {block.name: block for block in blocks.blocks(original)}
    for name, tensor in _read_tensors(file, original_digest)[1].items():
        block = by_name[name]
        block.of(original.get_parameter(block.parameter).detach()).copy_(tensor)
    return original


def load_erased(original: Checkpoint, folder: Path) -> Model:
    """Return the erased model in `folder`: a patch or an adapter of `original`, or a whole model."""
    patch = folder / PATCH_FILE
    if (folder / ADAPTER_FILE).is_file():
        return add_adapter(loading.load_model(original), read_adapter(folder, original.digest))
    if patch.is_file():
        return apply_patch(loading.load_model(original), original.digest, patch)
    # Without a digest: the artifact's own were compared when it was looked up.
    return loading.load_model(Checkpoint(f"{original.id} (erased)", str(folder), original.tokenizer, ""))
