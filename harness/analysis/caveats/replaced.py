"""What a report would lose: measured rows of a sweep's results that its file now asks for with other settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.analysis.differences import setting_changes
from harness.plans import Plan
from harness.records.journal import Journal
from harness.records.results import read_results
from harness.specs import TrialSpec

_IDENTITY = ("settings.", "training.", "model.", "engine.", "forget.", "retain.", "validation.")
"""What of a trial's settings changes its erased model."""


def replaced_rows(planned: Plan, journal: Journal) -> dict[str, list[str]]:
    """Return the variants that were measured under this name with other settings, by what differs.

    Rows that tuning chose are not among them, and those that the new plan has no row of the same name for: no number
    takes the place of theirs.

    Returns:
        By a text such as `training.learning_rate: 1e-05 there, 3e-05 here`.
    """
    if not (journal.folder / "plan.json").is_file():
        return {}
    wanted = _by_row(planned.trials)
    replaced: dict[str, list[str]] = {}
    results = read_results(journal.read_plan(), journal)
    for row, specs in _by_row(point.spec for point in results.measured).items():
        identities = set(map(_identity, wanted.get(row, ())))
        if not identities or identities & set(map(_identity, specs)):
            continue
        changes = []
        for what, there, here in setting_changes(specs[0], wanted[row][0]):
            if what.startswith(_IDENTITY) or (what.startswith("memorization.") and specs[0].reference != "none"):
                changes.append(f"{what}: {there} there, {here} here")
        if changes:
            variants = replaced.setdefault("; ".join(changes), [])
            variants += [row[1]] if row[1] not in variants else []
    return replaced


def replaced_sentence(replaced: dict[str, list[str]], folder: Path, name: str) -> str:
    """Return what to say of rows whose numbers others would take the place of; '' where there are none."""
    if not replaced:
        return ""
    rows = []
    for changes, variants in replaced.items():
        rows.append(f"{', '.join(variants)} ({changes})")
    return (
        f"{folder} has numbers of other settings under this name, which its report would no longer show: "
        f"{'. '.join(rows)}. To keep both, give this sweep another name: --set name={name}_2. To show the new ones "
        "instead, say --replace (the journal keeps the old ones)."
    )


def _by_row(specs: Iterable[TrialSpec]) -> dict[tuple[str, str, int], list[TrialSpec]]:
    """Return erasing trials that no search chose, by model, variant and seed."""
    by_row: dict[tuple[str, str, int], list[TrialSpec]] = {}
    for spec in specs:
        if not spec.is_reference and not spec.searched:
            by_row.setdefault((spec.model.id, spec.variant, spec.seed), []).append(spec)
    return by_row


def _identity(spec: TrialSpec) -> str:
    """Return what a trial's numbers depend on, but for its strength."""
    return spec.identified(is_cumulative=True).trial_id
