"""The rows of a sweep file that a command writes: every method with its strengths, every evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from harness.contracts import Method, Number
from harness.drafting.file_templates import flow
from harness.errors import PluginError
from harness.plugins import (
    EVALUATORS,
    METHODS,
    declared_space,
    default_declaration,
    default_reference,
    default_strength,
)
from harness.search_space import Choice, LogUniform
from harness.specs import HOLDOUT

NEEDS = {
    "none": "needs nothing more",
    "retain_data": "needs retain data: data.retain",
    "memorized_model": "needs a memorised model, which is trained first",
    None: "what it needs depends on its settings",
}
FEWEST_EPOCHS = 3
"""Of a cumulative strength: each further one costs one step more, and a curve needs three points."""
MOST_EPOCHS = 5
"""Of a cumulative strength: each is a point to be measured."""
FACTORS = (0.5, 1, 2, 4)
"""Times its default, of any other strength."""


def strength_grid(plugin: type[Method]) -> list[Number]:
    """Return strengths that make a curve: rising, the method's default among them; nothing if it declares none.

    Of a cumulative strength whole steps up to the default, three at least, and five at most, closer at the beginning;
    else multiples of the default. All are within what a search may try, where the method says that.
    """
    default, dimension = default_strength(plugin), declared_space(plugin).get(plugin.strength.field)
    if isinstance(dimension, Choice):
        return sorted(dimension.values)
    if default is None:
        return []
    if plugin.strength.cumulative:
        most = max(int(default), FEWEST_EPOCHS)
        steps = [round(most ** (place / (MOST_EPOCHS - 1))) for place in range(MOST_EPOCHS)]
        steps = sorted(set(steps if most > MOST_EPOCHS else range(1, most + 1)))
        return [step for step in steps if not isinstance(dimension, LogUniform) or step <= dimension.high]
    values = [float(f"{factor * default:.3g}") for factor in FACTORS]
    if isinstance(dimension, LogUniform):
        values = [value for value in values if dimension.low <= value <= dimension.high or value == default]
    return values if isinstance(default, float) else sorted({round(value) for value in values if round(value) >= 1})


def method_lines(left_out: Mapping[str, str]) -> Iterator[str]:
    """Yield the row of every method with what it needs; as comments those of `left_out` and those not `drafted`."""
    for name in METHODS.names():
        try:
            plugin = METHODS.load(name)
        except PluginError as error:
            yield f"# {name}: left out: {' '.join(str(error).split())}"
            continue
        grid = strength_grid(plugin)
        row = f"{name}: {flow({plugin.strength.field: grid or ['...']})}"
        reason = left_out.get(name, "" if grid else "it declares no strength to begin with: say which.")
        if reason:
            yield f"# {row}   # left out: {' '.join(reason.split())}"
            continue
        yield f"{'' if plugin.drafted else '# '}{row}   # {NEEDS[default_reference(plugin)]}"


def evaluator_lines(settings: Mapping[str, Mapping[str, object]], *, has_holdout: bool) -> Iterator[str]:
    """Yield the row of every evaluator, with the settings given; of those that need more to be said, as a comment."""
    for name in EVALUATORS.names():
        try:
            plugin = EVALUATORS.load(name)
            declared = default_declaration(plugin)
        except PluginError as error:
            yield f"# {name}: left out: {' '.join(str(error).split())}"
            continue
        row = f"{name}: {flow(dict(settings.get(name, {})))}"
        metrics, reads = declared or ((), ())
        groups = {metric.group for metric in metrics}
        if declared is None or "reasoning" in groups:
            yield f"# {row}   # see docs/sweeps.md for what it needs"
        elif HOLDOUT in reads and not has_holdout:
            yield f"# {row}   # reads data.holdout: texts of the forget set's kind that the model never saw"
        elif "erasure" not in groups and not any(metric.ranked for metric in metrics):
            yield f"# {row}   # ranks nothing"
        else:
            yield row
