"""Which evaluators have computed what they need of an original alone: told without loading anything."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from harness.base.digests import digest_of
from harness.base.files import write_whole
from harness.contracts import Checkpoint, Evaluator
from harness.plugins import EVALUATORS
from harness.records.artifacts import ARRAYS, Artifacts
from harness.specs import EvaluatorSpec

_KIND = "prepared"
_KEYS = "arrays.json"
"""In an artifact of this kind: the keys of the arrays that an evaluator computed."""


def prepared_key(model: Checkpoint, measuring: EvaluatorSpec) -> str:
    """Return the artifact key of what an evaluator computes of an original alone."""
    return digest_of([model.digest, measuring.key])


def is_prepared(model: Checkpoint, measuring: EvaluatorSpec, artifacts: Artifacts) -> bool:
    """Return whether an evaluator has all that it computes of this original alone, undamaged, or computes nothing."""
    evaluator: Evaluator = EVALUATORS.configure(measuring.name, dict(measuring.settings))
    if not evaluator.prepares:
        return True
    folder = artifacts.find(_KIND, prepared_key(model, measuring))
    return folder is not None and all(artifacts.find(ARRAYS, key) for key in json.loads((folder / _KEYS).read_text()))


def keep_prepared(model: Checkpoint, measuring: EvaluatorSpec, keys: Iterable[str], artifacts: Artifacts) -> None:
    """Keep which arrays an evaluator has computed of an original, by their artifact keys."""

    def write(folder: Path) -> None:
        write_whole(folder / _KEYS, json.dumps(list(keys)), "what was computed of the original")

    artifacts.build(_KIND, prepared_key(model, measuring), write)
