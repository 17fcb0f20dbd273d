"""Probes: what two forward passes tell of a model, over the selection half of the forget set and validation texts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from harness.contracts import Checkpoint, Model, Sequences
from harness.execution.trial.inputs import device_of, forget_set, validation_set
from harness.models.loading import load_model
from harness.plans import PROBED_ERASURE, PROBED_UTILITY, StudySpec, Target
from harness.records.artifacts import Artifacts
from harness.specs import RETRAINED
from harness.toolkit.decoding import greedy_continuations
from harness.toolkit.scoring import memorization_accuracy, own_perplexity

VERSION = 1
"""Raised when the numbers of probes change; part of the key of those that are shared."""


def probe(model: Model, selection: Sequences, validation: Sequences) -> dict[str, float]:
    """Return a model's `ma` on the selection half, and its own `perplexity` on the validation texts.

    MA is that of the table under the exact definition: teacher-forced, over the continuation without its last
    token, the mean over sequences. Where perplexity is NaN, so is MA.
    """
    perplexity = own_perplexity(model, validation)
    accuracy = math.nan if math.isnan(perplexity) else _accuracy(model, selection)
    return {PROBED_ERASURE: accuracy, PROBED_UTILITY: perplexity}


def _accuracy(model: Model, sequences: Sequences) -> float:
    predicted_NT = greedy_continuations(model, sequences, [[]] * len(sequences)).predicted_NT
    of_sequence = [
        memorization_accuracy(tokens_T, predicted_T, sequences.prefix_tokens, int(length) - 1)
        for tokens_T, predicted_T, length in zip(sequences.tokens_NT, predicted_NT, sequences.lengths_N, strict=True)
    ]
    return math.nan if np.isnan(of_sequence).all() else float(np.nanmean(of_sequence))


def selection_set(study: StudySpec) -> Sequences:
    """Return the half of the forget set that a study's probes look at."""
    return forget_set(replace(study.trial, forget=study.selection))


def shared_probe(study: StudySpec, checkpoint: Checkpoint, artifacts: Artifacts) -> dict[str, float]:
    """Return the probe of a model that every candidate is compared with, computed once for all of them."""

    def make() -> dict[str, np.ndarray]:
        model = load_model(checkpoint).to(device_of(study.trial))
        seen = probe(model, selection_set(study), validation_set(study.trial))
        return {name: np.array(value) for name, value in seen.items()}

    key = "probe", str(VERSION), checkpoint.digest, study.selection.digest, study.trial.validation.digest
    return {name: float(value) for name, value in artifacts.arrays(key, make).items()}


def asked_for(study: StudySpec, target: Target, artifacts: Artifacts) -> float:
    """Return a target in numbers: its own, or what the retrained model has."""
    if target.at_most != RETRAINED:
        return float(target.at_most)
    assert study.retrained is not None
    return shared_probe(study, study.retrained, artifacts)[target.metric]
