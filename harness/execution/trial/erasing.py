"""Erasing, in the trial's process or on its engine's workers."""

import json
import math
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from harness import contracts, plugins
from harness.base.files import write_whole
from harness.execution.isolate import guarded_models
from harness.execution.trial import inputs, tasks
from harness.models import adapters, loading
from harness.records.artifacts import Artifacts
from harness.settings import Trial

FACTS = "erased.json"
"""File of the notes on an erased model next to its weights."""


@dataclass(frozen=True)
class Erasure:
    """An erased model and its making."""

    erased: contracts.ErasedModel
    warnings: list[str] = field(default_factory=list)
    peak_memory_bytes: int | None = None
    """Largest peak of the workers; None without workers."""
    adapter: adapters.Adapter | None = None
    """The adapter that LoRA trained and merged, if any."""
    worker_nodes: tuple[str, ...] = ()
    """Empty without workers."""


def erase(
    spec: Trial, artifacts: Artifacts, strengths: tuple[contracts.Number, ...], progress: Callable[[str], None]
) -> Generator[Erasure, None, None]:
    """Yield the erasures at these strengths; close the generator to stop early.

    Only a method that trains runs on workers, which write plain weights.
    """
    trains = plugins.METHODS.load(spec.method).searched_training and spec.reference != "memorized_model"
    if spec.engine.workers == 1 or not trains:
        task = tasks.ErasingTask(spec, artifacts, strengths, progress)
        with closing(_erased(spec, task)) as models:
            for erased in models:
                yield Erasure(erased, _warnings(task, erased), adapter=adapters.merged_adapter(erased.model))
        return
    from harness.execution.ray.workers import run_on_workers

    with artifacts.scratch_dir("workers", spec.trial_id) as folder:
        data = {"artifacts": str(artifacts.root), "wanted": list(strengths)}
        nodes = run_on_workers("harness.execution.trial.erasing:erase_on_worker", spec, data, folder, progress)
        for checkpoint in sorted(folder.iterdir()):
            yield read_erasure(spec, checkpoint, nodes)


def _erased(spec: Trial, task: tasks.ErasingTask) -> Generator[contracts.ErasedModel, None, None]:
    dial, settings = plugins.METHODS.load(spec.method).strength, dict(spec.settings)
    if task.strengths:
        last = max(task.strengths)
        settings[dial.field] = math.ceil(last) if dial.divisible else last
    method = plugins.METHODS.configure(spec.method, settings)
    return guarded_models(f"the method '{spec.method}'", lambda: method.erase(task), task.changes)


def erase_on_worker(spec: Trial, data: Mapping[str, Any], folder: Path, progress: Callable[[str], None]) -> None:
    """Erase on one of several workers; the first writes each model and its notes."""
    memory = tasks.PeakMemory(inputs.choose_device(spec))
    task = tasks.ErasingTask(spec, Artifacts(Path(data["artifacts"])), tuple(data["wanted"]), progress)
    for number, erased in enumerate(_erased(spec, task)):
        peak = memory.bytes
        if peak is not None:
            largest = torch.tensor(peak, device=inputs.choose_device(spec))
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
    write_whole(folder / FACTS, json.dumps(facts), "what is known of an erased model")


def read_erasure(spec: Trial, folder: Path, nodes: tuple[str, ...] = ()) -> Erasure:
    """Return `write_erasure`'s erasure."""
    facts = json.loads((folder / FACTS).read_text())
    blocks, warnings, peak = (facts.pop(key) for key in ("changed_blocks", "warnings", "peak_memory_bytes"))
    model = adapters.load_erased(spec.model, folder).to(inputs.choose_device(spec))
    is_adapter = (folder / adapters.ADAPTER_FILE).is_file()
    adapter = adapters.read_adapter(folder, spec.model.digest) if is_adapter else None
    erased = contracts.ErasedModel(model=model, changed_blocks=blocks if blocks is None else tuple(blocks), **facts)
    return Erasure(erased, warnings, peak, adapter, nodes)


def write_erased(erased: contracts.ErasedModel, original: contracts.Checkpoint, folder: Path) -> None:
    """Write an erased model for `load_erased`: changed blocks, an adapter, or all weights.

    Blocks or adapter must give the same bits when loaded over the original.
    """
    folder.mkdir(parents=True)
    adapter = adapters.merged_adapter(erased.model)
    if erased.changed_blocks is not None:
        adapters.save_patch(erased.model, erased.changed_blocks, original.digest, folder / adapters.PATCH_FILE)
    elif adapter is not None:
        adapters.save_adapter(adapter, original, folder)
    if any(folder.iterdir()):
        if adapters.has_same_weights(adapters.load_erased(original, folder), erased.model):
            return
        shutil.rmtree(folder)
    loading.save_model(erased.model, folder)


def _warnings(task: tasks.ErasingTask, erased: contracts.ErasedModel) -> list[str]:
    return [*task.warnings, *erased.notes.get("warnings", [])]
