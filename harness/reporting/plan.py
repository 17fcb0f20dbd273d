"""What `--plan` shows: every trial with its strengths and state, what is left to be done, and what it will need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from harness.analysis.caveats.readings import large_batches, readings_of
from harness.base.terminal import tell
from harness.errors import ConfigError, Fault
from harness.plans import Plan
from harness.plugins import METHODS
from harness.records.results import Status
from harness.records.studies import StudyResults
from harness.sizing.estimate import UnknownEstimate
from harness.sizing.fit_check import FitCheck, doubtful, gigabytes, large, sized, unfit
from harness.sizing.memory_tracker import Bytes
from harness.sizing.size_cache import SizeCache, cache_folder
from harness.specs import TrialSpec

COLOURS: Mapping[Status, str] = {"done": "green", "failed": "red", "missing": "yellow"}
WORDS = ("Row", "Model", "While")
NOTE = (
    "Needs: what tensors hold at most on a trial's device, erasing or measuring, whichever is more; counted by running "
    "the method's own code on tensors without contents. Has: its share of this machine."
)
WARNING = (
    "Warning: these trials are estimated to need more than their GPU has. No such figure has been measured on a GPU "
    "yet, so nothing is refused; a trial that runs out of memory fails, and the sweep goes on without it."
)


def trials_table(plan: Plan, statuses: Mapping[str, Status], to_memorize: int) -> Group:
    """Return the plan for a terminal.

    Args:
        plan: A sweep, resolved.
        statuses: Each trial's state, by its id.
        to_memorize: How many memorised models are to be trained.
    """
    title = Text(f"{plan.sweep}: {plan.question}" if plan.question else plan.sweep, style="bold")
    evaluators = ", ".join(evaluator.name for evaluator in plan.trials[0].evaluators) if plan.trials else ""
    measured_by = Text(f"Each point is measured by: {evaluators}.")
    models = [Text(reading) for reading in readings_of(plan.trials)]
    doubts = [Text(sentence, style="yellow") for sentence in one_step_epochs(plan)]
    return Group(title, _states(plan, statuses), *models, measured_by, *doubts, _totals(plan, statuses, to_memorize))


def one_step_epochs(plan: Plan) -> list[str]:
    """Return a sentence for every batch of a plan that holds more than the forget set."""
    erasing = [spec for spec in (*plan.trials, *(study.trial for study in plan.studies)) if not spec.is_reference]
    trained = [(spec, "training") for spec in erasing if METHODS.load(spec.method).searched_training]
    memorized = [(spec, "memorized_model") for spec in erasing if spec.reference == "memorized_model"]
    return large_batches(trained + memorized)


def _states(plan: Plan, statuses: Mapping[str, Status]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("State", "Row", "Model", "Strengths", "Seed", "Trial"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("Row", "Trial"))
    for spec in plan.trials:
        status = statuses[spec.trial_id]
        # Text throughout: a plain string's brackets would be read as markup.
        state, model = Text(status, style=COLOURS[status]), Text(spec.model.short_name)
        row, strengths, seed, trial = map(Text, (spec.variant, _strengths(plan, spec), str(spec.seed), spec.trial_id))
        table.add_row(state, row, model, strengths, seed, trial)
    return table


def _strengths(plan: Plan, spec: TrialSpec) -> str:
    if spec.is_reference:
        return "as it is, erasure alone" if spec.is_of_unseen else "as it is"
    ranked = (
        plan.ranked_at.get(spec.variant, spec.strengths[-1])
        if plan.first_target is None
        else spec.targets.get(plan.first_target)
    )
    values = ", ".join(f"{strength:g}{'*' if strength == ranked else ''}" for strength in spec.strengths)
    return f"{spec.strength_name} {values}"


def _totals(plan: Plan, statuses: Mapping[str, Status], to_memorize: int) -> Text:
    counts = Counter(statuses[spec.trial_id] for spec in plan.trials)
    states = ", ".join(f"{counts[status]} {status}" for status in COLOURS if counts[status])
    left = [spec for spec in plan.trials if statuses[spec.trial_id] != "done"]
    points = _count(sum(len(spec.points()) for spec in left), "point")
    measurements = _count(sum(len(spec.points()) * len(spec.evaluators) for spec in left), "measurement")
    return Text(
        f"{_count(len(plan.trials), 'trial')}: {states or 'none'}. At most {points} to be reached, {measurements} to "
        f"be made, and {_count(to_memorize, 'memorized model')} to be trained. (* is ranked.)"
    )


def studies_table(studies: Sequence[StudyResults]) -> Group:
    """Return a tuned sweep's searches for a terminal: how many candidates each has tried, and how far they got."""
    table = Table(box=None, pad_edge=False)
    for heading in ("Tuned", "Model", "Candidates", "Searched", "So far", "Study"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("Tuned", "Study"))
    for study in studies:
        spec, done = study.spec, len(study.candidates)
        left = spec.trials - done
        so_far = "; ".join(f"{result.target}: {result}" for result in study.targets) if done else ""
        table.add_row(
            Text(spec.trial.variant),
            Text(spec.trial.model.short_name),
            Text(f"{done} done, at most {left} to do" if left else f"{done} done", style="yellow" if left else "green"),
            Text(", ".join(spec.space)),
            Text(so_far),
            Text(spec.study_id),
        )
    note = "Trials of what a study chooses follow from it, and are listed once it is over."
    return Group(table, Text(note))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def needs_table(trials: Sequence[TrialSpec], fits: Mapping[str, FitCheck]) -> Group:
    """Return a table for a terminal: each row's largest need by what it is for, and what it has.

    Args:
        trials: Those to be shown.
        fits: Each trial's need and share, by its id.
    """
    largest: dict[tuple[str, str], TrialSpec] = {}
    for spec in trials:
        key = spec.variant.partition("(")[0], spec.model.id
        if key not in largest or _total(fits[spec.trial_id]) > _total(fits[largest[key].trial_id]):
            largest[key] = spec
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    for heading in ("Row", "Model", *(field.name.capitalize() for field in fields(Bytes)), "Needs", "While", "Has"):
        table.add_column(heading, justify="left" if heading in WORDS else "right", no_wrap=heading in WORDS)
    for (row, model), spec in largest.items():
        name = Text(model.rstrip("/").rpartition("/")[2])
        table.add_row(Text(row), name, *_cells(spec, fits[spec.trial_id]))
    reasons = {
        f"{row} on {model}: its need is not known, since its code looks at values ({fit.need.reason})."
        for (row, model), spec in largest.items()
        if isinstance((fit := fits[spec.trial_id]).need, UnknownEstimate)
    }
    trained = [
        f"{row} on {model} trains {fit.need.trained:,} weights: {spec.training.lora}."
        for (row, model), spec in largest.items()
        if spec.training.lora and not isinstance((fit := fits[spec.trial_id]).need, UnknownEstimate)
    ]
    return Group(table, *(Text(line) for line in [*sorted(reasons), *trained]), Text(NOTE))


def needs_warning(doubts: Sequence[Fault]) -> str:
    """Return the warning about trials that may not fit their GPU, a line each; '' if there are none."""
    lines = [f"  {doubt.path}  {doubt.reason}" for doubt in doubts]
    return "\n".join([WARNING, *lines]) if doubts else ""


def _total(fit: FitCheck) -> int:
    return 0 if isinstance(fit.need, UnknownEstimate) else fit.need.most.total


def _cells(spec: TrialSpec, fit: FitCheck) -> list[Text]:
    has = Text("not known" if fit.has is None else gigabytes(fit.has))
    if isinstance(fit.need, UnknownEstimate):
        return [Text("")] * len(fields(Bytes)) + [Text("not known"), Text(""), has]
    most = fit.need.most
    style = ("yellow" if spec.gpus > 0 else "red") if fit.has is not None and most.total > fit.has else ""
    sizes = [Text(gigabytes(size) if size else "") for size in asdict(most).values()]
    while_ = Text("erasing" if most is fit.need.erasing else "measuring")
    return [*sizes, Text(gigabytes(most.total), style=style), while_, has]


def refuse_unfit(file: Path, trials: Sequence[TrialSpec]) -> None:
    """Stop before anything starts if a trial cannot run here; small models are not looked at closely.

    Raises:
        ConfigError: It names every such trial, with the setting that makes it fit.
    """
    from harness.sizing.machine import this_machine

    machine, known = this_machine(), SizeCache(cache_folder())
    if machine is None:
        return
    needs = sized(large(trials, machine, known), machine, known)
    if doubts := doubtful(trials, needs, machine, known):
        tell(needs_warning(doubts), is_error=True)
    if refused := unfit(trials, needs, machine, known):
        raise ConfigError(str(file), refused)
