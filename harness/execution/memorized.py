"""The memorised model: the original overfitted on the forget set, trained once and shared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness.contracts import Checkpoint, Model, Sequences, Training
from harness.digests import digest_of
from harness.models.loading import load_model
from harness.records.artifacts import Artifacts
from harness.specs import Engine, TrialSpec
from harness.toolkit.decoding import greedy_continuations
from harness.toolkit.finetune import train
from harness.toolkit.losses import nll_loss

KIND = "memorized"
VERSION = 2
WORK = "harness.execution.memorized:memorize_on_worker"
SEED = 0
"""One memorised model serves the trials of every seed."""


def memorized_key(spec: TrialSpec) -> str:
    """Return the artifact key of the memorised model that a trial needs."""
    training = asdict(_training(spec))
    del training["micro_batch"]
    engine = str(spec.engine)
    return digest_of([VERSION, spec.model.digest, spec.forget.digest, spec.memorization.epochs, training, engine])


def _training(spec: TrialSpec) -> Training:
    memorization = spec.memorization
    return replace(
        spec.training,
        learning_rate=memorization.learning_rate,
        global_batch=memorization.global_batch,
        early_stop=None,
    )


def build_memorized(
    spec: TrialSpec, artifacts: Artifacts, original: Model, forget: Sequences, progress: Callable[[str], None]
) -> float:
    """Train the memorised model unless it exists; return its MA on the forget set."""
    return _accuracy_of(_built(spec, artifacts, original, forget, progress))


def _built(
    spec: TrialSpec, artifacts: Artifacts, original: Model, forget: Sequences, progress: Callable[[str], None]
) -> Path:
    def make(folder: Path) -> None:
        memorized = original
        if spec.engine.workers > 1:
            from harness.execution.ray_train import on_workers

            on_workers(WORK, spec, {}, folder, progress)
            memorized = load_model(_checkpoint(spec, folder)).to(original.device)
        else:
            _train(spec, original, forget, progress)
            original.save_pretrained(folder)
        about = {"ma": accuracy(memorized, forget), "epochs": spec.memorization.epochs, "model": spec.model.id}
        (folder / "memorized.json").write_text(json.dumps(about))

    return artifacts.build(KIND, memorized_key(spec), make)


def memorize_on_worker(spec: TrialSpec, data: Mapping[str, Any], folder: Path, progress: Callable[[str], None]) -> None:
    """Train the memorised model on one of several workers; the first writes it."""
    from harness.execution.tasks import data_of, device_of, forget_of

    model = load_model(spec.model).to(device_of(spec))
    _train(spec, model, data_of(spec, forget_of, spec.forget), progress)
    if torch.distributed.get_rank() == 0:
        model.save_pretrained(folder)


def _train(spec: TrialSpec, model: Model, forget: Sequences, progress: Callable[[str], None]) -> None:
    task = _Memorizing(SEED, forget, _training(spec), spec.engine, progress)
    with torch.enable_grad():  # A method that only computes with weights may ask for it without gradients.
        for _ in train(task, model, nll_loss, spec.memorization.epochs):
            pass


def load_memorized(
    spec: TrialSpec,
    artifacts: Artifacts,
    load_original: Callable[[], Model],
    forget: Sequences,
    progress: Callable[[str], None],
) -> tuple[Model, float]:
    """Return a fresh copy of the memorised model and its MA on the forget set.

    A job built it before; it is built here only if it turns out to be damaged since.
    """
    folder = artifacts.find(KIND, memorized_key(spec)) or _built(spec, artifacts, load_original(), forget, progress)
    return load_model(_checkpoint(spec, folder)), _accuracy_of(folder)


def _checkpoint(spec: TrialSpec, folder: Path) -> Checkpoint:
    # Without a digest: the artifact's own were compared when it was found.
    return Checkpoint(f"{spec.model.id} (memorized)", str(folder), spec.model.tokenizer, digest="")


def accuracy(model: Model, sequences: Sequences) -> float:
    """Return the share of all predicted tokens whose greedy choice is the text's: MA over all positions."""
    found = greedy_continuations(model, sequences, [[] for _ in range(len(sequences))])
    counted = torch.arange(sequences.tokens_NT.shape[1]) < sequences.lengths_N[:, None]
    counted[:, 0] = False
    return float((found.predicted_NT == sequences.tokens_NT)[counted].float().mean())


def _accuracy_of(folder: Path) -> float:
    return float(json.loads((folder / "memorized.json").read_text())["ma"])


@dataclass
class _Memorizing:
    """The training loop's task: the forget set, and nothing that would stop it."""

    seed: int
    forget: Sequences
    training: Training
    engine: Engine
    progress: Callable[[str], None]
    retain: Sequences | None = None

    def validation_perplexity(self, model: Model) -> float:
        """Return NaN: no early stop looks at it."""
        return float("nan")
