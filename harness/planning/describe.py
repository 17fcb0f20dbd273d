"""What `--plan` shows: every trial with its strengths and state, and what is left to be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rich.console import Group
from rich.table import Table
from rich.text import Text

from harness.records.results import Status
from harness.specs import UNSEEN_ROWS, Plan, TrialSpec

COLOURS: Mapping[Status, str] = {"done": "green", "failed": "red", "missing": "yellow"}


def describe(plan: Plan, statuses: Mapping[str, Status], to_memorize: int) -> Group:
    """Return the plan for a terminal.

    Args:
        plan: A sweep, resolved.
        statuses: Each trial's state, by its id.
        to_memorize: How many memorised models are to be trained.
    """
    title = Text(f"{plan.sweep}: {plan.question}" if plan.question else plan.sweep, style="bold")
    evaluators = ", ".join(each.name for each in plan.trials[0].evaluators) if plan.trials else ""
    measured_by = Text(f"Each point is measured by: {evaluators}.")
    return Group(title, _table(plan, statuses), measured_by, _totals(plan, statuses, to_memorize))


def _table(plan: Plan, statuses: Mapping[str, Status]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("State", "Row", "Model", "Strengths", "Seed", "Trial"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("Row", "Trial"))
    for spec in plan.trials:
        status = statuses[spec.trial_id]
        # Text throughout: a plain string's brackets would be read as markup.
        state, model = Text(status, style=COLOURS[status]), Text(spec.model.id.rstrip("/").rpartition("/")[2])
        table.add_row(state, Text(spec.variant), model, _strengths(plan, spec), str(spec.seed), Text(spec.trial_id))
    return table


def _strengths(plan: Plan, spec: TrialSpec) -> str:
    if spec.is_reference:
        return "as it is, erasure alone" if spec.method in UNSEEN_ROWS else "as it is"
    ranked = plan.ranked_at.get(spec.variant, spec.strengths[-1])
    values = ", ".join(f"{each:g}{'*' if each == ranked else ''}" for each in spec.strengths)
    return f"{spec.strength_name} {values}"


def _totals(plan: Plan, statuses: Mapping[str, Status], to_memorize: int) -> Text:
    counts = Counter(statuses[spec.trial_id] for spec in plan.trials)
    states = ", ".join(f"{counts[status]} {status}" for status in COLOURS if counts[status])
    left = [spec for spec in plan.trials if statuses[spec.trial_id] != "done"]
    points = _count(sum(len(spec.points()) for spec in left), "point")
    measurements = _count(sum(len(spec.points()) * len(spec.evaluators) for spec in left), "measurement")
    return Text(
        f"{_count(len(plan.trials), 'trial')}: {states or 'none'}. At most {points} to be reached, {measurements} to "
        f"be made, and {_count(to_memorize, 'memorized model')} to be trained. (* is ranked.)"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
