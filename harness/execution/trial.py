"""One job, here and now: train a memorised model, or erase and then measure.

The same function runs under every executor. It never raises for a trial that goes wrong: that
becomes a record and an event, and the sweep goes on.
"""

from __future__ import annotations

import gc
import platform
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import version

import torch

from harness.contracts import (
    Definition,
    ErasedModel,
    Evaluation,
    Evaluator,
    Generations,
    Json,
    Model,
    Number,
)
from harness.errors import TrialError
from harness.execution.erasing import erase
from harness.execution.guard import guarded
from harness.execution.jobs import Event, Folders, Job, Watcher
from harness.execution.judges import JUDGES
from harness.execution.memorized import build_memorized
from harness.execution.memory import PeakMemory, give_back, meter_of
from harness.execution.redaction import shown
from harness.execution.tasks import MeasuringTask, data_of, device_of, drop_shared, forget_of
from harness.models.export import load_erased
from harness.models.loading import load_model
from harness.models.patch import save_patch
from harness.plugins import EVALUATORS
from harness.records.artifacts import Artifacts
from harness.records.journal import Journal
from harness.records.results import trial_results
from harness.specs import (
    EvaluatorSpec,
    Failed,
    Measurement,
    Point,
    Started,
    Stopped,
)
from harness.toolkit.pair import PairModel

LOG_LINES = 12
PACKAGES = (
    "lethe",
    "torch",
    "transformers",
    "numpy",
    "safetensors",
    "tokenizers",
    "sentence-transformers",
    "mauve-text",
    "faiss-cpu",
    "scikit-learn",
    "lm_eval",
    "datasets",
    "deepspeed",
    "accelerate",
    "ray",
)
Work = tuple[Number | None, tuple[EvaluatorSpec, ...]]


def run_job(job: Job, folders: Folders, watch: Watcher) -> None:
    """Do a job and journal all of it; a trial that raises becomes a `Failed` record."""
    torch.set_num_threads(max(1, job.spec.cpus))
    watch(Event(job=job.name, kind="started"))
    try:
        memorize(job, folders, watch) if job.kind == "memorize" else run_trial(job, folders, watch)
    except Exception as error:
        drop_shared()  # Whatever went wrong may have harmed it.
        fail(job, folders, watch, f"{type(error).__name__}: {error}", traceback.format_exc().splitlines())
    else:
        watch(Event(job=job.name, kind="finished"))
    finally:
        gc.collect()
        give_back()


def fail(job: Job, folders: Folders, watch: Watcher, error: str, log: Sequence[str]) -> None:
    """Journal a job that went wrong, and tell whoever watches."""
    if job.kind == "trial":
        journal = Journal(folders.results / "journal")
        journal.append(Failed(trial_id=job.spec.trial_id, error=error, log=tuple(log[-LOG_LINES:])))
    watch(Event(job=job.name, kind="failed", message=error))


def memorize(job: Job, folders: Folders, watch: Watcher) -> None:
    """Train the memorised model that the job's trial and its siblings need."""
    spec = job.spec

    def progress(message: str) -> None:
        watch(Event(job=job.name, kind="progress", message=message))

    original = load_model(spec.model).to(device_of(spec))
    build_memorized(
        spec, Artifacts(folders.artifacts, progress), original, data_of(spec, forget_of, spec.forget), progress
    )


def run_trial(job: Job, folders: Folders, watch: Watcher) -> None:
    """Erase and measure what the journal lacks of a trial."""
    spec, journal = job.spec, Journal(folders.results / "journal")
    records = journal.read(spec.trial_id)
    work = list(trial_results(spec, records).remaining)
    known = {record.point_id for record in records if isinstance(record, Point)}
    journal.append(Started(trial_id=spec.trial_id, spec=spec.to_json(), versions=versions()))
    trial = _Trial(job, folders, watch, journal, total=sum(len(evaluators) for _, evaluators in work))
    evaluators = dict(work)
    for erased, seconds in _timed(trial.erased_models([strength for strength, _ in work])):
        strength = None if spec.is_reference else erased.strength
        if strength in evaluators:
            trial.keep(erased, strength, seconds, is_new=spec.point_id(strength) not in known)
            with trial.memory.not_counting():
                trial.measure(erased, strength, evaluators.pop(strength))
        if erased.stop_reason:
            journal.append(Stopped(trial_id=spec.trial_id, strength=erased.strength, reason=erased.stop_reason))
            return
    if evaluators:
        raise TrialError(f"the method '{spec.method}' never reached {spec.strength_name} {sorted(evaluators)}.")  # type: ignore[type-var]


def _timed(models: Iterator[ErasedModel]) -> Iterator[tuple[ErasedModel, float]]:
    """Yield each erased model with the seconds spent on erasing so far, measuring left out."""
    total, began = 0.0, time.perf_counter()
    for model in models:
        total += time.perf_counter() - began
        yield model, total
        began = time.perf_counter()


class _Trial:
    """One trial's belongings, so that its steps need not pass them on."""

    def __init__(self, job: Job, folders: Folders, watch: Watcher, journal: Journal, total: int) -> None:
        self.job, self.spec, self.journal = job, job.spec, journal
        self.artifacts = Artifacts(folders.artifacts, self.warn)
        self._damage: list[str] = []
        self.watch, self.total, self.done = watch, total, 0
        self.warnings: list[str] = []
        self.workers_peak: int | None = None
        self.memory = PeakMemory(meter_of(device_of(self.spec)))

    def say(self, message: str) -> None:
        self.watch(Event(job=self.job.name, kind="progress", message=message, done=self.done, total=self.total))

    def warn(self, message: str) -> None:
        """Say what was damaged and is built again, now and in the next record."""
        self._damage.append(message)
        self.say(message)

    def _noted(self, notes: Mapping[str, Json]) -> dict[str, Json]:
        """Return a record's notes, with what was found damaged since the last record."""
        told, self._damage = self._damage, []
        return {**notes, "warnings": [*notes.get("warnings", ()), *told]} if told else dict(notes)

    def erased_models(self, strengths: Sequence[Number | None]) -> Iterator[ErasedModel]:
        """Yield the models to measure: kept ones if all were kept, else erased again."""
        spec, device = self.spec, device_of(self.spec)
        if spec.is_reference:
            yield ErasedModel(0, load_model(spec.retrained or spec.model).to(device))
            return
        wanted = tuple(strength for strength in strengths if strength is not None)
        kept = [self.artifacts.find("erased", spec.point_id(strength)) for strength in wanted]
        if wanted and all(kept):
            for strength, folder in zip(wanted, kept, strict=True):
                assert folder is not None
                yield ErasedModel(strength, load_erased(spec.model, folder).to(device))
            return
        for erasure in erase(spec, self.artifacts, wanted, self._settings(wanted), self.say):
            self.warnings, self.workers_peak = erasure.warnings, erasure.peak_memory_bytes
            yield erasure.erased

    def _settings(self, wanted: tuple[Number, ...]) -> dict[str, Json]:
        return {**self.spec.settings, self.spec.strength_name: max(wanted)} if wanted else dict(self.spec.settings)

    def keep(self, erased: ErasedModel, strength: Number | None, seconds: float, *, is_new: bool) -> None:
        """Check the erased model, journal the point, and keep the model if the sweep wants that."""
        for name, weight in erased.model.named_parameters():
            if not bool(torch.isfinite(weight).all()):
                raise TrialError(f"the erased model's {name} is not finite. Lower training.learning_rate.")
        point_id = self.spec.point_id(strength)
        if is_new:
            self.journal.append(
                Point(
                    trial_id=self.spec.trial_id,
                    point_id=point_id,
                    strength=strength,
                    erase_seconds=seconds,
                    peak_memory_bytes=self.memory.bytes if self.workers_peak is None else self.workers_peak,
                    notes=self._noted({**erased.notes, "warnings": self.warnings}),
                )
            )
        if not self.spec.is_reference and self.spec.keep_erased != "none":
            self._store(erased, point_id)

    def _store(self, erased: ErasedModel, point_id: str) -> None:
        names, original = erased.changed_blocks, self.spec.model.digest
        if names is not None:
            self.artifacts.build(
                "erased",
                point_id,
                lambda folder: save_patch(erased.model, names, original, folder / "patch.safetensors"),
            )
        elif self.spec.keep_erased == "all" and not isinstance(erased.model, PairModel):
            self.artifacts.build("erased", point_id, erased.model.save_pretrained)

    def measure(self, erased: ErasedModel, strength: Number | None, evaluators: Sequence[EvaluatorSpec]) -> None:
        """Run each evaluator on the erased model and journal what it found, one line each."""
        erased.model.eval()
        give_back()
        generations: dict[Definition, Generations] = {}
        for each in evaluators:
            self.say(f"{each.name} at {strength:g}" if strength is not None else each.name)
            began = time.perf_counter()
            evaluator: Evaluator = EVALUATORS.configure(each.name, dict(each.settings))
            found = self._evaluated(each.name, evaluator, erased.model, generations)
            self.journal.append(
                Measurement(
                    trial_id=self.spec.trial_id,
                    point_id=self.spec.point_id(strength),
                    strength=strength,
                    evaluator=each.name,
                    key=each.key,
                    definition=evaluator.definition,
                    numbers={name: float(value) for name, value in found.numbers.items()},
                    metrics=tuple(asdict(metric) for metric in evaluator.metrics),
                    samples=tuple(shown(sample, self.spec.samples) for sample in found.samples),
                    notes=self._noted(found.notes),
                    seconds=time.perf_counter() - began,
                )
            )
            give_back()
            self.done += 1
            self.watch(Event(job=self.job.name, kind="measured", message=each.name, done=self.done, total=self.total))
        JUDGES.rest()

    def _evaluated(
        self, name: str, evaluator: Evaluator, model: Model, generations: dict[Definition, Generations]
    ) -> Evaluation:
        who = f"the evaluator '{name}'"
        task = MeasuringTask(self.spec, self.artifacts, model, who, generations)
        with guarded(who, task):
            found = evaluator.evaluate(model, task)
        declared = {metric.name for metric in evaluator.metrics}
        if set(found.numbers) != declared:
            raise TrialError(f"'{name}' declares {sorted(declared)} and reported {sorted(found.numbers)}.")
        return found


@cache
def versions() -> dict[str, str]:
    """Return what a number was made with."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except ModuleNotFoundError:
            found[package] = "not installed"
    return found
