"""Whether a search is steered by what the table reports: the rank correlation of the two over the points it chose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from harness.analysis.metrics import compared_metrics, in_sentence, metric_mean
from harness.analysis.ranking import RankedTable
from harness.contracts import Metric
from harness.records.results import Results

FEWEST_POINTS = 4
"""Of fewer a rank correlation says nothing."""


@dataclass(frozen=True)
class Steering:
    """How far the utility that a search minimises puts points in the order of the one that is reported."""

    model: str
    points: int
    correlations: tuple[tuple[Metric, float], ...]
    """Spearman's, from −1 to 1, with each reported metric of utility."""

    def __str__(self) -> str:
        """Return it as a sentence."""
        known = []
        for metric, correlation in self.correlations:
            known.append(f"{correlation:.2f} with the reported {in_sentence(metric)}")
        return (
            f"The search on {self.model} minimises the model's own perplexity on validation texts. Over the "
            f"{self.points} points that it chose, its rank correlation is {' and '.join(known)}."
        )


def steerings(results: Results, ranked: RankedTable) -> list[Steering]:
    """Return for each model whether the search was steered by each metric of utility; none of too few points."""
    _, utility = compared_metrics(ranked.info, results.plan.compare)
    steered = []
    for model, rows in ranked.table.groupby("model", sort=False):
        correlations: dict[int, list[tuple[Metric, float]]] = {}
        for metric in utility:
            probed, reported = _probed_and_reported(str(model), rows, metric, results)
            if len(probed) >= FEWEST_POINTS and len(set(probed)) > 1 and len(set(reported)) > 1:
                correlation = float(spearmanr(probed, reported).statistic)
                correlations.setdefault(len(probed), []).append((metric, correlation))
        steered += [Steering(str(model), points, tuple(known)) for points, known in correlations.items()]
    return steered


def _probed_and_reported(
    model: str, rows: pd.DataFrame, metric: Metric, results: Results
) -> tuple[list[float], list[float]]:
    """Return what the probe saw of each chosen point, and its mean over seeds in the table, each point once."""
    # By study and what its probe saw, since a point may be chosen for several targets.
    values: dict[tuple[str, float], float] = {}
    specs = {trial.spec.trial_id: trial.spec for trial in results.trials}
    for study in results.studies:
        if study.spec.trial.table_model != model:
            continue
        trial = study.spec.trial
        is_of_study = (rows["variant"] == trial.variant) & (rows["replicate"] == trial.model.id)
        of_variant = rows[is_of_study & rows["replicate_seed"].isin(study.spec.seeds)]
        for target in study.targets:
            is_chosen = []
            for id, strength in zip(of_variant["trial_id"], of_variant["strength"], strict=True):
                is_chosen.append(specs[id].chosen.get(str(target.target)) == strength)
            numbers = of_variant.loc[is_chosen, metric.name].to_numpy(dtype=float)
            if target.chosen is not None and len(numbers) and not np.isnan(numbers).any():
                key = study.spec.study_id, float(target.chosen.probe[study.spec.utility])
                values.setdefault(key, metric_mean(numbers, metric))
    return [probed for _, probed in values], list(values.values())
