"""What a trial needs, erasing and measuring, on the engine that it runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar, cast

import torch

from harness.contracts import Json
from harness.models.loading import unloaded_model
from harness.planning.sizing.deepspeed import partitioned
from harness.planning.sizing.erasing import Rehearsed, rehearse, rehearse_memorizing
from harness.planning.sizing.measuring import rehearse_measuring
from harness.planning.sizing.meter import Bytes, Meter
from harness.plugins import METHODS
from harness.specs import TrialSpec, digest_of

T = TypeVar("T")


@dataclass(frozen=True)
class Need:
    """The most that a trial holds on its device, while it erases and while it measures."""

    erasing: Bytes
    measuring: Bytes

    @property
    def most(self) -> Bytes:
        """Return the larger of the two, which are never needed at once."""
        return max(self.erasing, self.measuring, key=lambda each: each.total)


@dataclass(frozen=True)
class Unknown:
    """Why a trial's need could not be told."""

    reason: str


_KNOWN: dict[str, Any] = {}


def _once(spec: TrialSpec, what: Json, make: Callable[[], T]) -> T:
    """Return `make()`, made once for all trials that agree in `what`, and in model, engine and the texts' sizes."""
    texts = (spec.forget, spec.retain, spec.utility, spec.validation)
    shared = [
        [spec.model.digest, asdict(spec.training), asdict(spec.engine), spec.gpus > 0],
        [text and [text.rows, text.longest, text.prefix_tokens] for text in texts],
        {role: judge.digest for role, judge in spec.judges.items()},
    ]
    name = digest_of([what, *shared])
    if name not in _KNOWN:
        _KNOWN[name] = make()
    return cast(T, _KNOWN[name])


def need_of(spec: TrialSpec) -> Need | Unknown:
    """Return what a trial needs, from its method's code and its model's configuration alone."""
    what = "reference" if spec.is_reference else [spec.method, dict(spec.settings), spec.strengths == (0,)]
    return _once(spec, what, lambda: _known(spec))


def _known(spec: TrialSpec) -> Need | Unknown:
    try:
        return _need(spec)
    except Exception as error:  # Whatever a plugin's code raises on tensors that hold nothing.
        reason = (str(error).splitlines() or [""])[0][:120]
        return Unknown(f"{type(error).__name__}: {reason}" if reason else type(error).__name__)


def _need(spec: TrialSpec) -> Need:
    memorizes = not spec.is_reference and METHODS.load(spec.method).reference == "memorized_model"
    erased = rehearse(spec) if memorizes else _on_engine(spec, rehearse)
    erasing = [erased.peak]
    if memorizes:
        erasing.append(_once(spec, "memorizing", lambda: _on_engine(spec, rehearse_memorizing).peak))
    plain = erased.model
    if plain.dtype != torch.float32:  # A rehearsal of DeepSpeed's bf16: what is measured is gathered to fp32.
        plain = Meter().loading(lambda: unloaded_model(spec.model))
    alone = Bytes(weights=sum(_bytes(each) for each in (*plain.parameters(), *plain.buffers())))
    held = alone if spec.engine.workers > 1 else erased.held
    # An evaluator may load the original beside the erased model.
    beside = Bytes() if spec.is_reference else Bytes(weights=alone.weights)
    passes = rehearse_measuring(spec, plain, torch.device("cuda" if spec.gpus > 0 else "cpu"))
    return Need(
        max(erasing, key=lambda each: each.total),
        max((held + beside + each for each in passes), key=lambda each: each.total),
    )


def _on_engine(spec: TrialSpec, run: Callable[..., Rehearsed]) -> Rehearsed:
    """Return what a rehearsal needs on the trial's engine; DeepSpeed trains whole models only, the rest is plain."""
    if spec.engine.name == "torch":
        return run(spec)
    training = spec.training
    share = min(training.micro_batch, -(-training.global_batch // spec.engine.workers))
    low = torch.bfloat16 if training.precision == "bf16" else torch.float32
    found = run(replace(spec, training=replace(training, precision="fp32", micro_batch=share)), low)
    count = sum(weight.numel() for weight in found.model.parameters())
    if found.trained < count:
        return run(spec)
    parts = partitioned(count, training.precision, spec.engine, on_gpu=spec.gpus > 0)
    frozen = Bytes(weights=4 * count * (found.models - 1))
    backward = frozen + parts.backward + Bytes(activations=found.peak.activations)
    peak = max(backward, frozen + parts.step, key=lambda each: each.total)
    return replace(found, peak=peak, held=frozen + parts.held)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
