"""The `evaluators`, `collapse` and `ranking` blocks, checked against the plugins and the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.contracts import Checkpoint, Evaluator, Number
from harness.errors import Fault, PluginError, unknown
from harness.planning.faults import check, plain
from harness.planning.grid import Row, default_strength
from harness.plugins import EVALUATORS

COLLAPSE_METRIC = "mauve"
COLLAPSE_FRACTION = 0.25
"""Below a quarter of the original's MAUVE a point has collapsed: true of all red cells of the published table."""


@dataclass(frozen=True)
class Measure:
    """One evaluator with all of its settings, and what a table needs to know of it."""

    name: str
    version: int
    settings: Mapping[str, Any]
    judges: tuple[str, ...]
    definition: str
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Panel:
    """The evaluators, and the models that judge for them."""

    measures: Sequence[Measure]
    judges: Mapping[str, Checkpoint]

    @property
    def is_complete(self) -> bool:
        """Return whether every judge that an evaluator asks for was found."""
        return all(role in self.judges for measure in self.measures for role in measure.judges)


def measures(evaluators: Mapping[str, Mapping[str, Any]], faults: list[Fault]) -> list[Measure]:
    """Return the evaluators in the file's order; what is wrong is added to `faults`."""
    found: list[Measure] = []
    for name, settings in evaluators.items():
        measure = _measure(name, settings, faults)
        if measure is not None:
            _refuse_mixtures(measure, found, faults)
            found.append(measure)
    return found


def _measure(name: str, settings: Mapping[str, Any], faults: list[Fault]) -> Measure | None:
    path = f"evaluators.{name}"
    if name not in EVALUATORS.names():
        faults.append(Fault(path, unknown("evaluator", name, EVALUATORS.names())))
        return None
    try:
        plugin = EVALUATORS.load(name)
    except PluginError as error:
        faults.append(Fault(path, str(error)))
        return None
    instance, wrong = check(plugin, settings, path)
    faults += wrong
    if instance is None:
        return None
    return _described(name, instance)


def _described(name: str, evaluator: Evaluator) -> Measure:
    metrics = tuple(metric.name for metric in evaluator.metrics)
    return Measure(name, evaluator.version, plain(evaluator), evaluator.judges, evaluator.definition, metrics)


def _refuse_mixtures(measure: Measure, others: Sequence[Measure], faults: list[Fault]) -> None:
    path = f"evaluators.{measure.name}"
    if others and others[0].definition != measure.definition:
        faults.append(
            Fault(
                f"{path}.definition",
                f"is '{measure.definition}' here and '{others[0].definition}' in '{others[0].name}'. The two "
                "definitions measure different things and are never mixed in one sweep: use one for all.",
            )
        )
    for other in others:
        both = [metric for metric in measure.metrics if metric in other.metrics]
        if both:
            faults.append(Fault(path, f"reports {', '.join(both)}, which '{other.name}' reports too: remove one."))


def collapse_fraction(collapse: Mapping[str, float], found: Sequence[Measure], faults: list[Fault]) -> float:
    """Return the fraction of the original's MAUVE below which a point has collapsed."""
    reported = [metric for measure in found for metric in measure.metrics]
    for name in collapse:
        if name != COLLAPSE_METRIC:
            why = f" Collapse is read from {COLLAPSE_METRIC} alone." if name in reported else ""
            faults.append(Fault(f"collapse.{name}", unknown("collapse metric", name, [COLLAPSE_METRIC]) + why))
        elif found and name not in reported:
            faults.append(
                Fault(
                    f"collapse.{name}", f"no evaluator of this sweep reports '{name}'. Reported: {', '.join(reported)}."
                )
            )
    return collapse.get(COLLAPSE_METRIC, COLLAPSE_FRACTION)


def ranked_at(
    at: Mapping[str, float], methods: Iterable[str], rows: Sequence[Row], faults: list[Fault]
) -> dict[str, Number]:
    """Return each variant's ranked strength; a cumulative one is left out unless the file names it.

    Args:
        at: What the file says, by row or variant.
        methods: The file's rows, faulty ones too.
        rows: The sound ones.
        faults: Grows.
    """
    found: dict[str, Number] = {}
    known = {*methods, *(row.variant for row in rows)}
    for name in at:
        if name not in known:
            faults.append(Fault(f"ranking.at.{name}", unknown("row of this sweep", name, known)))
    for variant in dict.fromkeys(row.variant for row in rows):
        members = [row for row in rows if row.variant == variant]
        key, plugin = members[0].key, members[0].plugin
        grid = [strength for row in members for strength in row.strengths]
        name = variant if variant in at else key
        wanted = at.get(name)
        if wanted is not None and wanted not in grid:
            faults.append(
                Fault(f"ranking.at.{name}", f"{wanted:g} is not among the strengths of '{variant}': {_listed(grid)}.")
            )
        elif wanted is not None:
            found[variant] = next(each for each in grid if each == wanted)
        elif not plugin.strength.cumulative:
            _choose(variant, grid, default_strength(plugin), found, faults)
    return found


def _choose(
    variant: str, grid: Sequence[Number], default: Number | None, found: dict[str, Number], faults: list[Fault]
) -> None:
    if len(grid) == 1:
        found[variant] = grid[0]
    elif default in grid:
        found[variant] = next(each for each in grid if each == default)
    else:
        about = "" if default is None else f", and the default ({default:g}) is not among them"
        faults.append(
            Fault(
                f"ranking.at.{variant}",
                f"is missing: '{variant}' has several strengths ({_listed(grid)}){about}. Say which one is ranked.",
            )
        )


def _listed(grid: Sequence[Number]) -> str:
    return ", ".join(f"{each:g}" for each in grid)
