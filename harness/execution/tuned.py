"""Studies on their way to trials: which are unfinished, how large their candidates get, and what the others chose."""

from __future__ import annotations

from dataclasses import replace

from harness.execution.search import is_over
from harness.planning.chosen import chosen_trials
from harness.plans import Plan, StudySpec
from harness.records.journal import Journal
from harness.records.results import Results, read_results, read_studies
from harness.records.studies import StudyResults
from harness.search_space import end_of
from harness.specs import TrialSpec


def unfinished_studies(results: Results) -> list[StudyResults]:
    """Return the studies that have candidates left to try."""
    return [study for study in results.studies if not is_over(study.spec, study.candidates)]


def largest_candidate(study: StudySpec) -> TrialSpec:
    """Return a study's trial at the end of each of its ranges, which needs most: what is sized for all of them."""
    settings = {name: end_of(dimension) for name, dimension in study.space.items()}
    return study.trial_with(settings, study.strengths(settings))


def read_tuned(plan: Plan, journal: Journal) -> Results:
    """Return what the journal says of a plan, and of the trials of what its finished studies chose."""
    studies = read_studies(plan, journal)
    chosen = chosen_trials([study for study in studies if is_over(study.spec, study.candidates)])
    return read_results(replace(plan, trials=(*plan.trials, *chosen)), journal)
