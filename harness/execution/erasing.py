"""Erasing, in the trial's process or on its engine's workers, and walks of a dial to a level of MA."""

import json
import math
import shutil
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.base import files, messages
from harness.contracts import Checkpoint, ErasedModel, Model, Number, Sequences, Strength
from harness.errors import StorageError, TrialError
from harness.execution import isolate, tasks
from harness.execution.jobs import Folders, Job
from harness.models import adapters, loading
from harness.plugins import METHODS, plugin_digest
from harness.records import journal, results
from harness.records.artifacts import Artifacts
from harness.settings import MIN_APART, PROBED_ERASURE, PROBED_UTILITY, UNSEEN, Level, Study, Trial, replace
from harness.toolkit import decoding, scoring

FACTS = "erased.json"
"""File of the notes on an erased model next to its weights."""


@dataclass(frozen=True)
class Erasure:
    """An erased model and its making."""

    erased: ErasedModel
    warnings: list[str] = field(default_factory=list)
    peak_memory_bytes: int | None = None
    """Largest peak of the workers; None without workers."""
    adapter: adapters.Adapter | None = None
    """The adapter that LoRA trained and merged, if any."""
    worker_nodes: tuple[str, ...] = ()
    """Empty without workers."""


def erase(
    spec: Trial, artifacts: Artifacts, strengths: tuple[Number, ...], progress: tasks.Progress
) -> Generator[Erasure, None, None]:
    """Yield the erasures at these strengths; close the generator to stop early.

    Only a method that trains runs on workers, which write plain weights.
    """
    trains = METHODS.load(spec.method).searched_training and spec.reference != "memorized_model"
    if spec.engine.workers == 1 or not trains:
        task = tasks.ErasingTask(spec, artifacts, strengths, progress)
        with closing(_erased(spec, task)) as models:
            for erased in models:
                yield Erasure(erased, _warnings(task, erased), adapter=adapters.merged_adapter(erased.model))
        return
    from harness.execution.ray.workers import run_on_workers

    with artifacts.scratch_dir("workers", spec.trial_id) as folder:
        data = {"artifacts": str(artifacts.root), "wanted": list(strengths)}
        nodes = run_on_workers("harness.execution.erasing:erase_on_worker", spec, data, folder, progress)
        for checkpoint in sorted(folder.iterdir()):
            yield read_erasure(spec, checkpoint, nodes)


def _erased(spec: Trial, task: tasks.ErasingTask) -> Generator[ErasedModel, None, None]:
    dial, settings = METHODS.load(spec.method).strength, dict(spec.settings)
    if task.strengths:
        last = max(task.strengths)
        settings[dial.field] = math.ceil(last) if dial.divisible else last
    method = METHODS.configure(spec.method, settings)
    return isolate.guarded_models(f"the method '{spec.method}'", lambda: method.erase(task), task.changes)


def erase_on_worker(spec: Trial, data: Mapping[str, Any], folder: Path, progress: tasks.Progress) -> None:
    """Erase on one of several workers; the first writes each model and its notes."""
    memory = tasks.PeakMemory(tasks.choose_device(spec))
    task = tasks.ErasingTask(spec, Artifacts(Path(data["artifacts"])), tuple(data["wanted"]), progress)
    for number, erased in enumerate(_erased(spec, task)):
        peak = memory.bytes
        if peak is not None:
            largest = torch.tensor(peak, device=tasks.choose_device(spec))
            torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX)
            peak = int(largest)
        if torch.distributed.get_rank() == 0:
            write_erasure(Erasure(erased, _warnings(task, erased), peak), spec, folder / f"{number:04d}")


def write_erasure(erasure: Erasure, spec: Trial, folder: Path) -> None:
    """Write an erased model with its notes for `read_erasure`."""
    erased = erasure.erased
    write_erased(erased, spec.model, folder)
    facts = {name: getattr(erased, name) for name in ("strength", "changed_blocks", "stop_reason")}
    facts |= {"notes": dict(erased.notes), "warnings": erasure.warnings, "peak_memory_bytes": erasure.peak_memory_bytes}
    files.write_whole(folder / FACTS, json.dumps(facts), "what is known of an erased model")


def read_erasure(spec: Trial, folder: Path, nodes: tuple[str, ...] = ()) -> Erasure:
    """Return `write_erasure`'s erasure."""
    facts = json.loads((folder / FACTS).read_text())
    blocks, warnings, peak = (facts.pop(key) for key in ("changed_blocks", "warnings", "peak_memory_bytes"))
    model = adapters.load_erased(spec.model, folder).to(tasks.choose_device(spec))
    is_adapter = (folder / adapters.ADAPTER_FILE).is_file()
    adapter = adapters.read_adapter(folder, spec.model.digest) if is_adapter else None
    erased = ErasedModel(model=model, changed_blocks=blocks if blocks is None else tuple(blocks), **facts)
    return Erasure(erased, warnings, peak, adapter, nodes)


def write_erased(
    erased: ErasedModel, original: Checkpoint, folder: Path, adapter: adapters.Adapter | None = None
) -> None:
    """Write an erased model for `load_erased`: changed blocks, an adapter, or all weights.

    Blocks or adapter must give the same bits when loaded over the original.
    """
    folder.mkdir(parents=True, exist_ok=True)
    adapter = adapter or adapters.merged_adapter(erased.model)
    if erased.changed_blocks is not None:
        adapters.save_patch(erased.model, erased.changed_blocks, original.digest, folder / adapters.PATCH_FILE)
    elif adapter is not None:
        adapters.save_adapter(adapter, original, folder)
    if any(folder.iterdir()):
        if adapters.has_same_weights(adapters.load_erased(original, folder), erased.model):
            return
        shutil.rmtree(folder)
    loading.save_model(erased.model, folder)


def _warnings(task: tasks.ErasingTask, erased: ErasedModel) -> list[str]:
    return [*task.warnings, *erased.notes.get("warnings", [])]


Erasures = Generator[Erasure, None, None]
Probes = Generator[results.Probe, None, None]
VERSION = 1
"""Raised when probes' numbers change."""
TOLERANCE = MIN_APART / 2
"""Largest distance of MA from its level."""
MAX_HALVINGS = 30
"""Erasures between the ends of a dial that is not cumulative."""
# Later ones are by logarithm, since a range may have several orders of magnitude.
LINEAR_HALVINGS = 12
MAX_KEPT = 15
"""Models within an epoch that a walk keeps until the next one."""
MAX_KEPT_BYTES = 16 * 2**30
"""A walk of larger models repeats the training instead."""


def probe(model: Model, texts: Sequences, validation: Sequences) -> dict[str, float]:
    """Return `ma` on the texts, as under `exact`, and `perplexity` on the validation texts; both are NaN if that is."""
    perplexity = scoring.own_perplexity(model, validation)
    if math.isnan(perplexity):
        return {PROBED_ERASURE: math.nan, PROBED_UTILITY: perplexity}
    predicted_NT = decoding.greedy_continuations(model, texts, [[]] * len(texts)).predicted_NT
    ma_N = scoring.accuracies(texts, predicted_NT, first=texts.prefix_tokens, left_out=1)
    return {PROBED_ERASURE: math.nan if np.isnan(ma_N).all() else float(np.nanmean(ma_N)), PROBED_UTILITY: perplexity}


def shared_probe(spec: Trial, checkpoint: Checkpoint, texts: Sequences, artifacts: Artifacts) -> dict[str, float]:
    """Return the probe of a model that is not erased, shared by all trials."""
    validation = tasks.validation_set(spec)

    def make() -> dict[str, np.ndarray]:
        numbers = probe(loading.load_model(checkpoint).to(tasks.choose_device(spec)), texts, validation)
        return {name: np.array(value) for name, value in numbers.items()}

    key = "probe", str(VERSION), checkpoint.digest, texts.digest, validation.digest
    return {name: float(value) for name, value in artifacts.arrays(key, make).items()}


def resolve_level(spec: Trial, level: Level, texts: Sequences, artifacts: Artifacts) -> float:
    """Return a level's MA: a number, the original's on the holdout, or the retrained model's on the texts."""
    if not isinstance(level.at, str):
        return float(level.at)
    checkpoint = spec.retrained
    if level.at == UNSEEN:
        assert spec.unseen is not None
        checkpoint, texts = spec.model, tasks.more_texts(spec, {"holdout": spec.unseen})["holdout"]
    assert checkpoint is not None
    return shared_probe(spec, checkpoint, texts, artifacts)[PROBED_ERASURE]


class Trail:
    """The first pass over a dial; a walk of the same erasure to the next level goes on where the last one ended."""

    def __init__(self, memory: tasks.PeakMemory) -> None:
        self.memory = memory
        self.erasure: Erasure | None = None
        """The latest model; None if it was passed."""
        self.seconds = 0.0
        """Spent on erasing it, without probes."""
        self._passed: list[tuple[results.Probe, float]] = []
        self._last: Erasure | None = None
        self._ahead: Probes | None = None
        self._open = ExitStack()

    def walk(self, spec: Trial, artifacts: Artifacts, progress: tasks.Progress) -> journal.Walked:
        """Return the record of a walk to a level, whose model is then the `erasure`."""
        assert spec.walk_to is not None
        self._spec, self._artifacts, self._progress = spec, artifacts, progress
        texts, dial, start_time = tasks.measured_set(spec), METHODS.load(spec.method).strength, time.perf_counter()
        with self.memory.not_counting():
            self._start = {"strength": dial.off, **shared_probe(spec, spec.model, texts, artifacts)}
            self._level = _level_below(spec, self._start, texts, artifacts)
        probes, reason = find_level(dial, spec.walk_to, self._level, self._start, self._models_at, spec.steps_per_epoch)
        valid = [one for one in probes if not math.isnan(one[PROBED_ERASURE])]
        nearest = min(valid, key=lambda one: abs(one[PROBED_ERASURE] - self._level), default=self._start)
        return journal.Walked(
            trial_id=spec.trial_id,
            level=self._level,
            strength=None if reason else probes[-1]["strength"],
            reached=not reason,
            nearest={name: nearest[name] for name in ("strength", PROBED_ERASURE, PROBED_UTILITY)},
            probes=tuple(probes),
            reason=reason,
            seconds=time.perf_counter() - start_time,
            code=plugin_digest(METHODS.load(spec.method)),
        )

    def stop(self) -> None:
        """Drop the model in training: a further step begins with the original."""
        self._open.close()
        self._ahead = self._last = None

    def _models_at(self, strengths: Sequence[Number]) -> Probes:
        if strengths[-1] != self._spec.walk_to:
            yield from self._probed(self._refined(strengths), self.seconds)
            return
        for passed, seconds in self._passed:
            self.erasure, self.seconds = self._last if passed is self._passed[-1][0] else None, seconds
            yield passed
        ahead = strengths[len(self._passed) :]
        if not ahead or any("stop" in passed for passed, _ in self._passed):
            return
        if self._ahead is None:
            # One name for all levels: after a kill any of them may be the first that is left.
            erasure = files.digest_of([self._spec.model_dump(mode="json", exclude={"trial_id", "until", "levels"})])
            folder = self._open.enter_context(self._artifacts.scratch_dir("walks", erasure))
            self._ahead = self._open.enter_context(closing(self._probed(self._first_pass(ahead, folder), 0.0)))
        for new in self._ahead:
            self._last = self.erasure
            self._passed.append((new, self.seconds))
            yield new

    def _probed(self, erasures: Erasures, seconds: float) -> Probes:
        start_time, texts = time.perf_counter(), tasks.measured_set(self._spec)
        with closing(erasures):
            for erasure in erasures:
                seconds += time.perf_counter() - start_time
                self.erasure, self.seconds, erased, spec = erasure, seconds, erasure.erased, self._spec
                with self.memory.not_counting():
                    probed = probe(erased.model, texts, tasks.validation_set(spec))
                numbers: dict[str, Any] = {"strength": erased.strength, **probed}
                at = f"at {spec.strength_name} {erased.strength:g}"
                self._progress(f"{spec.until}: {numbers[PROBED_ERASURE]:.3f} {at}")
                if "optimizer_steps" in erased.notes:
                    numbers["steps"] = erased.notes["optimizer_steps"]
                if erased.stop_reason:
                    numbers["stop"] = erased.stop_reason
                yield numbers
                start_time = time.perf_counter()

    def _first_pass(self, strengths: Sequence[Number], folder: Path) -> Erasures:
        # Near the level those within the epoch are kept until the next one.
        spec, self._folder = self._spec, folder
        within: set[Number] = set()
        if METHODS.load(spec.method).strength.divisible and spec.engine.workers == 1:
            between = _strengths_within(strengths[-1], spec.steps_per_epoch)
            within = {one for one in between if one > math.ceil(strengths[0]) - 1 and one not in strengths}
        with closing(self._erase({*strengths, *within})) as erasures:
            for erasure in erasures:
                erased = erasure.erased
                if erased.strength not in within:
                    yield erasure
                    for path in folder.iterdir():
                        files.remove(path)
                elif self._is_near(MAX_KEPT * sum(each.nbytes for each in erased.model.parameters())):
                    write_erasure(erasure, spec, folder / str(erased.strength))

    def _is_near(self, kept_bytes: int) -> bool:
        # The next epoch may pass the level: one rarely moves MA four times as far as the last.
        probes = [self._start, *(passed for passed, _ in self._passed)]
        before, last = [math.inf, *(each[PROBED_ERASURE] for each in probes)][-2:]
        return kept_bytes <= MAX_KEPT_BYTES and bool(last - 4 * (before - last) <= self._level + TOLERANCE)

    def _refined(self, strengths: Sequence[Number]) -> Erasures:
        kept_folders = [self._folder / str(strength) for strength in strengths] if self._ahead else []
        if kept_folders and all(path.is_dir() for path in kept_folders):
            return (read_erasure(self._spec, path) for path in kept_folders)
        self.stop()
        return self._erase(strengths)

    def _erase(self, strengths: Collection[Number]) -> Erasures:
        # Progress is that of the walk under way, which may not be the first.
        return erase(self._spec, self._artifacts, tuple(sorted(strengths)), lambda text: self._progress(text))


def _level_below(spec: Trial, original: Mapping[str, float], texts: Sequences, artifacts: Artifacts) -> float:
    assert spec.until is not None
    level = resolve_level(spec, spec.until, texts, artifacts)
    if not level < original[PROBED_ERASURE]:
        has = f"{spec.until} is {level:.3f}, and the original has {original[PROBED_ERASURE]:.3f} already"
        raise TrialError(f"{has}: nothing is left to be erased. Name a lower level (until).")
    for other in spec.levels[: spec.levels.index(spec.until)]:
        number = resolve_level(spec, other, texts, artifacts)
        if abs(number - level) < MIN_APART:
            near = f"{spec.until} is {level:.3f} and {other} is {number:.3f}, closer than {MIN_APART:g}"
            raise TrialError(f"{near}, so both may be one model. Remove one of the two levels (until).")
    return level


def _strengths_within(last: Number, steps: int) -> list[Number]:
    ends: list[Number] = list(range(math.ceil(last) + 1))
    for _ in range(2):
        between = [_steps_between({"strength": one}, {"strength": other}, steps) for one, other in pairwise(ends)]
        ends = sorted({*ends, *chain.from_iterable(between)})
    return [strength for strength in ends if 0 < strength < last]


def find_level(
    dial: Strength,
    walk_to: Number,
    level: float,
    original: results.Probe,
    models_at: Callable[[Sequence[Number]], Probes],
    steps_per_epoch: int,
) -> tuple[list[results.Probe], str]:
    """Return the probes of a walk and the reason why it missed the level; '' if the last probe is at it.

    A cumulative dial rises by whole steps until MA is at or below the level. A divisible one is then refined within
    that epoch, in quarters and their quarters, down to one optimiser step. Another dial is bisected, first where the
    line between both ends meets the level, and after twelve turns by logarithm. `models_at` yields probes at rising
    values, and is closed after the last.
    """
    probes: list[results.Probe] = []

    def first_past(strengths: Sequence[Number], lower: results.Probe) -> tuple[results.Probe, results.Probe | None]:
        with closing(models_at(strengths)) as models:
            for point in models:
                probes.append(point)
                if not point[PROBED_ERASURE] > level + TOLERANCE:
                    return lower, point
                lower = point
        return lower, None

    whole = [*range(1, math.floor(walk_to) + 1)] if dial.cumulative else []
    lower, upper = first_past([*whole, walk_to] if walk_to not in whole else whole, original)
    if upper is None:
        return probes, str(lower.get("stop", f"the walk ends at {dial.field} {walk_to:g}"))
    for turn in range(MAX_HALVINGS):
        if abs(upper[PROBED_ERASURE] - level) <= TOLERANCE:
            break
        if dial.divisible:
            between = _steps_between(lower, upper, steps_per_epoch)
        else:
            between = _value_between(dial, lower, upper, level, turn)
        if not between:
            break
        lower, nearer = first_past(between, lower)
        upper = nearer or upper
    if abs(upper[PROBED_ERASURE] - level) <= TOLERANCE:
        return probes, ""
    if math.isnan(upper[PROBED_ERASURE]):
        return probes, f"the model collapses at {dial.field} {upper['strength']:.4g}: its perplexity is no number"
    ends = [f"{one[PROBED_ERASURE]:.2f} at {dial.field} {one['strength']:.4g}" for one in (lower, upper)]
    return probes, f"MA goes from {ends[0]} to {ends[1]} at once"


def _steps_between(lower: results.Probe, upper: results.Probe, steps_per_epoch: int) -> list[Number]:
    start = math.ceil(upper["strength"]) - 1
    steps = max(1, round(upper["steps"] / (upper["strength"] - start))) if "steps" in upper else steps_per_epoch
    first, last = (round((one["strength"] - start) * steps) for one in (lower, upper))
    quarters = {first + round((last - first) * quarter / 4) for quarter in (1, 2, 3)}
    return [round(start + step / steps, 6) for step in sorted(quarters - {first, last})]


def _value_between(dial: Strength, lower: results.Probe, upper: results.Probe, level: float, turn: int) -> list[Number]:
    low, high = lower["strength"], upper["strength"]
    fall = lower[PROBED_ERASURE] - upper[PROBED_ERASURE]
    share = (lower[PROBED_ERASURE] - level) / fall if turn % 2 == 0 else 0.5
    share = 0.5 if math.isnan(share) else min(max(share, 0.1), 0.9)
    value = low + (high - low) * share
    if turn >= LINEAR_HALVINGS:
        value = math.sqrt(low * high) if low > 0 else high / 10
    value = round(value) if isinstance(dial.off if dial.cumulative else high, int) else float(f"{value:.4g}")
    return [value] if low < value < high else []


def run_candidate(job: Job, folders: Folders, artifacts: Artifacts, progress: tasks.Progress) -> str:
    """Try a candidate, journal it, and return a sentence about it; probes before an exception count."""
    assert job.candidate is not None
    findings: dict[str, Any] = {"original": {}, "targets": {}, "probes": []}
    start_time = time.perf_counter()
    try:
        end = _erase_and_probe(job.candidate.study, job.spec, artifacts, findings, progress)
    except BaseException as error:  # A plugin may raise anything at untried settings.
        # No fault of its settings: the next run tries it again.
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, StorageError) and isolate.is_own(error)):
            raise
        tasks.clear_shared()  # It may have been harmed.
        end, _ = isolate.failure_for_report(error, job.spec.samples)
    candidate = job.candidate.record(end, time.perf_counter() - start_time, **findings)
    folders.journal.append(candidate)
    summary = f"{'failed: ' if candidate.error else ''}{messages.reason(end)}"
    for last in candidate.probes[-1:]:
        numbers = ", ".join(f"{name} {last[name]:.4g}" for name in (PROBED_ERASURE, PROBED_UTILITY))
        summary = f"{numbers} at {job.spec.strength_name} {last['strength']:g}; {summary}"
    return summary


def _erase_and_probe(
    study: Study, spec: Trial, artifacts: Artifacts, findings: dict[str, Any], progress: tasks.Progress
) -> str:
    selection, validation = tasks.forget_set(replace(study.trial, forget=study.selection)), tasks.validation_set(spec)
    findings["original"] = shared_probe(spec, spec.model, selection, artifacts)
    findings["targets"] = {level.key: resolve_level(spec, level, selection, artifacts) for level in study.targets}
    with closing(erase(spec, artifacts, spec.strengths, progress)) as erasures:
        for erasure in erasures:
            erased = erasure.erased
            numbers = probe(erased.model, selection, validation)
            # The training loop notes them; a loop of a plugin's own has the strength, if that counts epochs.
            epochs = erased.strength if study.is_cumulative else 0
            steps = int(erased.notes.get("total_steps", epochs * spec.steps_per_epoch)) if study.is_trained else 0
            findings["probes"].append({"strength": erased.strength, **numbers, "optimiser_steps": steps})
            if results.is_outside(study, findings["original"], numbers):
                return journal.COLLAPSED
            if all(numbers[PROBED_ERASURE] <= level for level in findings["targets"].values()):
                return journal.PAST
            if erased.stop_reason:
                return journal.STOPPED
    return journal.WHOLE
