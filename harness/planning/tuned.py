"""Unfinished studies, and the trials that follow from finished ones."""

from collections.abc import Mapping, Sequence
from itertools import product

from harness.contracts import Json
from harness.records.journal import Candidate, Journal
from harness.records.results import Results, StudyResults, read_results, read_studies
from harness.settings import Choice, Dimension, LogUniform, Plan, Study, Trial, edge_of, end_of, replace


def unfinished_studies(results: Results) -> list[StudyResults]:
    """Return the studies with candidates left to try."""
    return [study for study in results.studies if not is_over(study.spec, study.candidates)]


def largest_candidate(study: Study) -> Trial:
    """Return a study's trial at the end of every range, whose memory bounds that of all candidates."""
    settings = {name: end_of(dimension) for name, dimension in study.space.items()}
    return study.trial_with(settings, study.strengths(settings))


def list_remaining_specs(results: Results) -> list[Trial]:
    """Return a sweep's unfinished trials, and the largest candidate of each unfinished study."""
    largest = [largest_candidate(study.spec) for study in unfinished_studies(results)]
    return [trial.spec for trial in results.unfinished] + largest


def read_sweep_results(plan: Plan, journal: Journal) -> Results:
    """Return a plan's results, with the walked trials that follow from its finished studies."""
    studies = [study for study in read_studies(plan.studies, journal) if is_over(study.spec, study.candidates)]
    return read_results(replace(plan, trials=(*plan.trials, *list_tuned_trials(studies))), journal)


def list_tuned_trials(studies: Sequence[StudyResults]) -> list[Trial]:
    """Return a walked trial for each seed and level of finished studies, seeds outermost.

    Its settings are those chosen for the level, or the nearest to it.
    """
    trials: list[Trial] = []
    for seed in dict.fromkeys(seed for study in studies for seed in study.spec.seeds):
        for study in studies:
            for result in study.targets if seed in study.spec.seeds else ():
                point = result.chosen or result.nearest
                if point is not None:
                    spec, settings = study.spec, point.candidate.settings
                    dial = spec.trial.strength_name
                    end = end_of(spec.space[dial]) if dial in spec.space else max(spec.trial.strengths)
                    searched = {name: value for name, value in settings.items() if name != dial}
                    trial = replace(spec.trial_with(settings, ()), seed=seed, searched=searched)
                    trial = replace(trial, until=result.target, walk_to=end)
                    trials.append(trial.identified(is_cumulative=spec.is_cumulative))
    return trials


def find_edges_reached(study: StudyResults) -> list[str]:
    """Return a clause for each chosen value at an end of its range: a better value may lie beyond.

    Strengths are left out, since they are walked, and so are choices, which have no order.
    """
    clauses = []
    for result in study.targets:
        for name, dimension in study.spec.space.items():
            if result.chosen and isinstance(dimension, LogUniform) and name != study.spec.trial.strength_name:
                value = result.chosen.candidate.settings[name]
                if (edge := edge_of(dimension, value)) is not None:
                    end = "lower" if edge == "low" else "upper"
                    clauses.append(f"{result.target}: {name} {value:.3g} is at the {end} end of its range")
    return clauses


def is_over(study: Study, candidates: Sequence[Candidate]) -> bool:
    """Return whether the budget is spent or no untried settings are left."""
    if not {*range(study.trials)} - {candidate.number for candidate in candidates}:
        return True
    return bool(candidates) and untried_settings(study, [candidate.settings for candidate in candidates]) == []


def sampled_dimensions(study: Study) -> dict[str, Dimension]:
    """Return the dimensions in which candidates differ: a cumulative strength is raised by each of them."""
    raised = {study.trial.strength_name} if study.is_cumulative else set()
    return {name: dimension for name, dimension in study.space.items() if name not in raised}


def untried_settings(study: Study, tried_settings: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]] | None:
    """Return the settings left to try; None where a dimension is continuous."""
    space = sampled_dimensions(study)
    choices = [dimension.values for dimension in space.values() if isinstance(dimension, Choice)]
    if len(choices) < len(space):
        return None
    tried_values = [tuple(settings[name] for name in space) for settings in tried_settings]
    combinations = [values for values in product(*choices) if values not in tried_values]
    return [{**study.defaults, **dict(zip(space, values, strict=True))} for values in combinations]
