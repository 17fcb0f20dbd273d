"""What a trial needs, erasing and measuring, on the engine that it runs on."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch

from harness.contracts import Checkpoint, Evaluator, Json, Model
from harness.models.loading import unloaded_model
from harness.plugins import EVALUATORS, METHODS
from harness.sizing.deepspeed import partitioned
from harness.sizing.erasing_dry_run import DryRun, bytes_of, dry_run, dry_run_memorizing, run_shallow
from harness.sizing.measuring_dry_run import judge_pass, lowered_in_place, model_passes, question_passes, with_judges
from harness.sizing.memory_tracker import Bytes, MemoryTracker, largest
from harness.sizing.size_cache import SizeCache, code_digest, model_digest
from harness.specs import Engine, Source, TrialSpec
from harness.toolkit.batches import JUDGE_BYTES
from harness.training import Training

IN_THIS_PROCESS = SizeCache()


@dataclass(frozen=True)
class MemoryEstimate:
    """The most that a trial holds on its device, while it erases and while it measures."""

    erasing: Bytes
    measuring: Bytes
    trained: int = 0
    """How many weights a step changes; 0 where nothing is trained."""
    host: int = 0
    """Bytes of the machine's memory that each process on a GPU holds beside; 0 on CPUs, where that is the device."""

    @property
    def most(self) -> Bytes:
        """Return the larger of the two, which are never needed at once."""
        return largest([self.erasing, self.measuring])


@dataclass(frozen=True)
class UnknownEstimate:
    """Why a trial's need is not known."""

    reason: str


@dataclass(frozen=True)
class _Erased:
    """What is left of an erasure's dry run, and can be kept on disk."""

    peak: Bytes
    held: Bytes
    """While the erased model is measured."""
    is_plain: bool
    trained: int
    host: int = 0


def estimate_memory(spec: TrialSpec, sizes: SizeCache = IN_THIS_PROCESS) -> MemoryEstimate | UnknownEstimate:
    """Return what a trial needs, from its method's code and its model's configuration alone.

    Args:
        spec: The trial; neither its seed and learning rate nor a strength's value make a difference.
        sizes: What was estimated before; each part of this estimate is added.
    """

    def estimate() -> MemoryEstimate | UnknownEstimate:
        try:
            return _estimate(spec, sizes)
        except Exception as error:  # Whatever a plugin's code raises on tensors that hold nothing.
            reason = (str(error).splitlines() or [""])[0][:120]
            return UnknownEstimate(f"{type(error).__name__}: {reason}" if reason else type(error).__name__)

    judges = {role: model_digest(judge) for role, judge in spec.judges.items()}
    evaluators = []
    for evaluator in spec.evaluators:
        precisions = [evaluator.precision, evaluator.judge_precision]
        evaluators.append([evaluator.name, dict(evaluator.settings), precisions])
    return sizes.get([_erasing_key(spec), _text_size(spec.utility), judges, evaluators], estimate)


def weights_bytes(checkpoint: Checkpoint, sizes: SizeCache = IN_THIS_PROCESS) -> int:
    """Return what a model's fp32 weights weigh."""
    return sizes.get(["weights", model_digest(checkpoint)], lambda: bytes_of(checkpoint))


def _estimate(spec: TrialSpec, sizes: SizeCache) -> MemoryEstimate:
    memorizes = not spec.is_reference and spec.reference == "memorized_model"
    erased = sizes.get(["erasing", _erasing_key(spec)], lambda: _erase(spec, dry_run, on_engine=not memorizes))
    erasing = [erased.peak]
    if memorizes:
        key = ["memorizing", _shape(spec)]
        erasing.append(sizes.get(key, lambda: _erase(spec, dry_run_memorizing, on_engine=True)).peak)
    original = Bytes(weights=weights_bytes(spec.model, sizes))
    # Several workers hand in their models as files, and one process measures each alone.
    held = original if spec.engine.workers > 1 and not memorizes else erased.held
    passes, judges = _passes(spec, erased, sizes)
    if any(evaluator.precision == "bf16" for evaluator in spec.evaluators):
        held += Bytes(weights=held.weights // 2)  # The copy in bf16, beside the model until all evaluators are done.
    # In the largest training step of an evaluator; 0 where none trains.
    if texts := max((evaluator.trained_texts for evaluator in _configured(spec)), default=0):
        passes.append(short_training(spec, texts, sizes))
    if any("original" in evaluator.reads for evaluator in _configured(spec)):
        held += original
    # What evaluators prepare of the original alone they prepare beside no other model: that is never more.
    measuring = [held + of_pass for of_pass in passes]
    # Judges that do not stay on a GPU together wait in the machine's memory.
    waiting = judges if spec.gpus > 0 and judges > JUDGE_BYTES else 0
    return MemoryEstimate(largest(erasing), largest(measuring), erased.trained, erased.host + waiting)


def _passes(spec: TrialSpec, erased: _Erased, sizes: SizeCache) -> tuple[list[Bytes], int]:
    """Return what each kind of pass holds beside the models that are measured, and what all judges weigh."""
    device = torch.device("cuda" if spec.gpus > 0 else "cpu")
    # The fewer bytes of bf16 hold no less where something is measured in fp32 beside it.
    low = all(evaluator.precision == "bf16" for evaluator in spec.evaluators) and bool(spec.evaluators)
    judged_low = any(evaluator.judge_precision == "bf16" for evaluator in spec.evaluators)
    questions = [evaluator.questions for evaluator in _configured(spec) if evaluator.questions is not None]
    on = [[_text_size(spec.forget), _text_size(spec.utility)], device.type]

    def of_model() -> list[Bytes]:
        # The checkpoint's own kind, or what the method makes of it.
        model = _unloaded(spec) if erased.is_plain else dry_run(spec).model
        if low:
            model = MemoryTracker().loading(lambda: lowered_in_place(model, torch.bfloat16))
        passes = model_passes(model, spec.forget, spec.utility, device)
        return passes + [of_pass for shape in questions for of_pass in question_passes(model, shape, device)]

    key = [
        "passes",
        on,
        low,
        [asdict(shape) for shape in questions],
        model_digest(spec.model) if erased.is_plain else _erasing_key(spec),
    ]
    passes, judges = sizes.get(key, of_model), {}
    for role, judge in spec.judges.items():
        dtype = torch.bfloat16 if judged_low else torch.float32
        make = partial(judge_pass, role, judge, spec.forget, spec.utility, device, dtype)
        key = ["judge", on, judged_low, role, model_digest(judge)]
        judges[judge] = sizes.get(key, make)
    return with_judges(passes, list(judges.values())), sum(judge.judges for judge in judges.values())


def _configured(spec: TrialSpec) -> list[Evaluator]:
    return [EVALUATORS.configure(evaluator.name, dict(evaluator.settings)) for evaluator in spec.evaluators]


def short_training(spec: TrialSpec, texts: int, sizes: SizeCache) -> Bytes:
    """Return what `trained_briefly` holds beside the models: a copy, its gradients, its moments, its activations."""
    training = Training(global_batch=texts)
    memorization = replace(spec.memorization, global_batch=texts)
    trial = replace(spec, training=training, memorization=memorization, engine=Engine())
    key = ["short training", _shape(trial)]
    return sizes.get(key, lambda: _erase(trial, dry_run_memorizing, on_engine=False)).peak


def _erase(spec: TrialSpec, run: DryRun, *, on_engine: bool) -> _Erased:
    """Return the result of a dry run: on DeepSpeed if a whole model is trained there, else on the plain engine."""
    on_gpu, training = spec.gpus > 0, spec.training
    if not on_engine or spec.engine.name == "torch":
        on_plain = run_shallow(run, spec)
        # On a GPU the training loop puts the moments aside while its model is measured.
        held = replace(on_plain.held, optimizer=0) if on_gpu else on_plain.held
        # Weights are read through the machine's memory, where the moments wait too.
        host = bytes_of(spec.model) + on_plain.held.optimizer if on_gpu else 0
        return _Erased(on_plain.peak, held, on_plain.is_plain, on_plain.trained, host)
    share = min(training.micro_batch, -(-training.global_batch // spec.engine.workers))
    low = torch.bfloat16 if training.precision == "bf16" else torch.float32
    result = run_shallow(run, replace(spec, training=replace(training, precision="fp32", micro_batch=share)), low)
    count = sum(weight.numel() for weight in _unloaded(spec).parameters())
    has_adapters = training.lora is not None and result.trained > 0
    if result.trained < count and not has_adapters:
        return _erase(spec, run, on_engine=False)
    parts = partitioned(result.trained, training.precision, spec.engine, on_gpu=on_gpu)
    plain = Bytes(weights=bytes_of(spec.model))
    frozen = result.frozen - has_adapters  # The model around adapters is frozen too, and counted apart.
    others = Bytes(weights=count * (4 * (result.models - 1 - frozen) + low.itemsize * frozen))
    if has_adapters:
        sharing = spec.engine.workers if spec.engine.zero_stage == 3 else 1
        others += Bytes(weights=count * low.itemsize // sharing) + (Bytes() if on_gpu else plain)
    backward = parts.backward + Bytes(activations=max(moment.activations for moment in result.moments))
    # On a GPU the plain model comes back for its new weights, and only then what trained it is put aside.
    suspending = parts.held + plain if on_gpu else parts.held
    peak = largest([backward, parts.step, suspending])
    is_gone = result.held.optimizer == 0
    held = plain if on_gpu or is_gone else parts.held
    held = others + held + Bytes(activations=result.held.activations)
    host = plain.total + parts.offloaded if on_gpu else 0
    return _Erased(others + peak, held, result.is_plain, result.trained, host)


def _unloaded(spec: TrialSpec) -> Model:
    return MemoryTracker().loading(lambda: unloaded_model(spec.model))


def _erasing_key(spec: TrialSpec) -> Json:
    """Return what decides a dry run of a trial's erasing."""
    if spec.is_reference:
        return ["reference", _shape(spec)]
    method = METHODS.load(spec.method)
    more = sum(value != method.strength.off for value in spec.strengths)
    code = code_digest(sys.modules[method.__module__])
    return [spec.method, method.__name__, code, dict(spec.settings), min(more, 2), _shape(spec)]


def _shape(spec: TrialSpec) -> Json:
    training, texts = spec.training, (spec.forget, spec.retain, spec.validation)
    batches = [training.micro_batch, training.global_batch, spec.memorization.global_batch, training.precision]
    how = [
        batches,
        [training.activation_checkpointing, training.fused_gelu],
        asdict(training.lora) if training.lora else None,
        asdict(spec.engine),
    ]
    return [model_digest(spec.model), how, spec.gpus > 0, [_text_size(text) for text in texts]]


def _text_size(text: Source | None) -> Json:
    return text and [text.rows, text.longest, text.prefix_tokens]
