"""The memorised model: the original overfitted on the forget set, trained once and shared."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from harness.base.files import write_whole
from harness.contracts import Checkpoint, Model, Sequences
from harness.execution.trial.inputs import choose_device, forget_set
from harness.models.loading import load_model, save_model
from harness.records.artifacts import MEMORIZED, Artifacts, memorized_key
from harness.settings import Trial
from harness.toolkit import decoding, finetune, losses, scoring


def build_memorized(spec: Trial, artifacts: Artifacts, progress: Callable[[str], None]) -> Path:
    """Return the folder of the memorised model, trained if it is missing."""

    def make(folder: Path) -> None:
        if spec.engine.workers > 1:
            from harness.execution.ray.workers import run_on_workers

            run_on_workers("harness.execution.trial.memorized:memorize_on_worker", spec, {}, folder, progress)
            memorized = load_model(_memorized_checkpoint(spec, folder)).to(choose_device(spec))
        else:
            memorized = _trained(spec, progress)
            save_model(memorized, folder)
        ma = accuracy(memorized, forget_set(spec))
        facts = {"ma": ma, "epochs": spec.memorization.epochs, "model": spec.model.id}
        write_whole(folder / "memorized.json", json.dumps(facts), "what was measured of the memorised model")

    return artifacts.build(MEMORIZED, memorized_key(spec), make)


def memorize_on_worker(spec: Trial, data: Mapping[str, Any], folder: Path, progress: Callable[[str], None]) -> None:
    """Train the memorised model on one of several workers; the first writes it."""
    model = _trained(spec, progress)
    if torch.distributed.get_rank() == 0:
        save_model(model, folder)


def load_memorized(spec: Trial, artifacts: Artifacts, progress: Callable[[str], None]) -> tuple[Model, float]:
    """Return a fresh memorised model and its MA on the forget set."""
    folder = build_memorized(spec, artifacts, progress)
    facts = json.loads((folder / "memorized.json").read_text())
    return load_model(_memorized_checkpoint(spec, folder)), float(facts["ma"])


def _memorized_checkpoint(spec: Trial, folder: Path) -> Checkpoint:
    # Without a digest: `Artifacts.find` compared the artifact's own.
    return Checkpoint(f"{spec.model.id} (memorized)", str(folder), spec.model.tokenizer, digest="")


def accuracy(model: Model, sequences: Sequences, first: int = 1) -> float:
    """Return MA from the position `first` on: the share of greedy choices that are the text's."""
    predicted_NT = decoding.greedy_continuations(model, sequences, [[] for _ in range(len(sequences))]).predicted_NT
    counted = torch.arange(sequences.tokens_NT.shape[1]) < sequences.lengths_N[:, None]
    counted[:, :first] = False
    return scoring.memorization_accuracy(sequences.tokens_NT[counted], predicted_NT[counted], 0, int(counted.sum()))


def _trained(spec: Trial, progress: Callable[[str], None]) -> Model:
    model = load_model(spec.model).to(choose_device(spec))
    about = {"forget": forget_set(spec), "retain": None, "training": spec.memorized_training, "engine": spec.engine}
    # Trials of all seeds share it, and nothing stops it early.
    task: Any = SimpleNamespace(seed=0, progress=progress, **about)
    with torch.enable_grad():  # A method that only computes with weights may ask for it without gradients.
        for _ in finetune.train(task, model, losses.nll_loss, spec.memorization.epochs):
            pass
    return model
