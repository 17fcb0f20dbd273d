"""Redaction of samples and of failures."""

import sys
import traceback
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from harness import contracts, errors

Policy = Literal["redacted", "plain"]
RECITED, OTHER = "■", "□"
"""Marks of generated words: filled if the reference has the same word in the same place."""
MAX_LOG_LINES = 40
_WITHHELD = "its message may quote the forget set; `report: {samples: plain}` keeps it."
_GPU_IS_FULL = "its GPU's memory is full: lower training.micro_batch, or give each trial more of it (resources.gpus)."
_OWN = f"{Path(errors.__file__).resolve().parent}/"


def sample_for_report(sample: contracts.Sample, policy: Policy) -> dict[str, str]:
    """Return the sample as plain data; `redacted` hides words of the forget set.

    Example:
        >>> secret = contracts.Sample("forget", "Her name is", "Ann Lee of York", "Ann Lee of Bath")
        >>> sample_for_report(secret, "redacted")["generated"]
        '■ ■ ■ □'
    """
    if policy == "plain" or sample.kind != "forget":
        return asdict(sample)
    truth = sample.reference.split()
    words = zip_longest(sample.generated.split(), truth)
    marks = [RECITED if word == true_word else OTHER for word, true_word in words if word is not None]
    prompt, reference = (f"[{count} words redacted]" for count in (len(sample.prompt.split()), len(truth)))
    return {"kind": sample.kind, "prompt": prompt, "generated": " ".join(marks), "reference": reference}


def failure_for_report(error: BaseException, policy: Policy) -> tuple[str, list[str]]:
    """Return a sentence about an exception, and the last lines of its log.

    Under `redacted` only Lethe's own messages are kept. Libraries and plugins may quote texts, so only the type and
    position of their errors are.

    Example:
        >>> sentence, _ = failure_for_report(ValueError("Her name is Ann Lee"), "redacted")
        >>> sentence
        'ValueError: its message may quote the forget set; `report: {samples: plain}` keeps it.'
    """
    if policy == "plain":
        lines = "".join(traceback.format_exception(error)).splitlines()[-MAX_LOG_LINES:]
        return f"{type(error).__name__}: {error}", [*lines, *getattr(error, "log", ())]
    lines = []  # In the order of a traceback: the cause first.
    for related in reversed(_causes(error)):
        lines += [f"{type(related).__name__}:", *(f"  {where}" for where in _positions(related))]
    if is_own(error):
        return f"{type(error).__name__}: {error}", [*lines[-MAX_LOG_LINES:], *getattr(error, "log", ())]
    raised_at = "".join(f"raised at {where}; " for where in _positions(error)[-1:])
    why = _GPU_IS_FULL if type(error).__name__ == "OutOfMemoryError" else _WITHHELD
    return f"{type(error).__name__}: {raised_at}{why}", lines[-MAX_LOG_LINES:]


def is_own(error: BaseException) -> bool:
    """Return whether Lethe's code raised the error: plugins may raise its types too."""
    if vars(errors).get(type(error).__name__) is not type(error):
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return not frames or frames[-1].f_code.co_filename.startswith(_OWN)


def _positions(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{_path_in_package(frame.filename)}, line {frame.lineno}, in {frame.name}" for frame in frames]


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return causes


def _path_in_package(file: str) -> str:
    path = Path(file)
    roots = [root for root in sys.path if root and path.is_relative_to(root)]
    return path.relative_to(max(roots, key=len)).as_posix() if roots else path.name
