"""The `evaluators`, `collapse` and `ranking` blocks, checked against the plugins and the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from harness.contracts import Evaluator, Number
from harness.errors import DataError, PluginError, unknown
from harness.planning.config import Collapse
from harness.planning.faults import Faults, check
from harness.planning.grid import Row, default_strength
from harness.plugins import EVALUATORS
from harness.specs import CollapseBounds


def evaluators(block: Mapping[str, Mapping[str, Any]], faults: Faults) -> dict[str, Evaluator]:
    """Return the plugins of the `evaluators` block, in the file's order."""
    found: dict[str, Evaluator] = {}
    for name, settings in block.items():
        evaluator = configured(name, settings, faults)
        if evaluator is not None and _reads(name, evaluator, faults):
            _refuse_mixtures(name, evaluator, found, faults)
            found[name] = evaluator
    return found


def configured(name: str, settings: Mapping[str, Any], faults: Faults) -> Evaluator | None:
    """Return the plugin with its settings, or None if any of them is wrong; what it reads is not looked for."""
    path = f"evaluators.{name}"
    if name not in EVALUATORS.names():
        faults.add(path, unknown("evaluator", name, EVALUATORS.names()))
        return None
    try:
        return check(EVALUATORS.load(name), settings, path, faults)
    except PluginError as error:
        faults.add(path, str(error))
        return None


def _reads(name: str, evaluator: Evaluator, faults: Faults) -> bool:
    """Return whether the evaluator can use every file that it reads."""
    try:
        evaluator.inputs()
    except DataError as error:
        faults.add(f"evaluators.{name}", str(error))
        return False
    return True


def _refuse_mixtures(name: str, evaluator: Evaluator, others: Mapping[str, Evaluator], faults: Faults) -> None:
    defined = [other for other in others if _has_definitions(others[other])]
    if defined and _has_definitions(evaluator) and others[defined[0]].definition != evaluator.definition:
        faults.add(
            f"evaluators.{name}.definition",
            f"is '{evaluator.definition}' here and '{others[defined[0]].definition}' in '{defined[0]}'. The two "
            "definitions measure different things and are never mixed in one sweep: use one for all.",
        )
    for other in others:
        both = [metric for metric in _reported([evaluator]) if metric in _reported([others[other]])]
        if both:
            faults.add(f"evaluators.{name}", f"reports {', '.join(both)}, which '{other}' reports too: remove one.")


def _has_definitions(evaluator: Evaluator) -> bool:
    """Return whether the two definitions make a difference: reasoning tasks have only one."""
    return any(metric.group != "reasoning" for metric in evaluator.metrics)


def _reported(found: Iterable[Evaluator]) -> list[str]:
    return [metric.name for evaluator in found for metric in evaluator.metrics]


def collapse_bounds(collapse: Collapse, found: Collection[Evaluator], faults: Faults) -> CollapseBounds:
    """Return outside of which numbers a point has collapsed; a metric that is named must be measured."""
    reported = _reported(found)
    for name in collapse.model_fields_set:
        if found and name not in reported:
            reason = f"no evaluator of this sweep reports '{name}'. Reported: {', '.join(reported)}."
            faults.add(f"collapse.{name}", reason)
    return CollapseBounds(**collapse.model_dump())


def ranked_at(
    at: Mapping[str, float], methods: Iterable[str], rows: Sequence[Row], faults: Faults
) -> dict[str, Number]:
    """Return each variant's ranked strength; a cumulative one is left out unless the file names it.

    `at` is what the file says, by row or variant; `methods` are all of its rows, `rows` the sound ones.
    """
    found: dict[str, Number] = {}
    variants = dict.fromkeys(row.variant for row in rows)
    for name in at:
        if name not in {*methods, *variants}:
            faults.add(f"ranking.at.{name}", unknown("row of this sweep", name, {*methods, *variants}))
    for variant in variants:
        members = [row for row in rows if row.variant == variant]
        grid = [strength for row in members for strength in row.strengths]
        listed = ", ".join(f"{each:g}" for each in grid)
        name = variant if variant in at else members[0].key
        default = default_strength(members[0].plugin)
        if name not in at and members[0].plugin.strength.cumulative:
            continue
        choice = at[name] if name in at else grid[0] if len(grid) == 1 else default
        if choice in grid:
            found[variant] = grid[grid.index(choice)]
        elif name in at:
            faults.add(f"ranking.at.{name}", f"{choice:g} is not among the strengths of '{variant}': {listed}.")
        else:
            about = "" if default is None else f", and the default ({default:g}) is not among them"
            reason = f"is missing: '{variant}' has several strengths ({listed}){about}. Say which one is ranked."
            faults.add(f"ranking.at.{variant}", reason)
    return found
