"""Redaction: a sample that shows how much was recited, and none of what it says."""

from __future__ import annotations

from dataclasses import asdict
from itertools import zip_longest
from typing import Literal

from harness.contracts import Sample

RECITED, OTHER = "■", "□"
"""Marks of a generated word: filled where the reference has the same word at the same position."""


def sample_for_report(sample: Sample, policy: Literal["redacted", "plain"]) -> dict[str, str]:
    """Return the sample as plain data; under `redacted`, one from the forget set has lost its words.

    Example:
        >>> secret = Sample("forget", "Her name is", "Ann Lee of York", "Ann Lee of Bath")
        >>> sample_for_report(secret, "redacted")["generated"]
        '■ ■ ■ □'
    """
    if policy == "plain" or sample.kind != "forget":
        return asdict(sample)
    truth = sample.reference.split()
    words = zip_longest(sample.generated.split(), truth)
    marks = [RECITED if word == true_word else OTHER for word, true_word in words if word is not None]
    return {
        "kind": sample.kind,
        "prompt": f"[{len(sample.prompt.split())} words redacted]",
        "generated": " ".join(marks),
        "reference": f"[{len(truth)} words redacted]",
    }
