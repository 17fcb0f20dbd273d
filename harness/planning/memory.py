"""Estimates of a trial's memory, compared with this machine's before anything is loaded.

The method's code runs on tensors without contents (torch's `FakeTensorMode`) until its first optimiser step, and their
bytes are counted. The memory of measuring follows from the decoders' budgets.
"""

from __future__ import annotations

import math
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils import _pytree as tree
from torch.utils._python_dispatch import TorchDispatchMode

from harness.base.files import digest_of
from harness.base.messages import first_names, tell
from harness.contracts import Checkpoint, Model, Number, Sequences
from harness.errors import ConfigError, Fault
from harness.models.loading import load_tokenizer, unloaded_model
from harness.models.resolving import CAUSAL_ROLES, ensure_local
from harness.planning.machine import Machine, memory_share, this_machine
from harness.plugins import EVALUATORS, METHODS
from harness.settings import Engine, Source, Training, TrialSpec, replace
from harness.toolkit.decoding import CACHE_BYTES, MIN_ROWS, ROWS_AT_ONCE, SAMPLED_CACHE_BYTES, SEQUENCES_AT_ONCE
from harness.toolkit.deepspeed import bucket_elements
from harness.toolkit.device import JUDGE_BYTES, READ_TOKENS, rows_at_once
from harness.toolkit.finetune import train
from harness.toolkit.losses import nll_loss
from harness.toolkit.scoring import SCORED_ROWS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_OPERATIONS = 2_000_000
"""Limit for code that waits for a value to change: fake values never do."""
LARGE_SHARE = 1 / 20
"""Trials whose weights fill more than this share of their memory are sized before every run."""
WARNING = (
    "Warning: these trials are estimated to need more than their GPU has. Estimates for a GPU may be a quarter off, so "
    "nothing is refused; a trial that runs out of memory fails, and the sweep goes on without it."
)
_ADVICE = (
    "Lower training.micro_batch, set training.activation_checkpointing or training.lora, give each trial more of the "
    "machine (resources.cpus, resources.gpus), partition it (engine: {deepspeed: {zero_stage: 3}}), or use a smaller "
    "model."
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
        self.held = 0
        self.peak = 0
        self._live: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}
        self._operations = 0
        self._is_paused = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and count its new tensors."""
        if self._is_paused:
            return function(*args, **(kwargs or {}))
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

    def loading(self, make: Callable[[], Any]) -> Any:
        """Return a model with fake weights; only those are counted."""
        self._is_paused = True
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                model = make()
        finally:
            self._is_paused = False
        self._count([*model.parameters(), *model.buffers()])
        return model

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


@dataclass(frozen=True)
class Rehearsal:
    """The memory of erasing on the plain engine, until the end of the first optimiser step."""

    peak: int
    """Bytes, with the optimiser's state from the beginning."""
    weights: int
    """Bytes of the models at the end."""
    state: int
    """Bytes that the step leaves for the next one."""
    trained: int
    """Number of weights that the step changes; 0 without training."""
    models: int
    """Number of models in the measured one: two in a pair."""


@dataclass(frozen=True)
class MemoryNeed:
    """The bytes that a trial needs and its process has; None where unknown."""

    needs: int | None
    has: int | None
    trained: int = 0
    """Number of weights that a step changes."""
    why_unknown: str = ""


class _SteppedError(Exception):
    """The end of the first optimiser step, after which nothing needs to run."""


class _FakeTask:
    """An `ErasureTask` on fake models and made-up sequences of the real ones' length."""

    engine, seed = Engine(), 0

    def __init__(self, spec: TrialSpec, tracker: MemoryTracker, layers: int | None) -> None:
        self._spec, self._tracker, self._layers = spec, tracker, layers
        self._models: list[weakref.ref[Model]] = []
        training = spec.training
        rows = min(training.global_batch, spec.forget.rows)
        # Gradients exist before a forward pass from the second micro-batch on.
        rows = min(rows, 2 * min(training.micro_batch, rows))
        self.training = replace(training, global_batch=rows, early_stop=None)
        self.strengths: tuple[Number, ...] = (spec.last_strength,)
        self.forget = _made_up(spec.forget, rows)
        self.validation = _made_up(spec.validation, min(spec.validation.rows, SCORED_ROWS))
        self.retain = _made_up(spec.retain, rows) if spec.retain is not None else None

    def load_original(self) -> Model:
        model = self._tracker.loading(lambda: unloaded_model(self._spec.model, layers=self._layers))
        self._models.append(weakref.ref(model))
        return model

    memorized_model = load_original

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return load_tokenizer(self._spec.model)

    def loaded_models(self) -> list[Model]:
        return [model for reference in self._models if (model := reference()) is not None]

    def validation_perplexity(self, model: Model) -> float:
        return 1.0

    def progress(self, message: str) -> None:
        pass


def memory_need(spec: TrialSpec, machine: Machine | None) -> MemoryNeed:
    """Return a trial's need and its share of a machine (None: a cluster, whose memory is unknown)."""
    has = None if machine is None or spec.gpus > machine.gpus else memory_share(machine, spec)
    try:
        needs, trained = _needs(spec)
    except Exception as error:  # A plugin's code may raise anything on tensors without contents.
        reason = (str(error).splitlines() or [""])[0][:120]
        return MemoryNeed(None, has, why_unknown=": ".join(filter(None, [type(error).__name__, reason])))
    return MemoryNeed(needs, has, trained)


def _needs(spec: TrialSpec) -> tuple[int, int]:
    """Return the larger of erasing's and measuring's bytes, and the number of trained weights."""
    original, at_rest = weights_bytes(spec.model), Rehearsal(0, weights_bytes(spec.model), 0, 0, 1)
    rehearsal = at_rest if spec.is_reference else _rehearsed_once(spec, is_memorizing=False)
    erasing = [add_engine_bytes(spec, rehearsal)]
    if not spec.is_reference and spec.reference == "memorized_model":
        erasing.append(add_engine_bytes(spec, _rehearsed_once(spec, is_memorizing=True)))
    resident = rehearsal.weights + _engine_bytes(spec, rehearsal)
    configured = [EVALUATORS.configure(evaluator.name, dict(evaluator.settings)) for evaluator in spec.evaluators]
    if any("original" in evaluator.reads for evaluator in configured):
        resident += original
    if any(evaluator.precision == "bf16" for evaluator in spec.evaluators):
        resident += rehearsal.weights // 2  # The copy in bf16, next to the model until all evaluators are done.
    judges, reading = _judges_bytes(spec)
    resident += judges
    passes = [decoding_bytes(spec, rehearsal.models), reading]
    if texts := max((getattr(evaluator, "trained_texts", 0) for evaluator in configured), default=0):
        training = Training(global_batch=texts, micro_batch=spec.training.micro_batch)
        memorization = replace(spec.memorization, global_batch=texts)
        briefly = replace(spec, training=training, memorization=memorization, engine=Engine())
        passes.append(_rehearsed_once(briefly, is_memorizing=True).peak)
    return max(*erasing, resident + max(passes)), rehearsal.trained


_REHEARSALS: dict[str, Rehearsal] = {}


def _rehearsed_once(spec: TrialSpec, *, is_memorizing: bool) -> Rehearsal:
    """Rehearse once for all trials with the same settings of memory."""
    training = replace(spec.training, learning_rate=1.0)
    sources = (spec.forget, spec.retain, spec.validation)
    texts = [source and (source.rows, source.longest, source.prefix_tokens) for source in sources]
    parts: list[Any] = [training.model_dump()]
    parts += [spec.memorized_training.global_batch] if is_memorizing else [spec.method, dict(spec.settings)]
    parts.append(_takes_more_steps(spec, is_memorizing))
    key = digest_of([asdict(spec.model), texts, is_memorizing, parts])
    if key not in _REHEARSALS:
        _REHEARSALS[key] = rehearse_deep(spec, is_memorizing=is_memorizing)
    return _REHEARSALS[key]


def rehearse_deep(spec: TrialSpec, *, is_memorizing: bool = False) -> Rehearsal:
    """Rehearse at the model's depth: extrapolate from two shallow runs where the layers are alike."""
    depth = _layer_count(spec.model)
    if depth > 4:
        weights = [weights_bytes(spec.model, layers) for layers in (2, 4, None)]
        times = (depth - 2) / 2
        if weights[0] + times * (weights[1] - weights[0]) == weights[2]:
            low, high = (vars(rehearse(spec, layers, is_memorizing=is_memorizing)) for layers in (2, 4))
            return Rehearsal(**{name: round(low[name] + times * (high[name] - low[name])) for name in low})
    return rehearse(spec, is_memorizing=is_memorizing)


def rehearse(spec: TrialSpec, layers: int | None = None, *, is_memorizing: bool = False) -> Rehearsal:
    """Count the memory of erasing on the plain engine while its code runs on fake tensors.

    Args:
        spec: The trial.
        layers: Number of the model's layers; None: all.
        is_memorizing: Train the memorised model instead of running the method.

    Raises:
        Exception: The method's code cannot run without values.
    """
    tracker = MemoryTracker()
    peak_before, held_before, state, trained, weights = 0, 0, 0, 0, 0

    def start_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        nonlocal peak_before, held_before, trained
        peak_before, held_before = tracker.peak, tracker.held
        trained = sum(weight.numel() for group in optimizer.param_groups for weight in group["params"])

    def end_step(*_: Any) -> None:
        nonlocal state, weights
        state, weights = tracker.held - held_before, sum(map(_count_bytes, task.loaded_models()))
        raise _SteppedError

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings(action="ignore"))  # Torch warns about fake gradients.
        stack.callback(register_optimizer_step_pre_hook(start_step).remove)
        stack.callback(register_optimizer_step_post_hook(end_step).remove)
        stack.enter_context(tracker)
        task = _FakeTask(spec, tracker, layers)
        try:
            model = next(_memorized(task) if is_memorizing else _erased(spec, task))
        except _SteppedError:
            peak = max(peak_before + (state if _takes_more_steps(spec, is_memorizing) else 0), tracker.peak)
            return Rehearsal(peak, weights, state, trained, 1)
        loaded_models = task.loaded_models()
        models = 1 if any(loaded is model for loaded in loaded_models) else len(loaded_models)
        return Rehearsal(tracker.peak, sum(map(_count_bytes, loaded_models)), 0, 0, models)


def _takes_more_steps(spec: TrialSpec, is_memorizing: bool) -> bool:
    """Return True if a second step may run, next to the state of the first."""
    if is_memorizing:
        return spec.memorization.epochs > 1 or spec.forget.rows > spec.memorized_training.global_batch
    has_epochs = METHODS.load(spec.method).strength.cumulative
    return not has_epochs or spec.last_strength > 1 or spec.forget.rows > spec.training.global_batch


def _erased(spec: TrialSpec, task: _FakeTask) -> Iterator[Model]:
    method = METHODS.configure(spec.method, {**spec.settings, spec.strength_name: spec.last_strength})
    return (erased.model for erased in method.erase(task))


def _memorized(task: _FakeTask) -> Iterator[Model]:
    rows = min(task._spec.memorized_training.global_batch, 2 * task.training.micro_batch, len(task.forget))
    task.training = replace(task.training, global_batch=rows, lora=None)
    model = task.load_original()
    for _ in train(task, model, nll_loss, 1):
        pass
    yield model


def _made_up(source: Source, rows: int) -> Sequences:
    tokens = torch.zeros(rows, source.longest, dtype=torch.long)
    return Sequences(tokens, torch.full((rows,), source.longest), source.prefix_tokens, "")


def add_engine_bytes(spec: TrialSpec, rehearsal: Rehearsal) -> int:
    """Return the bytes of erasing on the trial's engine.

    DeepSpeed needs a process group and cannot be rehearsed; its buffers are multiples or shares of the weights, as
    measured on one worker at stages 0 to 3 in fp32 and bf16.
    """
    engine = spec.engine.deepspeed
    if engine is None or not rehearsal.trained:
        return rehearsal.peak
    weights = rehearsal.trained
    full, low = 4 * weights, (4 if spec.training.precision == "fp32" else 2) * weights
    activations = max(0, rehearsal.peak - rehearsal.weights - rehearsal.state - full)
    total = rehearsal.weights + activations + _engine_bytes(spec, rehearsal)
    if engine.zero_stage == 0:
        return total + 2 * low
    bucket = low // weights * bucket_elements(weights)
    gradients = (low if engine.zero_stage == 1 else low // engine.workers) + bucket
    return total + gradients + (full // engine.workers if spec.gpus == 0 else 0)


def _engine_bytes(spec: TrialSpec, rehearsal: Rehearsal) -> int:
    """Return an engine's bytes between two steps, next to the model: the optimiser's state and DeepSpeed's copies."""
    engine, full = spec.engine.deepspeed, 4 * rehearsal.trained
    if engine is None or not rehearsal.trained:
        return rehearsal.state
    low = full if spec.training.precision == "fp32" else full // 2
    if engine.zero_stage == 0:
        return low + 2 * full
    return low + (0 if spec.gpus > 0 and engine.offload else 3 * full // engine.workers)


@lru_cache(maxsize=64)
def weights_bytes(checkpoint: Checkpoint, layers: int | None = None) -> int:
    """Return the bytes of a model's fp32 weights and buffers, at a number of layers (None: its own)."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        return _count_bytes(unloaded_model(checkpoint, layers=layers))


def _count_bytes(model: torch.nn.Module) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))


def _layer_count(checkpoint: Checkpoint) -> int:
    return int(getattr(_configuration(checkpoint), "num_hidden_layers", 0))


@lru_cache(maxsize=64)
def _configuration(checkpoint: Checkpoint) -> Any:
    from transformers import AutoConfig

    folder = ensure_local(checkpoint, weights=False).location
    return AutoConfig.from_pretrained(folder, trust_remote_code=False).get_text_config(decoder=True)


def decoding_bytes(spec: TrialSpec, models: int = 1) -> int:
    """Return the bytes of continuing the forget set or the utility prompts, next to the model.

    Prompts are read first with two copies of their logits, which are freed before rows are stepped.

    Args:
        spec: The trial.
        models: Number of models in the measured one: a pair has two caches.
    """
    config, device = _configuration(spec.model), torch.device("cuda" if spec.gpus > 0 else "cpu")
    heads = getattr(config, "num_attention_heads", 1)
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    element = 2 if spec.evaluators and all(evaluator.precision == "bf16" for evaluator in spec.evaluators) else 4
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    token_bytes = 2 * models * element * config.num_hidden_layers * kv_heads * width
    logits_bytes, length, prompt = models * 4 * config.vocab_size, spec.forget.longest, spec.utility.prefix_tokens

    def reading(rows: int, tokens: int) -> int:
        batch_tokens = min(max(READ_TOKENS[device.type], tokens), rows * tokens)
        return int(rows * tokens * token_bytes + 2 * logits_bytes * batch_tokens)

    rows = min(rows_at_once(config.vocab_size, length, device, SEQUENCES_AT_ONCE), spec.forget.rows)
    continuations = min(max(MIN_ROWS, CACHE_BYTES[device.type] // (token_bytes * length)), rows * length)
    stepping = (rows + continuations) * token_bytes * length + logits_bytes * continuations
    cached_rows = SAMPLED_CACHE_BYTES[device.type] // (token_bytes * spec.utility.longest)
    samples = min(ROWS_AT_ONCE[device.type], spec.utility.rows, cached_rows)
    samples = rows_at_once(config.vocab_size, prompt, device, most=samples)
    sampling = samples * (token_bytes * (prompt + spec.utility.longest) + 2 * logits_bytes)
    return int(max(reading(rows, length), stepping, reading(samples, prompt), sampling))


def _judges_bytes(spec: TrialSpec) -> tuple[int, int]:
    """Return the bytes of the judges that are loaded together, and of the largest logits."""
    device, weights, logits = torch.device("cuda" if spec.gpus > 0 else "cpu"), [0], [0]
    role_by_judge = {judge: role for role, judge in spec.judges.items()}
    is_low = any(evaluator.judge_precision == "bf16" for evaluator in spec.evaluators)
    for judge, role in role_by_judge.items():
        is_causal = role in CAUSAL_ROLES
        weights.append((weights_bytes(judge) // (2 if is_low else 1)) if is_causal else _encoder_bytes(judge))
        if is_causal:
            vocabulary, tokens = _configuration(judge).vocab_size, spec.utility.longest
            rows = min(rows_at_once(vocabulary, tokens, device, SCORED_ROWS), spec.utility.rows)
            logits.append(2 * 4 * vocabulary * tokens * rows)
    return max(min(sum(weights), JUDGE_BYTES), *weights), max(logits)


@lru_cache(maxsize=16)
def _encoder_bytes(judge: Checkpoint) -> int:
    from transformers import AutoConfig, AutoModel

    folder = Path(ensure_local(judge, weights=False).location)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with torch.device("meta"):
        return _count_bytes(AutoModel.from_config(config, dtype=torch.float32))


def memory_needs(trials: Iterable[TrialSpec], machine: Machine | None) -> dict[str, MemoryNeed]:
    """Return needs by trial id."""
    return {spec.trial_id: memory_need(spec, machine) for spec in trials}


def find_unfit(
    trials: Iterable[TrialSpec], machine: Machine | None, needs: Mapping[str, MemoryNeed]
) -> tuple[list[Fault], list[Fault]]:
    """Return faults of trials that cannot run on a machine, and doubts about those that may not fit its GPUs.

    Args:
        trials: The trials to run.
        machine: None: a cluster, where nothing is known.
        needs: By trial id; a trial without one is small.
    """
    rows_by_fault: dict[str, list[str]] = defaultdict(list)
    rows_by_doubt: dict[str, list[str]] = defaultdict(list)
    if machine is None:
        return [], []
    for spec in trials:
        row, need = f"{spec.variant} on {spec.model.short_name}", needs.get(spec.trial_id)
        missing = _missing_device(spec, machine)
        if missing is not None:
            rows_by_fault[missing].append(row)
        elif need is not None and need.needs is not None and need.has is not None and need.needs > need.has:
            shortage = f"needs {gigabytes(need.needs)}, and has {gigabytes(need.has)}. {_ADVICE}"
            (rows_by_doubt if spec.gpus > 0 else rows_by_fault)[shortage].append(row)
    return _faults_of(rows_by_fault), _faults_of(rows_by_doubt)


def _faults_of(rows_by_reason: Mapping[str, Sequence[str]]) -> list[Fault]:
    return [Fault(first_names(list(dict.fromkeys(rows)), 1), reason) for reason, rows in rows_by_reason.items()]


def _missing_device(spec: TrialSpec, machine: Machine) -> str | None:
    gpus = spec.gpus * spec.engine.workers
    if gpus > machine.gpus:
        needs = f"{gpus:g} GPU{'' if gpus <= 1 else 's'}"
        return f"needs {needs} (resources.gpus), and this machine has {machine.gpus or 'none'}: use one that has them."
    if spec.cpus > machine.cpus:
        return f"needs {spec.cpus} CPUs (resources.cpus), and this machine has {machine.cpus}."
    if spec.gpus > 0 and not machine.has_bf16:
        precisions = [("training.precision", spec.training.precision)]
        precisions += [("measuring.precision", evaluator.precision) for evaluator in spec.evaluators]
        precisions += [("measuring.judges", evaluator.judge_precision) for evaluator in spec.evaluators]
        for setting, precision in precisions:
            if precision == "bf16":
                return f"computes in bf16, which this machine's GPU does not: set {setting} to fp32."
    return None


def refuse_unfit(file: Path, trials: Sequence[TrialSpec]) -> None:
    """Refuse trials that cannot run here, and warn about doubts; only large models are sized.

    Raises:
        ConfigError: Every such trial, with remedies.
    """
    machine = this_machine()
    large = [spec for spec in trials if machine is not None and _is_large(spec, machine)]
    faults, doubts = find_unfit(trials, machine, memory_needs(large, machine))
    if doubts:
        tell(needs_warning(doubts), is_error=True)
    if faults:
        raise ConfigError(str(file), faults)


def _is_large(spec: TrialSpec, machine: Machine) -> bool:
    if spec.gpus > machine.gpus:
        return False
    try:
        return weights_bytes(spec.model) > LARGE_SHARE * memory_share(machine, spec)
    except ValueError:  # Not a known causal LM: its trials fail with the reason.
        return False


def needs_warning(doubts: Sequence[Fault]) -> str:
    """Return the warning about trials that may not fit their GPU; '' without doubts."""
    lines = [f"  {doubt.path}  {doubt.reason}" for doubt in doubts]
    return "\n".join([WARNING, *lines]) if doubts else ""


def gigabytes(size: int) -> str:
    """Format a number of bytes.

    Example:
        >>> gigabytes(42_400_000_000), gigabytes(8_000_000)
        ('42.4 GB', '8 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{math.ceil(size / 1e6)} MB"
