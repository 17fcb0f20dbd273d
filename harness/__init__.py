"""Lethe's harness: runs any method against any evaluator, and names neither.

    from harness import load_results, run_sweep

    results = run_sweep("sweeps/tradeoff.yaml")

Reading order: `contracts` (the words), `plugins` (names to classes), `running` (the steps of a sweep), `planning` (a
sweep file to trials), `execution.trial` (one trial: erase, then measure), `records` (the journal), `analysis` (every
number), `reporting` (report and tables). `commands` has the verbs.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("torch") is None or find_spec("rich") is None:
    _PROBLEM = (
        f"Lethe's packages are not installed for this Python ({sys.executable}). In Lethe's folder, `make setup` makes "
        "an environment that has them, and `. .venv/bin/activate` makes it this terminal's."
    )
    # A traceback of `python -m harness.sweep` would hide the sentence.
    raise SystemExit(_PROBLEM) if sys.argv[:1] == ["-m"] else ModuleNotFoundError(_PROBLEM)

if TYPE_CHECKING:
    from harness.library import SweepResults, load_results
    from harness.running import run_sweep

__all__ = ["SweepResults", "load_results", "run_sweep"]
_MODULES = {"SweepResults": "harness.library", "load_results": "harness.library", "run_sweep": "harness.running"}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: all would take seconds."""
    if name not in _MODULES:
        raise AttributeError(f"module 'harness' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
