"""What differs between two trials' settings, and which measured rows of a sweep others would take the place of."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.base.messages import amount
from harness.errors import PluginError
from harness.plugins import EVALUATORS, METHODS, plugin_digest
from harness.records.journal import Journal
from harness.records.results import Results, read_results
from harness.settings import Plan, TrialSpec

_NOT_COMPARED = (
    "trial_id",
    "sweep",
    "label",
    "strengths",
    "walk_to",
    "levels",
    "unseen",
    "evaluators",
    "method_version",
)
"""Of a trial: names and ids, and what is compared in another way."""
_PLACES = ("path", "location", "tokenizer", "id")
"""Where something is: no difference where its digest is the same."""
_ABSENT = "—"
Change = tuple[str, str, str]
"""What differs, and both values."""


def setting_changes(a: TrialSpec, b: TrialSpec) -> list[Change]:
    """Return what differs between two trials' settings and data: the path in dots, and both values as text."""
    return unequal(_flat_settings(a), _flat_settings(b))


def _flat_settings(spec: TrialSpec) -> dict[str, str]:
    kept = spec.model_dump(mode="json")
    for name in _NOT_COMPARED:
        kept.pop(name, None)
    for evaluator in spec.evaluators:
        kept[f"evaluators.{evaluator.name}"] = {
            "settings": evaluator.settings,
            "precision": evaluator.precision,
            "judge_precision": evaluator.judge_precision,
            "identity": evaluator.key,
        }
    return flat_texts(kept)


def flat_texts(value: Any, path: str = "") -> dict[str, str]:
    """Return each value by its path in dots, as a sweep file has it; items of a list that have parts by their place."""
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return {path: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)}
    texts: dict[str, str] = {}
    for name, item in value.items():
        texts |= flat_texts(item, f"{path}.{name}" if path else str(name))
    return texts


def unequal(a: Mapping[str, str], b: Mapping[str, str]) -> list[Change]:
    """Return the paths where two differ with both values, but for those that follow from others of them."""
    known = {**a, **b}
    paths = [path for path in known if a.get(path, _ABSENT) != b.get(path, _ABSENT)]
    return [(path, a.get(path, _ABSENT), b.get(path, _ABSENT)) for path in paths if not _follows(path, paths, known)]


def _follows(path: str, unequal: Collection[str], known: Collection[str]) -> bool:
    """Return whether a difference says no more than others do: another place of the same contents, say."""
    parent, _, name = path.rpartition(".")
    if name in _PLACES and f"{parent}.digest" in known:
        return f"{parent}.digest" not in unequal
    of_evaluator = (f"{parent}.settings", f"{parent}.precision", f"{parent}.judge_precision")
    deciding = (*of_evaluator, "judges.", "forget.", "measured.", "utility.")
    return name == "identity" and any(other.startswith(deciding) for other in unequal)


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
    by_row: dict[tuple[str, str, int], list[TrialSpec]] = {}
    for spec in specs:
        if not spec.is_reference and not spec.searched and spec.until is None:
            by_row.setdefault((spec.model.id, spec.variant, spec.seed), []).append(spec)
    return by_row


def _identity(spec: TrialSpec) -> str:
    return spec.identified(is_cumulative=True).trial_id


Made = tuple[str, str, int, str]
"""A number's kind (`point` or `measurement`), its plugin's name and version, and the digest of the code behind it."""


def changed_plugins(results: Results) -> list[tuple[str, str]]:
    """Return each plugin's file that has changed while its version has not, and a clause of what it made before."""
    changes = []
    for (kind, name, number, code), count in sorted(Counter(_made(results)).items()):
        try:
            plugin = METHODS.load(name) if kind == "point" else EVALUATORS.load(name)
        except PluginError:  # A journal can be read without the plugins behind it.
            continue
        if plugin.version == number and plugin_digest(plugin) != code:
            clause = f"{amount(count, kind)} {'was' if count == 1 else 'were'} made"
            changes.append((f"{plugin.__module__.replace('.', '/')}.py (version {number})", clause))
    return changes


def changed_sentences(results: Results) -> list[str]:
    """Return a sentence for each plugin that has changed, with what can be done."""
    sentences = []
    for file, clause in changed_plugins(results):
        sentences.append(
            f"{file}, or code that it imports, has changed since {clause}, and its version has not. Raise `version` "
            "in the file to make them again, or add --keep to keep them."
        )
    return sentences


def _made(results: Results) -> Iterator[Made]:
    for trial in results.trials:
        versions = {measuring.name: measuring.version for measuring in trial.spec.evaluators}
        for point in trial.points:
            if point.made is not None and point.made.code:
                yield "point", trial.spec.method, trial.spec.method_version, point.made.code
            for measurement in point.measurements:
                if measurement.code:
                    yield "measurement", measurement.evaluator, versions[measurement.evaluator], measurement.code
