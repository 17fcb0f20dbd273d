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
from harness.base.messages import amount
from harness.base.terminal import tell
from harness.contracts import Number
from harness.errors import ConfigError, Fault
from harness.plans import Plan
from harness.plugins import METHODS
from harness.records.results import Status, StudyResults
from harness.records.spending import share_spent
from harness.records.tuned import is_over
from harness.sizing.estimate import UnknownEstimate
from harness.sizing.fit_check import FitCheck, check_fit, gigabytes, large
from harness.sizing.memory_tracker import Bytes
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
    table = _empty_table(("State", "Row", "Model", "Strengths", "Seed", "Trial"), unfolded=("Row", "Trial"))
    counts: Counter[Status] = Counter()
    points = measurements = 0
    for spec in plan.trials:
        status = statuses[spec.trial_id]
        counts[status] += 1
        if status != "done":
            points += len(spec.points())
            measurements += len(spec.points()) * len(spec.evaluators)
        cells = (spec.variant, spec.model.short_name, _strengths_text(plan, spec), str(spec.seed), spec.trial_id)
        table.add_row(Text(status, style=COLOURS[status]), *map(Text, cells))
    states = ", ".join(f"{counts[status]} {status}" for status in COLOURS if counts[status])
    evaluators = ", ".join(evaluator.name for evaluator in plan.trials[0].evaluators) if plan.trials else ""
    return Group(
        Text(f"{plan.sweep}: {plan.question}" if plan.question else plan.sweep, style="bold"),
        table,
        *map(Text, readings_of(plan.trials)),
        Text(f"Each point is measured by: {evaluators}."),
        *(Text(sentence, style="yellow") for sentence in (*one_step_epochs(plan), *plan.shared_texts)),
        Text(
            f"{amount(len(plan.trials), 'trial')}: {states or 'none'}. At most {amount(points, 'point')} to be "
            f"reached, {amount(measurements, 'measurement')} to be made, and {amount(to_memorize, 'memorized model')}"
            " to be trained. (* is ranked.)"
        ),
    )


def _empty_table(headings: Sequence[str], unfolded: Sequence[str]) -> Table:
    """Return an empty table. Its cells are `Text`: the brackets of a plain string would be read as markup."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading in unfolded)
    return table


def one_step_epochs(plan: Plan) -> list[str]:
    """Return a sentence for every batch of a plan that holds more than the forget set."""
    trained, memorized = [], []
    for spec in (*plan.trials, *(study.trial for study in plan.studies)):
        if not spec.is_reference and METHODS.load(spec.method).searched_training:
            trained.append((spec, "training"))
        if not spec.is_reference and spec.reference == "memorized_model":
            memorized.append((spec, "memorized_model"))
    return large_batches(trained + memorized)


def _strengths_text(plan: Plan, spec: TrialSpec) -> str:
    if spec.is_reference:
        return "as it is, erasure alone" if spec.is_of_unseen else "as it is"
    ranked: Number | None = plan.ranked_at.get(spec.variant, spec.strengths[-1])
    if plan.first_target is not None:
        ranked = spec.targets.get(plan.first_target)
    values = ", ".join(f"{strength:g}{'*' if strength == ranked else ''}" for strength in spec.strengths)
    return f"{spec.strength_name} {values}"


def studies_table(studies: Sequence[StudyResults]) -> Group:
    """Return a tuned sweep's searches for a terminal: how many candidates each has tried, and how far they got."""
    table = _empty_table(("Tuned", "Model", "Candidates", "Searched", "So far", "Study"), ("Tuned", "Study"))
    kinds, seeds = {study.spec.search for study in studies}, {study.spec.seeds for study in studies}
    for study in studies:
        spec, done = study.spec, len(study.candidates)
        so_far = "; ".join(f"{result.target}: {result}" for result in study.targets) if done else ""
        candidates = Text(f"{done} done", "green")
        if not is_over(spec, study.candidates):
            left = (
                f"at most {spec.trials - done} to do" if spec.cost is None else share_spent(spec.cost, study.candidates)
            )
            candidates = Text(f"{done} done, {left}", "yellow")
        row, model = spec.trial.variant, Text(spec.trial.model.short_name)
        row += f", {spec.seeds_text}" if len(seeds) > 1 else ""
        row += f", {spec.search}" if len(kinds) > 1 else ""
        searched = Text(", ".join(spec.space))
        table.add_row(Text(row), model, candidates, searched, Text(so_far), Text(spec.study_id))
    note = "Trials of what a study chooses follow from it, and are listed once it is over."
    return Group(table, Text(note))


def needs_table(trials: Sequence[TrialSpec], fits: Mapping[str, FitCheck]) -> Group:
    """Return a table for a terminal: each row's largest need by what it is for, and what it has.

    Args:
        trials: Those to be shown.
        fits: Each trial's need and share, by its id.
    """
    largest: dict[tuple[str, str], TrialSpec] = {}
    for spec in trials:
        key = spec.variant.partition("(")[0], spec.model.id
        if key not in largest or _need(fits[spec.trial_id]) > _need(fits[largest[key].trial_id]):
            largest[key] = spec
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    for heading in ("Row", "Model", *(field.name.capitalize() for field in fields(Bytes)), "Needs", "While", "Has"):
        table.add_column(heading, justify="left" if heading in WORDS else "right", no_wrap=heading in WORDS)
    unknown, trained = [], []
    for (row, model), spec in largest.items():
        fit = fits[spec.trial_id]
        table.add_row(Text(row), Text(spec.model.short_name), *_need_cells(spec, fit))
        if isinstance(fit.need, UnknownEstimate):
            reason = f"its code looks at values ({fit.need.reason})"
            unknown.append(f"{row} on {model}: its need is not known, since {reason}.")
        elif spec.training.lora:
            trained.append(f"{row} on {model} trains {fit.need.trained:,} weights: {spec.training.lora}.")
    return Group(table, *map(Text, [*sorted(unknown), *trained, NOTE]))


def needs_warning(doubts: Sequence[Fault]) -> str:
    """Return the warning about trials that may not fit their GPU, a line each; '' if there are none."""
    lines = [f"  {doubt.path}  {doubt.reason}" for doubt in doubts]
    return "\n".join([WARNING, *lines]) if doubts else ""


def _need(fit: FitCheck) -> int:
    return 0 if isinstance(fit.need, UnknownEstimate) else fit.need.most.total


def _need_cells(spec: TrialSpec, fit: FitCheck) -> list[Text]:
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

    machine = this_machine()
    fit = check_fit(large(trials, machine), machine, left=trials)
    if fit.warnings:
        tell(needs_warning(fit.warnings), is_error=True)
    if fit.faults:
        raise ConfigError(str(file), fit.faults)
