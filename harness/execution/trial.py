"""Runs one job in this process, under every executor, and checks numbers against their values for single items.

A failed trial becomes a record and an event, and the sweep goes on.
"""

import gc
import math
import socket
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.base.files import digest_of
from harness.contracts import ErasedModel, Evaluation, ItemKind, Json, Metric, MoreTexts, Number, Sequences
from harness.data import overlap, sequences
from harness.errors import StorageError, TrialError, WorkerDiedError
from harness.execution import erasing, isolate, tasks
from harness.execution.jobs import Event, Folders, Job, JobQueue, Watcher, record_failure
from harness.execution.tasks import MeasuredModel, Progress
from harness.models import adapters, loading
from harness.planning import machine
from harness.plugins import EVALUATORS, METHODS, plugin_digest
from harness.records.artifacts import Artifacts, erased_key
from harness.records.items import MetricItems, aggregated
from harness.records.journal import Measurement, Point, Started, Stopped, own_commit
from harness.records.results import trial_results
from harness.settings import EvaluatorSpec, Trial
from harness.toolkit.cached_models import PairModel

TOLERANCE = 1e-5
"""Relative tolerance of an aggregate: fp32 sums differ by less."""
# Smaller numbers are compared as of this size.
_MIN_SIZE = 1e-3

Identities = tuple[tuple[str, ...], tuple[str, ...]]
"""Ids of the items, and their clusters."""
TokenRows = tuple[tuple[int, ...], ...]


def metric_items(
    evaluation: Evaluation,
    metrics: Sequence[Metric],
    forget: Sequences,
    utility: sequences.Utility,
    more: Mapping[MoreTexts, Sequences],
) -> dict[str, MetricItems]:
    """Return the items of every measured metric that declares some; `more` has those of `holdout` and `validation`."""
    prompts = tuple(map(tuple, utility.prompts_NT.tolist()))
    prompt_identities = _identities(tuple(map(tuple, sequences.token_rows(utility))), prompts, prompts)
    identities: dict[ItemKind, Identities] = {"sequence": sequence_identities(forget), "prompt": prompt_identities}
    identities |= {role: sequence_identities(more[role]) for role in ("holdout", "validation") if role in more}
    if "holdout" in more:
        # One text in both is an item of each.
        ids, clusters = ([f"holdout-{each}" for each in part] for part in identities["holdout"])
        forget_ids, forget_clusters = identities["sequence"]
        identities["sequence_and_holdout"] = (*forget_ids, *ids), (*forget_clusters, *clusters)
    items = {}
    for metric in metrics:
        is_unknown = math.isnan(evaluation.numbers[metric.name]) and metric.name not in evaluation.per_item
        if metric.items and not is_unknown:
            items[metric.name] = _checked_items(evaluation, metric, identities)
    return items


def sequence_identities(forget: Sequences) -> Identities:
    """Return each sequence's id and cluster; related texts share a cluster."""
    rows = tuple(map(tuple, sequences.token_rows(forget)))
    return _identities(rows, rows, tuple(row[forget.prefix_tokens :] for row in rows))


@lru_cache(maxsize=8)
def _identities(texts: TokenRows, items: TokenRows, parts: TokenRows) -> Identities:
    """Return an id for each item, numbered where it repeats, and its cluster's smallest digest.

    A cluster's texts share their part or half of their n-grams.
    """
    count_by_digest: Counter[str] = Counter()
    ids = []
    for digest in map(digest_of, items):
        count_by_digest[digest] += 1
        ids.append(digest if count_by_digest[digest] == 1 else f"{digest}-{count_by_digest[digest]}")
    digests = tuple(map(digest_of, parts))
    groups = overlap.near_duplicate_groups(texts, digests, overlap.RELATED_SHARE)
    cluster_by_group = dict(sorted(zip(groups, digests, strict=True), reverse=True))
    return tuple(ids), tuple(cluster_by_group[group] for group in groups)


def _checked_items(evaluation: Evaluation, metric: Metric, identities: dict[ItemKind, Identities]) -> MetricItems:
    assert metric.items is not None
    ids, clusters = identities.get(metric.items, ((), ()))
    if metric.name in evaluation.item_ids:
        ids = clusters = tuple(evaluation.item_ids[metric.name])
    if len(set(ids)) < len(ids):
        raise TrialError(f"the items of '{metric.name}' have ids that come twice: each item needs one of its own.")
    values = _per_item(evaluation.per_item, metric, len(ids))
    is_weighted = metric.name in evaluation.item_weights
    weights = _per_item(evaluation.item_weights, metric, len(ids)) if is_weighted else np.ones(len(ids))
    number, total = evaluation.numbers[metric.name], aggregated(values, weights, metric.aggregate)
    are_close = math.isclose(number, total, rel_tol=TOLERANCE, abs_tol=TOLERANCE * _MIN_SIZE)
    if not are_close and not (math.isnan(number) and math.isnan(total)):
        mismatch = f"'{metric.name}' is {number:.9g}, and the {metric.aggregate} of its {len(ids)} items is {total:.9g}"
        raise TrialError(f"{mismatch}: the number must be the declared aggregate of the values in `per_item`.")
    return MetricItems(ids, clusters, values, weights)


def _per_item(arrays: Mapping[str, np.ndarray], metric: Metric, count: int) -> NDArray[np.float64]:
    values = np.array(arrays.get(metric.name, ()), dtype=np.float64)
    if values.shape != (count,):
        declared = f"'{metric.name}' declares items ('{metric.items}'), of which there are {count}"
        rule = "one value for each is needed, NaN where it is not known"
        raise TrialError(f"{declared}, and its array has the shape {values.shape}: {rule}.")
    return values


def run_inline(queue: JobQueue) -> None:
    """Run jobs in this process, one by one, without time limits or isolation."""
    while job := queue.next_job():
        run_job(job, queue.folders, queue.watch)


def run_job(job: Job, folders: Folders, watch: Watcher) -> None:
    """Run and journal a job.

    Raises:
        StorageError: The journal cannot be written.
        WorkerDiedError: A worker died; nothing is recorded, so that the job may be tried again.
    """
    torch.set_num_threads(max(1, job.spec.cpus))
    trail = erasing.Trail(tasks.PeakMemory(tasks.choose_device(job.spec)))
    for each in job.chain():
        _run(each, folders, watch, trail)


def _run(job: Job, folders: Folders, watch: Watcher, trail: erasing.Trail) -> None:
    watch(Event(job=job.name, kind="started"))
    message = ""

    def progress(message: str) -> None:
        watch(Event(job=job.name, kind="progress", message=message))

    artifacts = Artifacts(folders.artifacts, progress)
    try:
        if job.kind == "memorize":
            tasks.build_memorized(job.spec, artifacts, progress)
        elif job.kind == "prepare":
            tasks.prepare(job.spec, artifacts, progress)
        elif job.kind == "candidate":
            message = erasing.run_candidate(job, folders, artifacts, progress)
        else:
            run_trial(job, folders, watch, trail)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # A plugin may raise SystemExit, or worse.
        tasks.clear_shared()  # The failure may have harmed it.
        trail.stop()
        if isinstance(error, WorkerDiedError) and job.spec.engine.workers > 1:  # Else a plugin raised it.
            raise
        record_failure(job, folders, watch, *isolate.failure_for_report(error, job.spec.samples))
        if job.kind == "candidate" and isinstance(error, StorageError) and isolate.is_own(error):
            raise  # Nothing is kept of it, nor would be of the next ones.
    else:
        watch(Event(job=job.name, kind="finished", message=message, trial_id=job.trial_id))
    finally:
        gc.collect()
        tasks.release_free_memory()


def run_trial(job: Job, folders: Folders, watch: Watcher, trail: erasing.Trail) -> None:
    """Erase and measure a trial's missing points."""
    spec, journal = job.spec, folders.journal
    records = journal.read(spec.trial_id)
    evaluators = dict(trial_results(spec, records).remaining)
    codes = {record.point_id: record.code for record in records if isinstance(record, Point)}
    node, hardware = job.node or socket.gethostname(), machine.hardware(has_gpu=spec.gpus > 0)
    facts: dict[str, Any] = {"versions": machine.versions(), "hardware": hardware, "commit": own_commit()}
    journal.append(Started(trial_id=spec.trial_id, spec=spec.model_dump(mode="json"), node=node, **facts))
    trial = _RunningTrial(job, folders, watch, trail.memory, total=sum(map(len, evaluators.values())))
    # A job did so before, unless its result was lost since; now memory holds no other model than the original.
    with trail.memory.not_counting():
        tasks.prepare(spec, trial.artifacts, trial.progress)
    erase_seconds, walk_erasure = 0.0, None
    if spec.until is not None and None in evaluators:
        walked = trail.walk(spec, trial.artifacts, trial.progress)
        if job.then is None:
            trail.stop()
        walk_erasure, erase_seconds = trail.erasure, trail.seconds if trail.erasure else 0.0
        journal.append(walked)
        if not walked.reached:
            return
        evaluators = {walked.strength: evaluators[None]}
    strengths, start_time = [strength for strength in evaluators if strength is not None], time.perf_counter()
    models = yield_models(spec, trial.artifacts, strengths, trial.progress, codes)
    with closing(models if walk_erasure is None else (one for one in [walk_erasure])) as erasures:
        for erasure in erasures:
            erased = erasure.erased
            erase_seconds += time.perf_counter() - start_time
            strength = None if spec.is_reference else erased.strength
            if erased.stop_reason:  # Journaled first: where it ended is measured, even if it was not asked for.
                journal.append(Stopped(trial_id=spec.trial_id, strength=erased.strength, reason=erased.stop_reason))
                evaluators = dict(trial_results(spec, journal.read(spec.trial_id)).remaining)
            if strength in evaluators:
                trial.keep(erasure, strength, erase_seconds, is_new=spec.point_id(strength) not in codes)
                if len(evaluators) == 1:
                    erasures.close()  # An optimiser's memory is free again.
                with trail.memory.not_counting():
                    trial.measure(erased, strength, evaluators.pop(strength))
            if erased.stop_reason:
                return
            start_time = time.perf_counter()
    if evaluators:
        missing = ", ".join(f"{strength:g}" for strength in evaluators if strength is not None)
        raise TrialError(f"the method '{spec.method}' never reached {spec.strength_name} {missing}.")


def yield_models(
    spec: Trial, artifacts: Artifacts, strengths: Sequence[Number], progress: Progress, codes: Mapping[str, str]
) -> Generator[erasing.Erasure, None, None]:
    """Yield a trial's models: its reference, or stored ones of the journaled points if all are, else erased again.

    `codes` has the code's digest by journaled point: other sweeps' models have no notes here.

    Raises:
        TrialError: Other code than the journaled points' would erase again.
    """
    device = tasks.choose_device(spec)
    if spec.is_reference:
        yield erasing.Erasure(ErasedModel(0, loading.load_model(spec.retrained or spec.model).to(device)))
        return
    code = plugin_digest(METHODS.load(spec.method))
    folders = dict[Number, Any]()
    for strength in strengths:
        made = codes.get(spec.point_id(strength))
        folder = artifacts.find("erased", erased_key(spec.model_id(strength), made)) if made else None
        if made and made != code and folder is None:
            since = f"the code of '{spec.method}' has changed since {spec.strength_name} {strength:g} was made"
            raise TrialError(f"{since}, and its model was not kept: to measure more of it, raise `version`.")
        folders |= {strength: folder} if folder else {}
    if not folders or len(folders) < len(strengths):
        yield from erasing.erase(spec, artifacts, tuple(strengths), progress)
        return
    for strength, folder in folders.items():
        yield erasing.Erasure(ErasedModel(strength, adapters.load_erased(spec.model, folder).to(device)))


def run_evaluator(
    spec: Trial, evaluator_spec: EvaluatorSpec, measured: MeasuredModel, artifacts: Artifacts, progress: Progress
) -> Evaluation:
    """Return an evaluator's measurements of a model that evaluators share."""
    name, copy = evaluator_spec.name, measured.cast_to(evaluator_spec.precision)
    evaluator, task = tasks.make_evaluating_task(copy, evaluator_spec, spec, artifacts, progress)
    with isolate.guarded(task.plugin, task.changes):
        evaluation = evaluator.evaluate(copy.model, task)
    if not isinstance(evaluation, Evaluation):
        raise TrialError(f"'{name}' returned {type(evaluation).__name__}: `evaluate` must return an Evaluation.")
    if evaluation.numbers.keys() != {metric.name for metric in evaluator.metrics}:
        names = ", ".join(metric.name for metric in evaluator.metrics)
        raise TrialError(f"'{name}' did not report what it declares, {names}, and nothing else (NaN: not measured).")
    for metric in evaluator.metrics:
        value, low, high = evaluation.numbers[metric.name], metric.low - TOLERANCE, metric.high + TOLERANCE
        if not isinstance(value, (int, float, np.number)) or value < low or value > high:
            allowed = f"a number from {metric.low:g} to {metric.high:g}, or NaN"
            raise TrialError(f"'{name}' reported no {metric.name} that can be true: it must be {allowed}.")
    return evaluation


class _RunningTrial:
    def __init__(self, job: Job, folders: Folders, watch: Watcher, memory: tasks.PeakMemory, total: int) -> None:
        self.job, self.spec, self.journal = job, job.spec, folders.journal
        self.artifacts = Artifacts(folders.artifacts, self.warn)
        self.watch, self.memory, self.total, self.done = watch, memory, total, 0
        self._damage: list[str] = []

    def progress(self, message: str) -> None:
        self.watch(Event(job=self.job.name, kind="progress", message=message, done=self.done, total=self.total))

    def warn(self, message: str) -> None:
        """Show a warning, and add it to the next record."""
        self._damage.append(message)
        self.progress(message)

    def _noted(self, notes: Mapping[str, Json]) -> dict[str, Json]:
        damage, self._damage = self._damage, []
        return {**notes, "warnings": [*notes.get("warnings", ()), *damage]} if damage else dict(notes)

    def _place(self, strength: Number | None) -> dict[str, Any]:
        return {"trial_id": self.spec.trial_id, "point_id": self.spec.point_id(strength), "strength": strength}

    def keep(self, erasure: erasing.Erasure, strength: Number | None, seconds: float, *, is_new: bool) -> None:
        """Check the erased model, journal its point, and store it if the sweep says so."""
        erased, peak = erasure.erased, erasure.peak_memory_bytes
        for name, weight in erased.model.named_parameters():
            if not bool(torch.isfinite(weight).all()):
                raise TrialError(f"the erased model's {name} is not finite. Lower training.learning_rate.")
        code = "" if self.spec.is_reference else plugin_digest(METHODS.load(self.spec.method))
        if is_new:
            fields: dict[str, Any] = {"peak_memory_bytes": self.memory.bytes if peak is None else peak, "code": code}
            fields["notes"] = self._noted({**erased.notes, "warnings": erasure.warnings})
            fields |= {"erase_seconds": seconds, "worker_nodes": erasure.worker_nodes}
            fields["is_pair"] = isinstance(erased.model, PairModel)
            self.journal.append(Point(**self._place(strength), **fields))
        if self.spec.is_reference or self.spec.keep_erased == "none":
            return
        is_small = erased.changed_blocks is not None or erasure.adapter is not None
        if is_small or (self.spec.keep_erased == "all" and not isinstance(erased.model, PairModel)):
            write = partial(erasing.write_erased, erased, self.spec.model, adapter=erasure.adapter)
            self.artifacts.build("erased", erased_key(self.spec.model_id(strength), code), write)

    def measure(self, erased: ErasedModel, strength: Number | None, evaluators: Sequence[EvaluatorSpec]) -> None:
        """Run the evaluators on the erased model and journal each result."""
        erased.model.eval()
        tasks.release_free_memory()
        measured, has_counted = MeasuredModel(erased.model), False
        for spec in evaluators:
            self.progress(f"{spec.name} at {strength:g}" if strength is not None else spec.name)
            start_time = time.perf_counter()
            evaluator = EVALUATORS.configure(spec.name, dict(spec.settings))
            evaluation = run_evaluator(self.spec, spec, measured, self.artifacts, self.progress)
            notes = dict(evaluation.notes)
            if evaluation.curves:
                notes["curves"] = [asdict(curve) for curve in evaluation.curves]
            if spec.precision != "fp32" and not has_counted:
                notes["changed_choices"] = measured.changed_choices(spec.precision, tasks.measured_set(self.spec))
                has_counted = True
            texts = tasks.measured_set(self.spec), tasks.utility_texts(self.spec)
            runs = tasks.forget_runs(self.spec) if evaluation.samples else set()
            samples = [isolate.sample_for_report(sample, self.spec.samples, runs) for sample in evaluation.samples]
            self.journal.append_measurement(
                Measurement(
                    **self._place(strength),
                    evaluator=spec.name,
                    key=spec.key,
                    definition=evaluator.definition,
                    numbers={name: float(value) for name, value in evaluation.numbers.items()},
                    metrics=tuple(asdict(metric) for metric in evaluator.metrics),
                    samples=tuple(samples),
                    notes=self._noted(notes),
                    seconds=time.perf_counter() - start_time,
                    code=plugin_digest(type(evaluator)),
                ),
                metric_items(evaluation, evaluator.metrics, *texts, tasks.more_texts(self.spec, spec.texts)),
            )
            tasks.release_free_memory()
            self.done += 1
            self.progress(spec.name)
        tasks.JUDGES.make_room()
