"""Which of a sweep's numbers were made by other code than the plugins have now, under the same version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from harness.base.messages import amount
from harness.errors import PluginError
from harness.plugins import EVALUATORS, METHODS, plugin_digest
from harness.records.results import Results

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
