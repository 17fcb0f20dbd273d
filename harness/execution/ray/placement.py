"""What Ray gives to a trial's processes: its own, and those of its workers where it has several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.specs import TrialSpec

_OWN_SHARE = 0.01
"""The share of a CPU and a GPU for a trial that waits while its workers train, and then measures."""
_WORKERS_CPUS = 0.9
"""The share of the trial's CPUs that its workers get; the rest is for Ray Train's own processes."""
_ROUNDING = 1e-9


def trial_resources(spec: TrialSpec) -> dict[str, float]:
    """Return what a trial's own process is given.

    Where it has workers, that is a share of a GPU, so that it measures on one; with several GPUs for each worker it
    has none, since Ray hands out more than one only as wholes, and measures on CPUs.

    Example:
        >>> from dataclasses import replace
        >>> from harness.testing import small_spec
        >>> from harness.specs import Engine
        >>> trial_resources(replace(small_spec(), cpus=2, gpus=1.0))
        {'CPU': 2, 'GPU': 1.0}
        >>> trial_resources(replace(small_spec(), gpus=1.0, engine=Engine(name="deepspeed", workers=2)))
        {'CPU': 0.01, 'GPU': 0.01}
    """
    if spec.engine.workers == 1:
        return _resources(spec.cpus, spec.gpus)
    return _resources(_OWN_SHARE, _OWN_SHARE if _is_shared(spec) else 0)


def worker_resources(spec: TrialSpec) -> dict[str, float]:
    """Return what each of a trial's several workers is given: with `trial_resources`, no more than the trial asks for.

    Example:
        >>> from dataclasses import replace
        >>> from harness.testing import small_spec
        >>> worker_resources(replace(small_spec(), gpus=1.0))
        {'CPU': 0.9, 'GPU': 0.99}
    """
    gpus = spec.gpus - _OWN_SHARE if _is_shared(spec) else spec.gpus
    return _resources(spec.cpus * _WORKERS_CPUS, gpus)


def trials_at_once(specs: Sequence[TrialSpec], has: Mapping[str, float]) -> int:
    """Return how many trials with several workers may run at once, by CPUs and by GPUs; 0 if none has several.

    Tune places a trial and does not know of its workers: without a bound, trials would wait for each other's.

    Args:
        specs: Of all that are to run; they have equally many workers.
        has: How many `CPU` and `GPU` there are.
    """
    workers = max(spec.engine.workers for spec in specs)
    if workers == 1:
        return 0
    cpus, gpus = max(spec.cpus for spec in specs), max(spec.gpus for spec in specs)
    room = [has.get("CPU", 1) / (workers * cpus)]
    room += [has.get("GPU", 0) / (workers * gpus)] if gpus else []
    return max(1, int(min(room) + _ROUNDING))


def _resources(cpus: float, gpus: float) -> dict[str, float]:
    return {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}


def _is_shared(spec: TrialSpec) -> bool:
    return _OWN_SHARE < spec.gpus <= 1
