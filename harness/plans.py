"""A sweep file, resolved: its trials, the searches that come before some of them, and how results are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from harness.base.files import digest_of
from harness.base.settings import PlainData
from harness.contracts import Json, Number
from harness.search_space import OF_TRAINING, Dimension, LogUniform
from harness.specs import RETRAINED, UNSEEN, CollapseBounds, Level, Source, TrialSpec

PROBED_ERASURE = "ma"
PROBED_UTILITY = "perplexity"
"""What a probe of two forward passes has: MA on the forget set, and the model's own perplexity on validation texts. A
search and a walk look at nothing else."""
SEARCH_VERSION = 3
"""Raised when a study would propose other candidates from the same records; part of its identity."""
SEARCH_SEEDS = 1_000_000
"""How many values `tune.seed` has. The candidates of the first search train with as many more than it, those of the
second with twice as many more: far from what anyone reports."""

SELECTABLE: Mapping[str, Callable[[TrialSpec], set[str]]] = {
    "method": lambda spec: {spec.method},
    "model": lambda spec: {spec.model.id},
    "variant": lambda spec: {spec.variant, spec.variant.partition("(")[0]},
    "seed": lambda spec: {str(spec.seed)},
}
"""What `--only` can select trials by, and the words that select one."""


@dataclass(frozen=True, kw_only=True)
class Compare:
    """What verdicts are about."""

    cost: str = PROBED_UTILITY
    """The metric in which methods pay for erasure."""
    reference: str | None = None
    """The row that others are compared with; None: the first in the file's order that reached the level."""
    margin: float = 0.1
    """Methods whose prices differ by less than this share are equivalent."""


@dataclass(frozen=True, kw_only=True)
class StudySpec(PlainData):
    """A search for the settings with which one method, on one model, reaches the levels at the least perplexity."""

    study_id: str
    """Digest of all that decides the candidates, but not of how many there are to be."""
    trial: TrialSpec
    """What every candidate shares: its settings are those that are not searched, and it has no strengths unless its
    one strength is not searched either."""
    seeds: tuple[int, ...]
    """The chosen settings are run with each; candidates have the trial's own, which is none of them."""
    per: Literal["seed", "model"] = "model"
    """Whether each seed has a search of its own."""
    space: Mapping[str, Dimension]
    """By setting; one of the training's is written `training.learning_rate`, the strength under its field's name."""
    defaults: Mapping[str, Json]
    """A value for each dimension of the space: the first candidate's."""
    is_cumulative: bool
    """Of the strength: a candidate is raised to its range's end and probed at each whole step."""
    is_trained: bool
    """Whether erasing takes optimiser steps."""
    search: Literal["optuna", "random"]
    trials: int
    """Candidates at most, the method's defaults among them."""
    targets: tuple[Level, ...]
    utility_bounds: tuple[float, float]
    """The least and the most, times the original's: outside of them a candidate has collapsed, and goes no further."""
    selection: Source
    """The half of the forget set that probes look at; what is reported is measured on the other."""
    seed: int = 0
    """`tune.seed`: of the proposals, and of the candidates' training."""
    published: Mapping[str, Json] | None = None
    """The second candidate's: what the method was published with, as far as it is searched; None where that is the
    first's."""

    @property
    def seeds_text(self) -> str:
        """Return which seeds it is for, in words: `seed 0`, `seeds 0, 1, 2`."""
        return f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(map(str, self.seeds))}"

    def identified(self, default_id: str) -> StudySpec:
        """Return the study under its id; the trial of the defaults stands for all that every candidate shares."""
        read = {UNSEEN: self.trial.unseen, RETRAINED: self.trial.retrained}
        levels = []
        for level in self.targets:
            of = read.get(str(level.at))
            levels.append([level.key, of.digest if of else ""])
        identity = {
            "search_version": SEARCH_VERSION,
            "seed": self.seed,
            "published": dict(self.published) if self.published else None,
            "default": default_id,
            "space": {name: asdict(dimension) for name, dimension in self.space.items()},
            "defaults": dict(self.defaults),
            "strengths": list(self.trial.strengths),
            "search": self.search,
            "levels": levels,
            "utility": list(self.utility_bounds),
            "selection": self.selection.digest,
            "validation": self.trial.validation.digest,
        }
        study_id = digest_of(identity)
        return replace(self, study_id=study_id, trial=replace(self.trial, trial_id=study_id))

    def strengths(self, settings: Mapping[str, Json]) -> tuple[Number, ...]:
        """Return where a candidate with these settings is probed, rising."""
        name = self.trial.strength_name
        if name not in self.space:
            return self.trial.strengths
        dimension = self.space[name]
        if not self.is_cumulative:
            return (settings[name],)
        if isinstance(dimension, LogUniform):
            return tuple(range(1, int(settings[name]) + 1))
        return tuple(sorted(dimension.values))

    def trial_with(self, settings: Mapping[str, Json], strengths: tuple[Number, ...]) -> TrialSpec:
        """Return the trial that a candidate's settings make, at these strengths and still under the study's id."""
        training = {name.removeprefix(OF_TRAINING): value for name, value in settings.items() if OF_TRAINING in name}
        own = {name: value for name, value in settings.items() if OF_TRAINING not in name}
        own.pop(self.trial.strength_name, None)
        return replace(
            self.trial,
            settings={**self.trial.settings, **own},
            training=replace(self.trial.training, **training),
            strengths=strengths,
        )


@dataclass(frozen=True, kw_only=True)
class Plan(PlainData):
    """A sweep file, resolved: every trial it asks for, and how its results are to be shown."""

    sweep: str
    question: str
    """The first line of the sweep file: what it asks."""
    file: str
    """The sweep file's text, exactly."""
    overrides: tuple[str, ...]
    """What `--set` changed, as typed."""
    trials: tuple[TrialSpec, ...]
    ranked_at: Mapping[str, Number]
    """Variant to the strength that is ranked; cumulative methods are absent: the last one reached."""
    controls: tuple[str, ...] = ()
    """Variants that are shown as the others are and not ranked, since they are no method but a check on one."""
    studies: tuple[StudySpec, ...] = ()
    """What is tuned before anything is measured; the trials that follow from it are among `trials` once it is."""
    until: tuple[Level, ...] = ()
    """The levels to which every row is walked, in the file's order; verdicts are about the first."""
    collapse: CollapseBounds
    samples: Literal["redacted", "plain"]
    sample_count: int = 4
    """How many texts of each kind the report shows of a point."""
    compare: Compare = Compare()
    reproduces: str | None = None
    """The published table that its results stand beside; no part of any trial's identity."""
    shared_texts: tuple[str, ...] = ()
    """A sentence for every two roles of texts that share some, though too few to be a fault."""

    @property
    def erases(self) -> bool:
        """Return whether any method is to erase; if none is, the models are measured as they are."""
        return bool(self.studies) or not all(spec.is_reference for spec in self.trials)

    @property
    def is_tuned(self) -> bool:
        """Return whether no row has a grid of strengths: then the walk to the first level is what is ranked."""
        return self.erases and not any(spec.strengths for spec in self.trials)


def selected(
    trials: Sequence[TrialSpec], studies: Sequence[StudySpec], wanted: Mapping[str, set[str]]
) -> tuple[list[TrialSpec], list[StudySpec]]:
    """Return the trials and studies that have, of each key of `SELECTABLE` in `wanted`, one of its words.

    The settings that a study chooses are run with the seeds that are wanted; its candidates have their own seed all
    the same. A study of other seeds alone is left out.
    """
    of_studies = {key: words for key, words in wanted.items() if key != "seed"}
    seeds = wanted.get("seed")
    selected_studies: list[StudySpec] = []
    for study in studies:
        if _is_selected(study.trial, of_studies):
            wanted_seeds = tuple(seed for seed in study.seeds if seeds is None or str(seed) in seeds)
            if wanted_seeds:
                selected_studies.append(replace(study, seeds=wanted_seeds))
    return [spec for spec in trials if _is_selected(spec, wanted)], selected_studies


def _is_selected(spec: TrialSpec, wanted: Mapping[str, set[str]]) -> bool:
    """Return whether `--only` keeps a trial.

    Reference rows stay whatever the method, and those of unseen texts whatever the seed, since there is one for all:
    nothing can be compared without them.
    """
    for key, values in wanted.items():
        is_kept = (spec.is_reference and key in ("method", "variant")) or (spec.is_of_unseen and key == "seed")
        if not is_kept and values.isdisjoint(SELECTABLE[key](spec)):
            return False
    return True
