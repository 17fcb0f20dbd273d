"""Erasing to a level of MA: walked trials and candidates of a search."""

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from harness.base import files, messages
from harness.contracts import Checkpoint, Json, Model, Number, Sequences, Strength
from harness.errors import StorageError, TrialError
from harness.execution.job import Folders, Job
from harness.execution.redact import failure_for_report, is_own
from harness.execution.trial import erasing, inputs, tasks
from harness.models.loading import load_model
from harness.plugins import METHODS
from harness.records import record, results
from harness.records.artifacts import Artifacts
from harness.settings import MIN_APART, PROBED_ERASURE, PROBED_UTILITY, UNSEEN, Level, Study, Trial, replace
from harness.toolkit import decoding, scoring

Erasures = Generator[erasing.Erasure, None, None]
Models = Callable[[Sequence[Number]], Generator[results.Probe, None, None]]
VERSION = 1
"""Raised when probes' numbers change."""
TOLERANCE = MIN_APART / 2
"""Largest distance of MA from its level."""
MAX_HALVINGS = 12
"""Erasures between the ends of a dial that is not cumulative."""
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
    ma = math.nan if np.isnan(ma_N).all() else float(np.nanmean(ma_N))
    return {PROBED_ERASURE: ma, PROBED_UTILITY: perplexity}


def shared_probe(spec: Trial, checkpoint: Checkpoint, texts: Sequences, artifacts: Artifacts) -> dict[str, float]:
    """Return the probe of a model that is not erased, shared by all trials."""
    validation = inputs.validation_set(spec)

    def make() -> dict[str, np.ndarray]:
        numbers = probe(load_model(checkpoint).to(inputs.choose_device(spec)), texts, validation)
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
        checkpoint, texts = spec.model, inputs.more_texts(spec, {"holdout": spec.unseen})["holdout"]
    assert checkpoint is not None
    return shared_probe(spec, checkpoint, texts, artifacts)[PROBED_ERASURE]


def walk(
    spec: Trial, artifacts: Artifacts, memory: tasks.PeakMemory, progress: Callable[[str], None]
) -> tuple[record.Walked, erasing.Erasure | None, float]:
    """Return the record of a walk to a level, the model at its end, and the seconds of erasing, without probing."""
    assert spec.walk_to is not None
    texts, validation, dial = inputs.measured_set(spec), inputs.validation_set(spec), METHODS.load(spec.method).strength
    with memory.not_counting():
        original = shared_probe(spec, spec.model, texts, artifacts)
        level = _level_below(spec, original, texts, artifacts)
    erasure: erasing.Erasure | None = None
    seconds = 0.0
    erase = partial(erasing.erase, spec, artifacts, progress=progress)
    accuracies = [math.inf, original[PROBED_ERASURE]]

    def is_near() -> bool:  # Writing takes longer than a step. An epoch rarely moves MA four times as far as the last.
        return accuracies[-1] - 4 * (accuracies[-2] - accuracies[-1]) <= level + TOLERANCE

    def models_at(strengths: Sequence[Number]) -> Generator[results.Probe, None, None]:
        nonlocal erasure, seconds
        start_time = time.perf_counter()
        with closing(_yield_walked(spec, erase, strengths, folder, is_near)) as erasures:
            for erasure in erasures:
                erased, seconds = erasure.erased, seconds + time.perf_counter() - start_time
                with memory.not_counting():
                    probed = probe(erased.model, texts, validation)
                accuracies.append(probed[PROBED_ERASURE])
                numbers: dict[str, Json] = {"strength": erased.strength, **probed}
                progress(f"{spec.until}: {numbers[PROBED_ERASURE]:.3f} at {dial.field} {erased.strength:g}")
                if "optimizer_steps" in erased.notes:
                    numbers["steps"] = erased.notes["optimizer_steps"]
                if erased.stop_reason:
                    numbers["stop"] = erased.stop_reason
                yield numbers
                start_time = time.perf_counter()

    start = {"strength": dial.off, **original}
    with artifacts.scratch_dir("walks", spec.trial_id) as folder:
        probes, reason = find_level(dial, spec.walk_to, level, start, models_at, spec.steps_per_epoch)
    valid = [one for one in probes if not math.isnan(one[PROBED_ERASURE])]
    nearest = min(valid, key=lambda one: abs(one[PROBED_ERASURE] - level), default=start)
    walked = record.Walked(
        trial_id=spec.trial_id,
        level=level,
        strength=None if reason else probes[-1]["strength"],
        reached=not reason,
        nearest={name: nearest[name] for name in ("strength", PROBED_ERASURE, PROBED_UTILITY)},
        probes=tuple(probes),
        reason=reason,
    )
    return walked, erasure, seconds


def _level_below(spec: Trial, original: Mapping[str, float], texts: Sequences, artifacts: Artifacts) -> float:
    assert spec.until is not None
    level = resolve_level(spec, spec.until, texts, artifacts)
    if not level < original[PROBED_ERASURE]:
        has = f"{spec.until} is {level:.3f}, and the original has {original[PROBED_ERASURE]:.3f} already"
        raise TrialError(f"{has}: nothing is left to be erased. Name a lower level (until).")
    for other in spec.levels[: spec.levels.index(spec.until)] if spec.until in spec.levels else ():
        number = resolve_level(spec, other, texts, artifacts)
        if abs(number - level) < MIN_APART:
            near = f"{spec.until} is {level:.3f} and {other} is {number:.3f}, closer than {MIN_APART:g}"
            raise TrialError(f"{near}, so both may be one model. Remove one of the two levels (until).")
    return level


def _yield_walked(
    spec: Trial, erase: Callable[..., Erasures], strengths: Sequence[Number], folder: Path, is_near: Callable[[], bool]
) -> Erasures:
    """Yield the models at these strengths; near the level the first pass keeps those within its epoch in `folder`."""
    kept_folders = [folder / str(strength) for strength in strengths]
    if all(path.is_dir() for path in kept_folders):
        yield from (erasing.read_erasure(spec, path) for path in kept_folders)
        return
    within: set[Number] = set()
    if strengths[-1] == spec.walk_to and METHODS.load(spec.method).strength.divisible and spec.engine.workers == 1:
        within = {one for one in _strengths_within(spec.walk_to, spec.steps_per_epoch) if one not in strengths}
    with closing(erase(tuple(sorted({*strengths, *within})))) as erasures:
        for erasure in erasures:
            erased = erasure.erased
            if erased.strength not in within:
                yield erasure
                for path in folder.iterdir():
                    files.remove(path)
            elif is_near() and MAX_KEPT * sum(each.nbytes for each in erased.model.parameters()) <= MAX_KEPT_BYTES:
                erasing.write_erasure(erasure, spec, folder / str(erased.strength))


def _strengths_within(last: Number, steps: int) -> list[Number]:
    ends: list[Number] = list(range(math.ceil(last) + 1))
    for _ in range(2):
        between = [_steps_between({"strength": one}, {"strength": other}, steps) for one, other in pairwise(ends)]
        ends = sorted({*ends, *chain.from_iterable(between)})
    return [strength for strength in ends if 0 < strength < last]


def find_level(
    dial: Strength, walk_to: Number, level: float, original: results.Probe, models_at: Models, steps_per_epoch: int
) -> tuple[list[results.Probe], str]:
    """Return the probes of a walk and the reason why it missed the level; '' if the last probe is at it.

    A cumulative dial rises by whole steps until MA is at or below the level. A divisible one is then refined within
    that epoch, in quarters and their quarters, down to one optimiser step. Another dial is bisected, first where the
    line between both ends meets the level. `models_at` yields probes at rising values, and is closed after the last.
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
        return probes, str(lower.get("stop", f"the dial ends at {dial.field} {walk_to:g}"))
    for turn in range(MAX_HALVINGS):
        if abs(upper[PROBED_ERASURE] - level) <= TOLERANCE:
            return probes, ""
        if dial.cumulative:
            between = _steps_between(lower, upper, steps_per_epoch) if dial.divisible else []
        else:
            between = _value_between(lower, upper, level, is_line=turn % 2 == 0)
        if not between:
            break
        lower, nearer = first_past(between, lower)
        upper = nearer or upper
    if math.isnan(upper[PROBED_ERASURE]):
        return probes, f"the model collapses at {dial.field} {upper['strength']:g}: its perplexity is no number"
    ends = [f"{one[PROBED_ERASURE]:.2f} at {dial.field} {one['strength']:g}" for one in (lower, upper)]
    return probes, f"MA goes from {ends[0]} to {ends[1]} at once"


def _steps_between(lower: results.Probe, upper: results.Probe, steps_per_epoch: int) -> list[Number]:
    start = math.ceil(upper["strength"]) - 1
    share = upper["strength"] - start
    steps = max(1, round(upper["steps"] / share)) if "steps" in upper else steps_per_epoch
    first, last = (round((one["strength"] - start) * steps) for one in (lower, upper))
    quarters = {first + round((last - first) * quarter / 4) for quarter in (1, 2, 3)}
    return [round(start + step / steps, 6) for step in sorted(quarters - {first, last})]


def _value_between(lower: results.Probe, upper: results.Probe, level: float, *, is_line: bool) -> list[Number]:
    low, high = lower["strength"], upper["strength"]
    share = (lower[PROBED_ERASURE] - level) / (lower[PROBED_ERASURE] - upper[PROBED_ERASURE]) if is_line else 0.5
    share = 0.5 if math.isnan(share) else min(max(share, 0.1), 0.9)
    value = low + (high - low) * share
    value = round(value) if isinstance(high, int) else float(f"{value:.4g}")
    return [value] if low < value < high else []


def run_candidate(job: Job, folders: Folders, artifacts: Artifacts, progress: Callable[[str], None]) -> str:
    """Try a candidate, journal it, and return a sentence about it; probes before an exception count."""
    assert job.candidate is not None
    findings: dict[str, Any] = {"original": {}, "targets": {}, "probes": []}
    start_time = time.perf_counter()
    try:
        end = _erase_and_probe(job.candidate.study, job.spec, artifacts, findings, progress)
    except BaseException as error:  # A plugin may raise anything at untried settings.
        # No fault of its settings: the next run tries it again.
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, StorageError) and is_own(error)):
            raise
        inputs.clear_shared()  # It may have been harmed.
        end, _ = failure_for_report(error, job.spec.samples)
    candidate = job.candidate.record(end, time.perf_counter() - start_time, **findings)
    folders.journal.append(candidate)
    summary = f"{'failed: ' if candidate.error else ''}{messages.reason(end)}"
    for last in candidate.probes[-1:]:
        numbers = ", ".join(f"{name} {last[name]:.4g}" for name in (PROBED_ERASURE, PROBED_UTILITY))
        summary = f"{numbers} at {job.spec.strength_name} {last['strength']:g}; {summary}"
    return summary


def _erase_and_probe(
    study: Study, spec: Trial, artifacts: Artifacts, findings: dict[str, Any], progress: Callable[[str], None]
) -> str:
    """Add to `findings`, and return the reason of the end."""
    selection, validation = inputs.forget_set(replace(study.trial, forget=study.selection)), inputs.validation_set(spec)
    findings["original"] = shared_probe(spec, spec.model, selection, artifacts)
    findings["targets"] = {level.key: resolve_level(spec, level, selection, artifacts) for level in study.targets}
    with closing(erasing.erase(spec, artifacts, spec.strengths, progress)) as erasures:
        for erasure in erasures:
            erased = erasure.erased
            numbers = probe(erased.model, selection, validation)
            # The training loop notes them; a loop of a plugin's own has the strength, if that counts epochs.
            epochs = erased.strength if study.is_cumulative else 0
            steps = int(erased.notes.get("total_steps", epochs * spec.steps_per_epoch)) if study.is_trained else 0
            findings["probes"].append({"strength": erased.strength, **numbers, "optimiser_steps": steps})
            if results.is_outside(study, findings["original"], numbers):
                return record.COLLAPSED
            if all(numbers[PROBED_ERASURE] <= level for level in findings["targets"].values()):
                return record.PAST
            if erased.stop_reason:
                return record.STOPPED
    return record.WHOLE
