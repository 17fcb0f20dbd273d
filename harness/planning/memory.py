"""Estimates of a trial's memory.

The method's code runs until its first optimiser step: on random weights, or, for all but small models, on tensors
without contents (torch's `FakeTensorMode`).
"""

import copy
import warnings
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.filesize import decimal
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils import _pytree as tree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from harness.base.messages import first_names
from harness.contracts import Checkpoint, Model, Number, Sequences, Tokenizer
from harness.errors import ConfigError, Fault
from harness.models.loading import load_tokenizer, read_config, unloaded_model
from harness.models.resolving import CAUSAL_ROLES
from harness.planning.machine import Machine, memory_share, this_machine
from harness.plugins import EVALUATORS, METHODS
from harness.settings import Engine, Source, Trial, replace
from harness.toolkit import decoding, finetune, losses
from harness.toolkit.device import JUDGE_BYTES, LOGIT_BYTES, READ_TOKENS, rows_at_once

Row = tuple[str, str]
"""Variant and model, which decide a trial's need: its seed does not."""
MAX_OPERATIONS = 2_000_000
"""Limit for code that waits for a fake value to change."""
MAX_REAL_BYTES = 32 << 20
"""Models with more bytes of weights are rehearsed without contents."""
LARGE_SHARE = 1 / 20
"""Only trials whose weights fill more than this share of their memory are sized."""
_ADVICE = (
    "Lower training.micro_batch, set training.activation_checkpointing or training.lora, give each trial more of the "
    "machine (resources.cpus), partition it (engine: {deepspeed: {zero_stage: 3}}), or use a smaller model."
)
_VALUES = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default, torch.ops.aten.is_nonzero.default)


class MemoryTracker(TorchDispatchMode):
    """Counts the bytes of tensors while it is active; values read from fake tensors are 1 or true.

    Example:
        >>> with MemoryTracker() as tracker:
        ...     total = torch.zeros(10) + 1
        >>> tracker.held, tracker.peak
        (40, 80)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = self.peak = self._operations = 0
        self._live: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._operations += 1
        if self._operations > MAX_OPERATIONS:
            raise TimeoutError(f"more than {MAX_OPERATIONS:,} operations: does it wait for a value to change?")
        if args and isinstance(args[0], FakeTensor):
            if function is torch.ops.prim.device.default:  # As frequent as all other operations together.
                return args[0].fake_device
            if function in _VALUES:
                return {torch.bool: True}.get(args[0].dtype, 1.0 if args[0].is_floating_point() else 1)
            if function is torch.ops.aten.nonzero.default:  # Every value is true.
                return self._count(args[0].new_empty(args[0].numel(), args[0].dim(), dtype=torch.long))
        return self._count(function(*args, **(kwargs or {})))

    def copying(self, model: Model) -> Model:
        """Return a copy of the model; its tensors are not counted."""
        with _disable_current_modes():
            copied = copy.deepcopy(model)
        self._count([*copied.parameters(), *copied.buffers()])
        return copied

    def _count(self, tensors: Any) -> Any:
        for leaf in (tensors,) if isinstance(tensors, torch.Tensor) else tree.tree_leaves(tensors):
            if isinstance(leaf, torch.Tensor) and leaf.device.type != "meta":
                storage = leaf.untyped_storage()
                key = storage._cdata
                if key not in self._live:
                    self._live[key] = storage.nbytes(), weakref.ref(storage, partial(self._free, key))
                    self.held += storage.nbytes()
                    self.peak = max(self.peak, self.held)
        return tensors

    def _free(self, key: int, _: object) -> None:
        self.held -= self._live.pop(key)[0]


class _ContentlessMode(FakeTensorMode):
    """Tensors without contents; copies of torch's own mode would free its references to storages twice."""

    def __deepcopy__(self, _: dict[int, Any]) -> "_ContentlessMode":
        return self


class Rehearsal(NamedTuple):
    """The memory of erasing on the plain engine, until the end of the first optimiser step."""

    peak: int
    """Bytes, with the optimiser's state from the beginning."""
    weights: int
    """Bytes of the models at the end."""
    state: int
    trained: int
    """Weights that the step changes."""


class _SteppedError(Exception):
    """The first optimiser step is over."""


class _FakeTask:
    """An `ErasureTask` on fake models and made-up sequences."""

    engine, seed = Engine(), 0

    def __init__(self, spec: Trial, tracker: MemoryTracker, layers: int | None) -> None:
        self._spec, self._tracker, self._blank = spec, tracker, _blank_model(spec.model, layers)
        self._models: list[weakref.ref[Model]] = []
        # Gradients exist before a forward pass from the second micro-batch on.
        rows = min(spec.training.global_batch, spec.forget.rows, 2 * spec.training.micro_batch)
        self.training = replace(spec.training, global_batch=rows, early_stop=None)
        self.strengths: tuple[Number, ...] = (spec.last_strength,)
        self.forget = _made_up(spec.forget, rows)
        self.retain = _made_up(spec.retain, rows) if spec.retain is not None else None

    def load_original(self) -> Model:
        model = self._tracker.copying(self._blank)
        self._models.append(weakref.ref(model))
        return model

    memorized_model = load_original

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self._spec.model)

    def weights_bytes(self) -> int:
        return sum(_count_bytes(model) for reference in self._models if (model := reference()) is not None)

    def validation_perplexity(self, model: Model) -> float:
        return 1.0

    def progress(self, message: str) -> None:
        pass


@lru_cache(maxsize=4)
def _blank_model(checkpoint: Checkpoint, layers: int | None = None) -> Model:
    # Large models are faster without contents.
    with _ContentlessMode(allow_non_fake_inputs=True):
        model = unloaded_model(checkpoint, layers)
    if _count_bytes(model) > MAX_REAL_BYTES:
        return model
    with torch.random.fork_rng(devices=[]):  # A method may choose blocks by their weights.
        torch.manual_seed(0)
        return unloaded_model(checkpoint, layers)


def _made_up(source: Source, rows: int) -> Sequences:
    tokens = torch.zeros(rows, source.longest, dtype=torch.long)
    return Sequences(tokens, torch.full((rows,), source.longest), source.prefix_tokens, "")


def row_of(spec: Trial) -> Row:
    """Return the row of the plan whose need a trial has."""
    return spec.variant, spec.model.digest


def memory_needs(trials: Sequence[Trial]) -> dict[Row, int | None]:
    """Return the need of each row."""
    firsts = {row_of(spec): spec for spec in reversed(trials)}
    return {row: memory_need(spec) for row, spec in firsts.items()}


def memory_need(spec: Trial) -> int | None:
    """Return an estimate of the peak bytes on its device; None if its code cannot be rehearsed."""
    if spec.is_reference:
        return measuring_bytes(spec, weights_bytes(spec.model))
    try:
        rehearsal = rehearse_deep(spec)
        needs = [bytes_on_engine(spec, rehearsal), measuring_bytes(spec, rehearsal.weights + rehearsal.state)]
        if spec.reference == "memorized_model":
            needs.append(bytes_on_engine(spec, rehearse_deep(spec, is_memorizing=True)))
    except Exception:  # A plugin's code may raise anything on tensors without contents.
        return None
    return max(needs)


def rehearse_deep(spec: Trial, *, is_memorizing: bool = False) -> Rehearsal:
    """Rehearse at the model's depth; more than four layers are extrapolated from two shallow runs."""
    depth = read_config(spec.model).get_text_config(decoder=True).num_hidden_layers
    if depth <= 4:
        return rehearse(spec, is_memorizing=is_memorizing)
    low, high = (rehearse(spec, layers, is_memorizing=is_memorizing) for layers in (2, 4))
    return Rehearsal(*(round(two + (depth - 2) / 2 * (four - two)) for two, four in zip(low, high, strict=True)))


def rehearse(spec: Trial, layers: int | None = None, *, is_memorizing: bool = False) -> Rehearsal:
    """Count the memory of erasing on the plain engine, with so many `layers` of the model."""
    tracker = MemoryTracker()
    peak_before, held_before, state, trained, weights = 0, 0, 0, 0, 0

    def start_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        nonlocal peak_before, held_before, trained
        peak_before, held_before = tracker.peak, tracker.held
        trained = sum(weight.numel() for group in optimizer.param_groups for weight in group["params"])

    def end_step(*_: Any) -> None:
        nonlocal state, weights
        state, weights = tracker.held - held_before, task.weights_bytes()
        raise _SteppedError

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings(action="ignore"))  # Torch warns about fake gradients.
        stack.callback(register_optimizer_step_pre_hook(start_step).remove)
        stack.callback(register_optimizer_step_post_hook(end_step).remove)
        task = _FakeTask(spec, tracker, layers)
        stack.enter_context(tracker)
        try:
            erased = next(_memorized(task) if is_memorizing else _erased(spec, task))
        except _SteppedError:
            return Rehearsal(max(peak_before + state, tracker.peak), weights, state, trained)
        assert erased is not None  # Held until its weights are counted.
        return Rehearsal(tracker.peak, task.weights_bytes(), 0, 0)


def _erased(spec: Trial, task: _FakeTask) -> Iterator[Model]:
    method = METHODS.configure(spec.method, {**spec.settings, spec.strength_name: spec.last_strength})
    return (erased.model for erased in method.erase(task))


def _memorized(task: _FakeTask) -> Iterator[Model]:
    rows = min(task._spec.memorized_training.global_batch, 2 * task.training.micro_batch, len(task.forget))
    task.training = replace(task.training, global_batch=rows, lora=None)
    model = task.load_original()
    for _ in finetune.train(task, model, losses.nll_loss, 1):
        pass
    yield model


def bytes_on_engine(spec: Trial, rehearsal: Rehearsal) -> int:
    """Return the bytes of erasing on the trial's engine.

    DeepSpeed needs a process group and cannot be rehearsed. It holds a copy of the trained weights, and its workers
    share fp32 weights, two moments and two gradients of each; offloading leaves the gradients.
    """
    engine = spec.engine.deepspeed
    if engine is None or not rehearsal.trained:
        return rehearsal.peak
    copy = 4 * rehearsal.trained
    activations = max(0, rehearsal.peak - rehearsal.weights - rehearsal.state - copy)
    shared = 2 if engine.offload and spec.gpus > 0 else 5
    return rehearsal.weights + activations + copy + shared * copy // engine.workers


@lru_cache(maxsize=64)
def weights_bytes(checkpoint: Checkpoint) -> int:
    """Return the bytes of a model's fp32 weights and buffers."""
    return _count_bytes(_blank_model(checkpoint))


def _count_bytes(model: torch.nn.Module) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))


def measuring_bytes(spec: Trial, loaded: int) -> int:
    """Return the bytes of continuing texts next to `loaded` ones: the judges, keys and values, and two logits."""
    config, device = read_config(spec.model).get_text_config(decoder=True), "cuda" if spec.gpus > 0 else "cpu"
    if any("original" in EVALUATORS.configure(one.name, dict(one.settings)).reads for one in spec.evaluators):
        loaded += weights_bytes(spec.model)
    judges = []
    for judge, role in {judge: role for role, judge in spec.judges.items()}.items():
        files = Path(judge.location).rglob("*.safetensors")  # None of an encoder that is on the hub yet.
        judges.append(weights_bytes(judge) if role in CAUSAL_ROLES else sum(file.stat().st_size for file in files))
    token_bytes, source_bytes = 8 * config.num_hidden_layers * config.hidden_size, []
    most_bytes, most_read = decoding.cache_bytes(device, weights_bytes(spec.model)), decoding.ROWS_AT_ONCE[device]
    rows_kept = max(1, most_bytes // (token_bytes * spec.forget.longest))
    rows_read = rows_at_once(config.vocab_size, spec.utility.longest, torch.device(device), most_read)
    for source, most in ((spec.forget, min(decoding.SEQUENCES_AT_ONCE, rows_kept)), (spec.utility, rows_read)):
        tokens = min(source.rows, most) * source.longest
        continued = min(most_bytes, token_bytes * tokens * source.longest)
        logits = min(2 * LOGIT_BYTES[device], 8 * config.vocab_size * min(READ_TOKENS[device], tokens))
        source_bytes.append(tokens * token_bytes + continued + logits)
    return int(loaded + max([min(sum(judges), JUDGE_BYTES), *judges]) + max(source_bytes))


def find_unfit(trials: Iterable[Trial], machine: Machine | None, needs: Mapping[Row, int | None]) -> list[Fault]:
    """Return faults of trials that cannot run on a machine; None: a cluster, where nothing is known."""
    rows_by_reason: dict[str, list[str]] = defaultdict(list)
    if machine is None:
        return []
    for spec in trials:
        reason = _missing_device(spec, machine)
        need, has = needs.get(row_of(spec)), memory_share(machine, spec)
        if need and need > has and spec.gpus == 0:
            reason = reason or f"needs {decimal(need)}, and has {decimal(has)}. {_ADVICE}"
        if reason:
            rows_by_reason[reason].append(f"{spec.variant} on {spec.model.id}")
    return [Fault(first_names(list(dict.fromkeys(rows)), 1), reason) for reason, rows in rows_by_reason.items()]


def _missing_device(spec: Trial, machine: Machine) -> str:
    gpus, cpus = spec.gpus * spec.engine.workers, spec.cpus * spec.engine.workers
    if gpus > machine.gpus:
        needs = f"{gpus:g} GPU{'' if gpus <= 1 else 's'}"
        return f"needs {needs} (resources.gpus), and this machine has {machine.gpus or 'none'}: use one that has them."
    return f"needs {cpus} CPUs (resources.cpus), and this machine has {machine.cpus}." if cpus > machine.cpus else ""


def list_large(trials: Iterable[Trial], machine: Machine) -> list[Trial]:
    """Return the trials that may not fit: rehearsing the others would take longer than planning them."""
    large = []
    for spec in trials:
        share = LARGE_SHARE * memory_share(machine, spec)
        # A weight is stored in a byte or more. A model's class, which knows them all, takes seconds to import.
        at_most = 4 * sum(file.stat().st_size for file in Path(spec.model.location).glob("*.safetensors"))
        if spec.gpus > machine.gpus or (not 0 < at_most <= share and weights_bytes(spec.model) > share):
            large.append(spec)
    return large


def refuse_unfit(file: Path, trials: Sequence[Trial]) -> None:
    """Refuse trials that cannot run here; only large models are sized."""
    machine = this_machine()
    if machine is None:
        return
    needs = memory_needs(list_large([spec for spec in trials if spec.gpus == 0], machine))
    if faults := find_unfit(trials, machine, needs):
        raise ConfigError(str(file), faults)
