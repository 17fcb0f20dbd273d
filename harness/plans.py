"""A sweep file, resolved: its trials, the searches that come before some of them, and how results are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from harness.base.digests import digest_of
from harness.base.plain_data import PlainData
from harness.contracts import Checkpoint, Json, Number
from harness.search_space import OF_TRAINING, Dimension, LogUniform
from harness.specs import CollapseBounds, Level, Source, TrialSpec

PROBED_ERASURE = "ma"
PROBED_UTILITY = "perplexity"
"""The metrics that a search is steered by: a probe of two forward passes has both. One that had to generate would cost
as much as the table."""

SEARCH_VERSION = 2
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
class Target:
    """How far a tuned method is to erase."""

    metric: str
    """`ma`: what a probe measures of erasure."""
    at_most: Number | Literal["retrained"]
    """A number, or what the retrained model has."""

    def __str__(self) -> str:
        """Return what tables and records call it.

        Example:
            >>> str(Target(metric="ma", at_most=0.9)), str(Target(metric="ma", at_most="retrained"))
            ('ma <= 0.9', 'ma <= retrained')
        """
        return f"{self.metric} <= {self.at_most if isinstance(self.at_most, str) else format(self.at_most, 'g')}"


@dataclass(frozen=True)
class Cost:
    """What all candidates of a study may cost together."""

    unit: Literal["seconds", "flops"]
    most: float


@dataclass(frozen=True, kw_only=True)
class StudySpec(PlainData):
    """A search for the settings with which one method, on one model, reaches its targets at the least cost."""

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
    is_divisible: bool = False
    """Of a cumulative strength: a trial may stop within an epoch."""
    is_trained: bool
    """Whether erasing takes optimiser steps."""
    search: Literal["optuna", "random"]
    trials: int
    """Candidates at most, the method's defaults among them."""
    cost: Cost | None = None
    """What they may cost; None: only their number is limited."""
    targets: tuple[Target, ...]
    utility: str
    """What is to be least among the points that reach a target: `perplexity`, the model's own on validation texts."""
    utility_bounds: tuple[float, float]
    """The least and the most, times the original's: outside of them a candidate has collapsed, and goes no further."""
    selection: Source
    """The half of the forget set that probes look at; what is reported is measured on the other."""
    retrained: Checkpoint | None
    """The model that never saw the forget set, where a target asks for what it has."""
    seed: int = 0
    """`tune.seed`: of the proposals, and of the candidates' training."""
    published: Mapping[str, Json] | None = None
    """The second candidate's: what the method was published with, as far as it is searched; None where that is the
    first's."""
    widest: Mapping[str, Dimension] = field(default_factory=dict)
    """How far each range may be widened, once; {} in what was planned before ranges were."""

    @property
    def seeds_text(self) -> str:
        """Return which seeds it is for, in words: `seed 0`, `seeds 0, 1, 2`."""
        return f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(map(str, self.seeds))}"

    def identified(self, default_id: str) -> StudySpec:
        """Return the study under its id; the trial of the defaults stands for all that every candidate shares."""
        identity = {
            "search_version": SEARCH_VERSION,
            "seed": self.seed,
            "published": dict(self.published) if self.published else None,
            "widest": {name: asdict(dimension) for name, dimension in self.widest.items()},
            "default": default_id,
            "space": {name: asdict(dimension) for name, dimension in self.space.items()},
            "defaults": dict(self.defaults),
            "strengths": list(self.trial.strengths),
            "search": self.search,
            "targets": [str(target) for target in self.targets],
            "retrained": self.retrained.digest if self.retrained else None,
            "utility": [self.utility, *self.utility_bounds],
            "selection": self.selection.digest,
            "validation": self.trial.validation.digest,
        }
        if self.cost is not None and self.cost.unit == "flops":  # Other searches do not count them.
            identity["counts"] = self.cost.unit
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
    def first_target(self) -> str | None:
        """Return the target whose points are ranked; None in a sweep that is not tuned."""
        return next((str(study.targets[0]) for study in self.studies), None)


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
