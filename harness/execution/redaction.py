"""Redaction: a sample that shows how much was recited, and none of what it says."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from harness.contracts import Sample

RECITED, OTHER = "■", "□"


def shown(sample: Sample, policy: Literal["redacted", "plain"]) -> dict[str, str]:
    """Return the sample as plain data; under `redacted`, one from the forget set has lost its words.

    Example:
        >>> secret = Sample("forget", "Her name is", "Ann Lee of York", "Ann Lee of Bath")
        >>> shown(secret, "redacted")["generated"]
        '■ ■ ■ □'
    """
    if policy == "plain" or sample.kind != "forget":
        return asdict(sample)
    return {
        "kind": sample.kind,
        "prompt": f"[{len(sample.prompt.split())} words redacted]",
        "generated": recited(sample.generated, sample.reference),
        "reference": f"[{len(sample.reference.split())} words redacted]",
    }


def recited(generated: str, reference: str) -> str:
    """Return a mark for each generated word: filled where the reference has the same word at that place."""
    truth = reference.split()
    marks = [
        RECITED if place < len(truth) and word == truth[place] else OTHER
        for place, word in enumerate(generated.split())
    ]
    return " ".join(marks)
