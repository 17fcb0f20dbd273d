"""From a study's results to the trials that measure what it chose: as if the sweep file had named their settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.planning.trials import identified
from harness.records.studies import StudyResults
from harness.specs import TrialSpec


def chosen_trials(studies: Sequence[StudyResults]) -> list[TrialSpec]:
    """Return a trial for each seed and each chosen setting, seeds outermost; targets that share one share its trial.

    A trial's id is that of an untuned sweep's trial with the same settings. A target that was not reached has none.
    """
    merged: dict[str, TrialSpec] = {}
    for seed in dict.fromkeys(seed for study in studies for seed in study.spec.seeds):
        for study in studies:
            for spec in _of_targets(study, seed) if seed in study.spec.seeds else ():
                same = merged.get(spec.trial_id, spec)
                strengths = tuple(sorted({*same.strengths, *spec.strengths}))
                targets = {**same.targets, **spec.targets}
                merged[spec.trial_id] = replace(spec, strengths=strengths, targets=targets)
    return list(merged.values())


def _of_targets(study: StudyResults, seed: int) -> list[TrialSpec]:
    trials = []
    for result in study.targets:
        if result.chosen is not None:
            strength = result.chosen.probe["strength"]
            spec = study.spec.trial_with(result.chosen.candidate.settings, (strength,))
            searched = {n: v for n, v in result.chosen.candidate.settings.items() if n != spec.strength_name}
            spec = replace(spec, seed=seed, targets={str(result.target): strength}, searched=searched)
            trials.append(identified(spec, is_cumulative=study.spec.is_cumulative))
    return trials
