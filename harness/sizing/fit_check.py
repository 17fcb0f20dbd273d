"""Whether each trial fits what it is given, and the setting that would make it fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from harness.base.messages import first_names
from harness.errors import Fault
from harness.plugins import METHODS
from harness.sizing.estimate import IN_THIS_PROCESS, MemoryEstimate, UnknownEstimate, estimate_memory, weights_bytes
from harness.sizing.machine import Machine, host_share_of, share_of
from harness.sizing.size_cache import SizeCache
from harness.specs import Engine, TrialSpec
from harness.training import LoRA

LEAST = 20
"""A model whose weights fill less than a twentieth of what a trial has is small."""


@dataclass(frozen=True)
class FitCheck:
    """One trial's need beside what its process has on its device."""

    need: MemoryEstimate | UnknownEstimate
    has: int | None
    """Bytes; None on a cluster, which only itself knows what it has, and where the device is missing."""


@dataclass(frozen=True)
class FitReport:
    """Whether trials fit a machine."""

    needs: Mapping[str, FitCheck]
    """Of every trial that was sized, by its id."""
    faults: list[Fault]
    """Why trials cannot run: devices that the machine has not, and too little of the CPUs' memory."""
    warnings: list[Fault]
    """The trials that seem to need more than their GPU has: no GPU has confirmed a figure."""


def check_fit(
    trials: Iterable[TrialSpec],
    machine: Machine | None,
    sizes: SizeCache = IN_THIS_PROCESS,
    *,
    left: Iterable[TrialSpec] | None = None,
) -> FitReport:
    """Return every trial's need and what it gets of a machine, and what stands against running those that are left.

    Args:
        trials: Those to be sized.
        machine: None: a cluster, which only itself knows what it has.
        sizes: The sizes that are known.
        left: Those to be run; None: all of `trials`.
    """
    trials = list(trials)
    needs = {spec.trial_id: FitCheck(estimate_memory(spec, sizes), _has(machine, spec)) for spec in trials}
    if machine is None:
        return FitReport(needs, [], [])
    rows_by_fault: dict[str, list[str]] = defaultdict(list)
    rows_by_warning: dict[str, list[str]] = defaultdict(list)
    for spec in trials if left is None else left:
        row = f"{spec.variant} on {spec.model.short_name}"
        missing = _missing_device(spec, machine)
        if missing is not None:
            rows_by_fault[missing].append(row)
        if spec.gpus > 0 or missing is None:
            shortage = _shortage(spec, needs, machine, sizes)
            if shortage is not None:
                (rows_by_warning if spec.gpus > 0 else rows_by_fault)[shortage].append(row)
    return FitReport(needs, _faults_of(rows_by_fault), _faults_of(rows_by_warning))


def large(trials: Iterable[TrialSpec], machine: Machine | None, sizes: SizeCache = IN_THIS_PROCESS) -> list[TrialSpec]:
    """Return the trials that are worth sizing before every run: whose weights are no trifle to what they have."""
    worth_sizing = []
    for spec in trials:
        # No causal LM that is known raises a ValueError: its trials fail, and say why.
        with suppress(ValueError):
            has = _has(machine, spec)
            if has is not None and LEAST * weights_bytes(spec.model, sizes) > has:
                worth_sizing.append(spec)
    return worth_sizing


def _has(machine: Machine | None, spec: TrialSpec) -> int | None:
    return None if machine is None or spec.gpus > machine.gpus else share_of(machine, spec)


def _faults_of(rows_by_reason: Mapping[str, Sequence[str]]) -> list[Fault]:
    """Return a fault for each reason, with the trials that share it."""
    return [Fault(first_names(list(dict.fromkeys(rows)), 1), reason) for reason, rows in rows_by_reason.items()]


def _missing_device(spec: TrialSpec, machine: Machine) -> str | None:
    wanted = spec.gpus * spec.engine.workers
    if wanted > machine.gpus:
        needs = f"{wanted:g} GPU{'' if wanted <= 1 else 's'}"
        return f"needs {needs} (resources.gpus), and this machine has {machine.gpus or 'none'}: use one that has them."
    if spec.cpus > machine.cpus:
        return f"needs {spec.cpus} CPUs (resources.cpus), and this machine has {machine.cpus}."
    if spec.gpus > 0 and not machine.has_bf16:
        asked = [("training.precision", spec.training.precision)]
        asked += [("measuring.precision", evaluator.precision) for evaluator in spec.evaluators]
        asked += [("measuring.judges", evaluator.judge_precision) for evaluator in spec.evaluators]
        for setting, precision in asked:
            if precision == "bf16":
                return f"computes in bf16, which this machine's GPU does not: set {setting} to fp32."
    return None


def _shortage(spec: TrialSpec, fits: Mapping[str, FitCheck], machine: Machine, sizes: SizeCache) -> str | None:
    fit = fits.get(spec.trial_id)
    if fit is None or isinstance(fit.need, UnknownEstimate) or fit.has is None:
        return None
    if fit.need.host > (there := host_share_of(machine, spec) if spec.gpus > 0 else 0):
        less = "without offload, or on more workers," if spec.engine.offload else "with fewer trials side by side"
        return (
            f"needs {gigabytes(fit.need.host)} of the machine's memory beside what lies on the GPU, and has "
            f"{gigabytes(max(there, 0))}: run it {less} or on a machine with more."
        )
    if fit.need.most.total <= fit.has:
        return None
    most = fit.need.most
    while_ = "erasing" if most is fit.need.erasing else "measuring"
    parts = ", ".join(f"{part} {gigabytes(size)}" for part, size in asdict(most).items() if size)
    needs = f"needs {gigabytes(most.total)} while {while_} ({parts}), and has {gigabytes(fit.has)}"
    for changed, setting in _fitting_settings(spec, fit.need, machine):
        other = estimate_memory(changed, sizes)
        if isinstance(other, MemoryEstimate) and _fits(other, machine, changed):
            return f"{needs}: {setting} makes it fit."
    for changed, setting in _smaller(spec):
        other = estimate_memory(changed, sizes)
        if isinstance(other, MemoryEstimate) and _fits(other, machine, changed):
            return f"{needs}: {setting} makes it fit, and changes the numbers."
    of_what = "a GPU" if spec.gpus > 0 else "each trial"
    return (
        f"{needs}: no setting makes it fit this machine. Use a smaller model, or a machine with "
        f"{gigabytes(most.total)} for {of_what}."
    )


def _fits(need: MemoryEstimate, machine: Machine, spec: TrialSpec) -> bool:
    there = host_share_of(machine, spec) if spec.gpus > 0 else 0
    return need.most.total <= share_of(machine, spec) and need.host <= there


def _fitting_settings(spec: TrialSpec, need: MemoryEstimate, machine: Machine) -> Iterator[tuple[TrialSpec, str]]:
    """Yield settings with which the trial may fit, the one that changes least first."""
    size = spec.training.micro_batch if need.measuring.total <= share_of(machine, spec) else 1
    while size > 1:  # It has no say in what measuring needs.
        size //= 2
        yield replace(spec, training=replace(spec.training, micro_batch=size)), f"training.micro_batch: {size}"
    yield from _checkpointed(spec, need, machine)
    if spec.gpus == 0:
        for cpus in range(spec.cpus + 1, machine.cpus // spec.engine.workers + 1):
            yield replace(spec, cpus=cpus), f"resources.cpus: {cpus}"
    for gpus in (0.25, 0.5, 1.0):
        if 0 < spec.gpus < gpus:
            yield replace(spec, gpus=gpus), f"resources.gpus: {gpus:g}"
    yield from _other_engines(spec, machine)


def _checkpointed(spec: TrialSpec, need: MemoryEstimate, machine: Machine) -> Iterator[tuple[TrialSpec, str]]:
    """Yield activation checkpointing where erasing alone does not fit: it takes more time, and changes no number."""
    has = share_of(machine, spec)
    if spec.training.activation_checkpointing or need.erasing.total <= has or need.measuring.total > has:
        return
    checkpointed = replace(spec.training, activation_checkpointing=True)
    yield replace(spec, training=checkpointed), "training.activation_checkpointing: true"
    smallest = replace(checkpointed, micro_batch=1)
    yield replace(spec, training=smallest), "training.activation_checkpointing: true with training.micro_batch: 1"


def _smaller(spec: TrialSpec) -> Iterator[tuple[TrialSpec, str]]:
    """Yield other trials that need less: adapters in place of all weights, then shorter texts."""
    trainings = [(replace(spec.training, micro_batch=1), "")]
    if spec.training.lora is None and not spec.is_reference and METHODS.load(spec.method).searched_training:
        adapted = replace(spec.training, micro_batch=1, lora=LoRA(rank=8))
        yield replace(spec, training=adapted), "training.lora: {rank: 8} with training.micro_batch: 1"
        trainings.append((adapted, " with training.lora: {rank: 8}"))
    for part in (2, 4):
        tokens = max(spec.forget.prefix_tokens + 1, spec.forget.sequence_tokens // part)
        forget = replace(spec.forget, sequence_tokens=tokens, longest=min(tokens, spec.forget.longest))
        for training, besides in trainings:
            yield replace(spec, forget=forget, training=training), f"data.forget.sequence_tokens: {tokens}{besides}"


def _other_engines(spec: TrialSpec, machine: Machine) -> Iterator[tuple[TrialSpec, str]]:
    """Yield DeepSpeed's partitions over all devices, and its offloading, first with the micro-batch as it is."""
    devices = int(machine.gpus if spec.gpus > 0 else machine.cpus // spec.cpus)
    kinds = [(devices, False), (1, True), (devices, True)] if spec.gpus > 0 else [(devices, False)]
    smallest = replace(spec, training=replace(spec.training, micro_batch=1))
    for changed, besides in ((spec, ""), (smallest, " with training.micro_batch: 1")):
        for workers, offload in kinds:
            for stage in (2, 3):
                engine = Engine(name="deepspeed", zero_stage=stage, offload=offload, workers=max(workers, 1))
                if engine != spec.engine:
                    settings = f"zero_stage: {stage}, workers: {engine.workers}{', offload: true' if offload else ''}"
                    yield replace(changed, engine=engine), f"engine: {{deepspeed: {{{settings}}}}}{besides}"


def gigabytes(size: int) -> str:
    """Return a size for people.

    Example:
        >>> gigabytes(42_400_000_000), gigabytes(8_000_000)
        ('42.4 GB', '8 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
