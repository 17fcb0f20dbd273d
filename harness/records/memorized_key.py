"""Under which key the memorised model of a trial is kept: trials with the same key share it."""

from __future__ import annotations

from harness.base.digests import digest_of
from harness.specs import TrialSpec

MEMORIZED = "memorized"
"""The kind of artifact."""
VERSION = 2
"""Raised when the numbers of memorised models change; part of their key."""


def memorized_key(spec: TrialSpec) -> str:
    """Return the artifact key of the memorised model that a trial needs."""
    training, engine = spec.memorized_training.identity(), str(spec.engine)
    return digest_of([VERSION, spec.model.digest, spec.forget.digest, spec.memorization.epochs, training, engine])
