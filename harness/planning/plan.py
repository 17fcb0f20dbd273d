"""A sweep file to a plan: read, checked whole, and turned into trials with their identities."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.data.sources import Role
from harness.errors import ConfigError, Fault
from harness.planning.config import Sweep, read_sweep
from harness.planning.document import question
from harness.planning.faults import Faults
from harness.planning.file import settings_in, text_of
from harness.planning.grid import rows
from harness.planning.judges import judges
from harness.planning.measures import collapse_bounds, evaluators, ranked_at
from harness.planning.options import only_those, override
from harness.planning.subjects import subjects
from harness.planning.texts import ROLES, check_section
from harness.planning.trials import refuse_same, refuse_unerasable, trials
from harness.specs import Plan

TAKEN = ("artifacts", "published", "mlartifacts", "mlruns")
"""Folders of `results/` that are no sweep's."""
NEEDED = {
    "models": "which models to erase from? For instance models: [miniature-m]",
    "methods": "which methods to run? For instance methods: {emso: {epochs: [1, 2, 3]}}",
    "evaluators": "what to measure? For instance evaluators: {memorization: {}, generation: {}}",
}


def plan(file: Path, overrides: Sequence[str] = (), only: Sequence[str] = ()) -> Plan:
    """Return every trial that a sweep file asks for.

    Args:
        file: The sweep file.
        overrides: Changes to it, `path=value`.
        only: Which trials to keep, `method=emso`.

    Raises:
        ConfigError: With everything that is wrong, not only the first thing.
    """
    text = text_of(file)
    raw, faults = settings_in(text, file)
    override(raw, overrides, faults)
    sweep = read_sweep(raw, faults)
    _check_lists(raw, sweep, faults)
    check_section(sweep.data, raw, faults)
    name = _name(sweep, file, faults)
    unsound: set[Role] = {role for role in ROLES for fault in faults if f"{fault.path}.".startswith(f"data.{role}.")}
    has_retain = sweep.data.retain is not None or "retain" in unsound
    found_rows = rows(sweep.methods, has_retain=has_retain, faults=faults)
    found_evaluators = evaluators(sweep.evaluators, faults)
    found_subjects = subjects(sweep, unsound, faults)
    found_judges = judges(sweep, found_evaluators, faults)
    shared = {} if any(fault.path.startswith("training") for fault in faults) else sweep.training
    refuse_same(found_rows, [each.training for each in found_subjects] or [shared], faults)
    refuse_unerasable(found_subjects, found_rows, faults)
    every = trials(name, sweep, found_subjects, found_rows, found_evaluators, found_judges)
    ranked = ranked_at(sweep.ranking.at, sweep.methods, found_rows, faults)
    collapse = collapse_bounds(sweep.collapse, found_evaluators.values(), faults)
    chosen = only_those(every, only, faults)
    if faults:
        raise ConfigError(str(file), _sorted(faults, raw))
    return Plan(
        sweep=name,
        question=question(text),
        file=text,
        overrides=tuple(overrides),
        trials=tuple(chosen),
        ranked_at=ranked,
        collapse=collapse,
        samples=sweep.report.samples,
    )


def _check_lists(raw: Mapping[str, Any], sweep: Sweep, faults: Faults) -> None:
    """Add faults for what a sweep cannot do without, and for seeds that are given twice."""
    for name, example in NEEDED.items():
        if raw.get(name) in (None, [], {}):
            faults.add(name, f"is {'missing' if raw.get(name) is None else 'empty'}: {example}.")
    if not sweep.seeds:
        faults.add("seeds", "is empty: give at least one, seeds: [0], or leave it out.")
    for index, seed in enumerate(sweep.seeds):
        if seed in sweep.seeds[:index]:
            faults.add(f"seeds.{index}", f"{seed} is already in the list: its trials would be the same.")


def _name(sweep: Sweep, file: Path, faults: Faults) -> str:
    name = sweep.name or re.sub(r"[^A-Za-z0-9_-]+", "-", file.stem).strip("-_") or "sweep"
    if name in TAKEN:
        faults.add("name", f"'{name}' names a folder that all sweeps share: choose another.")
    return name


def _sorted(faults: Sequence[Fault], raw: Mapping[str, Any]) -> list[Fault]:
    """Return the faults, each once, in the order of the file; what is missing from it comes last."""
    order = {name: place for place, name in enumerate(raw)}
    unique = dict.fromkeys(faults)
    return sorted(unique, key=lambda fault: order.get(fault.path.partition(".")[0], len(order)))
