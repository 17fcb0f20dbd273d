"""Differences between trials' settings, and the rows of a sweep that new ones would replace."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.base.messages import amount
from harness.base.settings import flatten_texts
from harness.errors import PluginError
from harness.plugins import EVALUATORS, METHODS, plugin_digest
from harness.records.journal import Journal
from harness.records.results import Results, read_results
from harness.settings import Plan, Study, Trial

# Fields of a trial that are names, or compared as points.
_NOT_COMPARED = {"trial_id", "sweep", "label", "strengths", "levels"}
# Names of a location, which makes no difference where the digest is the same.
_PLACES = ("path", "location", "tokenizer", "id")
_OF_EVALUATOR = {"settings", "texts", "retrained", "precision", "judge_precision", "version"}
_ABSENT = "—"
Change = tuple[str, str, str]
"""Dotted path and both values."""


def setting_changes(a: Trial, b: Trial) -> list[Change]:
    """Return the differences between two trials' settings and data."""
    return find_differences(_flat_settings(a), _flat_settings(b))


def _flat_settings(spec: Trial) -> dict[str, str]:
    settings = spec.model_dump(mode="json", exclude=_NOT_COMPARED)
    settings["evaluators"] = {each.name: each.model_dump(include=_OF_EVALUATOR) for each in spec.evaluators}
    return flatten_texts(settings)


def find_differences(a: Mapping[str, str], b: Mapping[str, str]) -> list[Change]:
    """Return the differences, without new locations of the same contents."""
    changes = []
    for path in {**a, **b}:
        parent, _, name = path.rpartition(".")
        digest = f"{parent}.digest"
        is_moved = name in _PLACES and digest in a and a[digest] == b.get(digest)
        if a.get(path, _ABSENT) != b.get(path, _ABSENT) and not is_moved:
            changes.append((path, a.get(path, _ABSENT), b.get(path, _ABSENT)))
    return changes


# Settings that change an erased model, or the level that it is walked to.
_TEXTS = ("forget.", "retain.", "validation.", "unseen.", "measured.")
_IDENTITY = ("walk_to", "settings.", "training.", "model.", "engine.", "retrained.", *_TEXTS)


def replaced_rows(planned: Plan, journal: Journal) -> dict[str, list[str]]:
    """Return the measured variants that a new plan would replace, by `training.learning_rate: 1e-05 there, 3e-05 here`.

    Rows without one of the same name in the plan are left out.
    """
    if not journal.plan_file.is_file():
        return {}
    new_specs = _by_row(planned.trials)
    replaced: dict[str, list[str]] = {}
    results = read_results(journal.read_plan(), journal)
    for row, specs in _by_row(point.spec for point in results.measured).items():
        new = new_specs.get(row, [])
        if not new or {_identity(spec) for spec in new} & {_identity(spec) for spec in specs}:
            continue
        counted = (*_IDENTITY, "memorization.") if specs[0].reference == "memorized_model" else _IDENTITY
        changes = [change for change in setting_changes(specs[0], new[0]) if change[0].startswith(counted)]
        _add(replaced, row[1], changes)
    for old in (study.spec for study in results.studies if study.candidates):
        model, variant = old.trial.model.id, old.trial.variant
        searches = [each for each in planned.studies if (each.trial.model.id, each.trial.variant) == (model, variant)]
        searches = [each for each in searches if {*each.seeds} & {*old.seeds}]
        kept_seeds = {seed for each in searches if each.study_id == old.study_id for seed in each.seeds}
        if {seed for each in searches for seed in each.seeds} & {*old.seeds} - kept_seeds:
            changes = setting_changes(old.trial, searches[0].trial)
            changes = [change for change in changes if change[0].startswith(_IDENTITY)]
            _add(replaced, variant, find_differences(_flat_search(old), _flat_search(searches[0])) + changes)
    return replaced


def _add(replaced: dict[str, list[str]], variant: str, changes: Sequence[Change]) -> None:
    parts = [(path, 8 if path.endswith(".digest") else None, old, new) for path, old, new in changes]
    text = "; ".join(f"{path}: {old[:most]} there, {new[:most]} here" for path, most, old, new in parts)
    if changes and variant not in replaced.setdefault(text, []):
        replaced[text].append(variant)


def _flat_search(study: Study) -> dict[str, str]:
    return flatten_texts(study.model_dump(mode="json", exclude={"study_id", "trial", "seeds", "trials"}))


def replaced_sentence(planned: Plan, journal: Journal) -> str:
    """Return the error about rows that would be replaced; '' without any."""
    replaced = replaced_rows(planned, journal)
    if not replaced:
        return ""
    rows = [f"{', '.join(variants)} ({changes})" for changes, variants in replaced.items()]
    return (
        f"{journal.folder.parent} has numbers of other settings under this name, which its report would no longer "
        f"show: {'. '.join(rows)}. To keep both, give this sweep another name: --set name={planned.sweep}_2. To show "
        "the new ones instead, say --replace (the journal keeps the old ones)."
    )


def _by_row(specs: Iterable[Trial]) -> dict[tuple[str, str, int, str], list[Trial]]:
    by_row: dict[tuple[str, str, int, str], list[Trial]] = {}
    for spec in specs:
        if not spec.is_reference and not spec.searched:
            by_row.setdefault((spec.model.id, spec.variant, spec.seed, str(spec.until or "")), []).append(spec)
    return by_row


def _identity(spec: Trial) -> str:
    return spec.identified(is_cumulative=True).trial_id


def changed_code_sentence(results: Results) -> str:
    """Return a sentence on the plugins whose code has changed under the same version, and a remedy; '' without any."""
    counts_by_file: dict[str, list[str]] = {}
    for (kind, name, number, code), count in sorted(Counter(_made(results)).items()):
        try:
            plugin = EVALUATORS.load(name) if kind == "measurement" else METHODS.load(name)
        except PluginError:  # A journal can be read without the plugins behind it.
            continue
        if code and plugin.version == number and plugin_digest(plugin) != code:
            file = f"{plugin.__module__.replace('.', '/')}.py (version {number}"
            counts_by_file.setdefault(file, []).append(amount(count, kind))
    files = [f"{file}, {', '.join(counts)})" for file, counts in counts_by_file.items()]
    since = f"Code has changed since results were made, but no version: {', '.join(files)}, or their imports."
    return f"{since} Raise `version` in a file to make its results again, or add --keep to keep all." if files else ""


def _made(results: Results) -> Iterator[tuple[str, str, int, str]]:
    for study in results.studies:
        spec = study.spec.trial
        for candidate in study.candidates:
            yield "candidate", spec.method, spec.method_version, candidate.code
    for trial in results.trials:
        if trial.walked is not None:
            yield "walk", trial.spec.method, trial.spec.method_version, trial.walked.code
        versions = {evaluator.name: evaluator.version for evaluator in trial.spec.evaluators}
        for point in trial.points:
            if point.made is not None:
                yield "point", trial.spec.method, trial.spec.method_version, point.made.code
            for measurement in point.measurements:
                yield "measurement", measurement.evaluator, versions[measurement.evaluator], measurement.code
