"""Erasing for a trial: in its own process, or on the workers that its engine asks for."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from harness.contracts import ErasedModel, Json, Number
from harness.execution.tasks import ErasingTask, device_of
from harness.models.loading import load_model
from harness.models.resolving import resolve_model
from harness.plugins import METHODS
from harness.records.artifacts import Artifacts
from harness.specs import TrialSpec

WORK = "harness.execution.erasing:erase_on_worker"


def erase(
    spec: TrialSpec,
    artifacts: Artifacts,
    wanted: tuple[Number, ...],
    settings: Mapping[str, Json],
    progress: Callable[[str], None],
) -> Iterator[tuple[ErasedModel, list[str]]]:
    """Yield the erased models at the wanted strengths, each with what the trial must be warned of.

    A method that needs the memorised model does its training there: it erases in this process.
    """
    if spec.engine.workers == 1 or spec.reference == "memorized_model":
        task = ErasingTask(spec, artifacts, wanted, progress)
        for erased in METHODS.configure(spec.method, dict(settings)).erase(task):
            yield erased, [*task.warnings, *erased.notes.get("warnings", [])]
        return
    from harness.execution.ray_train import on_workers

    progress(f"on {spec.engine.workers} workers")
    with tempfile.TemporaryDirectory(prefix="lethe-erased-") as name:
        data = {"artifacts": str(artifacts.root), "wanted": list(wanted), "settings": dict(settings)}
        on_workers(WORK, spec, data, Path(name))
        for place in sorted(Path(name).iterdir()):
            about = json.loads((place / "erased.json").read_text())
            warnings, blocks = about.pop("warnings"), about.pop("changed_blocks")
            model = load_model(resolve_model(str(place), tokenizer=spec.model.tokenizer)).to(device_of(spec))
            changed = None if blocks is None else tuple(blocks)
            yield ErasedModel(model=model, changed_blocks=changed, **about), warnings


def erase_on_worker(spec: TrialSpec, data: Mapping[str, Any], folder: Path) -> None:
    """Erase on one of several workers; the first writes each model and what is known of it."""
    task = ErasingTask(spec, Artifacts(Path(data["artifacts"])), tuple(data["wanted"]), lambda message: None)
    for number, erased in enumerate(METHODS.configure(spec.method, dict(data["settings"])).erase(task)):
        if torch.distributed.get_rank() == 0:
            place = folder / f"{number:04d}"
            erased.model.save_pretrained(place)
            about = {
                "strength": erased.strength,
                "notes": dict(erased.notes),
                "changed_blocks": erased.changed_blocks,
                "stop_reason": erased.stop_reason,
                "warnings": [*task.warnings, *erased.notes.get("warnings", [])],
            }
            (place / "erased.json").write_text(json.dumps(about))
