"""How to repeat a sweep: its file, its settings, and the digests and versions of what it ran on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from harness.plans import Plan
from harness.records.results import Results
from harness.reporting.section import Section
from harness.specs import HOLDOUT, STAND_IN


class Repeat(Section):
    """All that another laboratory needs."""

    def context(self) -> dict[str, Any]:
        """Return the file, and all that it does not say."""
        results = self.analysis.results
        return {
            "settings": _all_settings(self.analysis.results.plan),
            "digests": _what_was_read(results.plan),
            "versions": _versions(results),
        }


def _versions(results: Results) -> dict[str, list[str]]:
    """Return each package with the versions that the trials ran with: more than one if they changed."""
    versions: dict[str, set[str]] = {}
    for trial in results.trials:
        for packages in trial.versions:
            for package, version in packages.items():
                versions.setdefault(package, set()).add(version)
    return {package: sorted(versions[package]) for package in sorted(versions)}


def _what_was_read(plan: Plan) -> list[tuple[str, str, str]]:
    """Return what was read, each thing once: its role, its name and its digest."""
    inputs = []
    for spec in plan.trials:
        read = {"model": spec.model, "retrained model": spec.retrained}
        for role, judge in spec.judges.items():
            read[f"judge of {role}"] = judge
        for role, checkpoint in read.items():
            if checkpoint:
                inputs.append((role, checkpoint.id, checkpoint.digest))
        first = {HOLDOUT: "holdout", STAND_IN: "stand-in"}.get(spec.method, "forget")
        texts = {first: spec.forget, "retain": spec.retain, "utility": spec.utility, "validation": spec.validation}
        for role, source in texts.items():
            if source:
                name = " ".join(filter(None, (source.source, source.path, source.name)))
                inputs.append((f"{role} texts", name, source.digest))
    return list(dict.fromkeys(inputs))


def _all_settings(plan: Plan) -> list[tuple[str, str]]:
    settings: list[tuple[str, Mapping[str, Any]]] = []
    for spec in plan.trials:
        for evaluator in spec.evaluators:
            settings.append((f"evaluator {evaluator.name} (version {evaluator.version})", evaluator.settings))
        if not spec.is_reference:
            settings.append((f"method {spec.variant} (version {spec.method_version})", spec.settings))
            settings.append(("training", spec.training.in_words()))
            settings.append(("memorized model", asdict(spec.memorization)))
    lines = set()
    for name, values in settings:
        text = ", ".join(f"{key}: {value}" for key, value in values.items())
        lines.add((name, text or "no settings"))
    return sorted(lines)
