"""View of a plan for the terminal: trials, their states, and their needs of memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from harness.base.messages import amount, console
from harness.contracts import Json, Precision
from harness.errors import ConfigError
from harness.execution.job import Folders
from harness.execution.waves import shared_jobs
from harness.planning.machine import Machine, memory_share, this_machine
from harness.planning.memory import Row, find_unfit, gigabytes, memory_needs, row_of
from harness.plugins import METHODS
from harness.records.journal import Journal
from harness.records.results import Status, StudyResults
from harness.records.setting_changes import changed_sentences, replaced_rows, replaced_sentence
from harness.records.tuned import is_over, largest_candidate, list_remaining_specs, read_sweep_results
from harness.settings import EvaluatorSpec, Plan, TrialSpec

COLOURS: Mapping[Status, str] = {"done": "green", "failed": "red", "missing": "yellow"}
NOTE = (
    "Needs: about the most bytes that tensors hold on a trial's device, while it erases or measures; not known of code "
    "that cannot run without values. Has: its share of this machine."
)


def trials_table(plan: Plan, statuses: Mapping[str, Status], to_memorize: int) -> Group:
    """Return the trials of a plan.

    Args:
        plan: A resolved sweep.
        statuses: Each trial's state, by its id.
        to_memorize: Number of memorised models left to train.
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
        *map(Text, describe_readings(plan.trials)),
        Text(f"Each point is measured by: {evaluators}."),
        *(Text(sentence, style="yellow") for sentence in (*one_step_epochs(plan), *plan.shared_texts)),
        Text(
            f"{amount(len(plan.trials), 'trial')}: {states or 'none'}. At most {amount(points, 'point')} to be "
            f"reached, {amount(measurements, 'measurement')} to be made, and {amount(to_memorize, 'memorized model')}"
            " to be trained. (* is ranked.)"
        ),
    )


def _empty_table(headings: Sequence[str], unfolded: Sequence[str]) -> Table:
    """Return an empty table for `Text` cells: brackets of plain strings would be read as markup."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading in unfolded)
    return table


def one_step_epochs(plan: Plan) -> list[str]:
    """Return a sentence for every batch that exceeds the forget set."""
    sentences = []
    for spec in (*plan.trials, *(study.trial for study in plan.studies)):
        batches = {}
        if not spec.is_reference and METHODS.load(spec.method).searched_training:
            batches["training"] = spec.training.global_batch
        if not spec.is_reference and spec.reference == "memorized_model":
            batches["memorized_model"] = spec.memorized_training.global_batch
        for name, batch in batches.items():
            if 0 < spec.forget.rows < batch:
                sentences.append(
                    f"{name}.global_batch ({batch}) is above the number of forget sequences ({spec.forget.rows}): "
                    "every epoch is one step on all of them."
                )
    return list(dict.fromkeys(sentences))


def describe_readings(trials: Iterable[TrialSpec]) -> tuple[str, ...]:
    """Return a sentence on each model: its special tokens, maximal length and precision."""
    by_model = {spec.model.id: spec for spec in trials if spec.reading}
    sentences = []
    for spec in by_model.values():
        parts = [_how_it_reads(spec.reading), *_how_it_is_measured(spec.evaluators)]
        sentences.append(f"{spec.model.short_name}: {'; '.join(parts)}.")
    return tuple(sentences)


def _how_it_reads(reading: Mapping[str, Json]) -> str:
    starts, ends, context, stored = map(reading.get, ("starts_with", "ends_at", "context", "stored"))
    parts = [
        f"every text starts with {' '.join(starts)}" if starts else "nothing is put before a text",
        f"what it writes ends at {' or '.join(ends)}" if ends else "what it writes has no end of text",
        f"it reads {context:,} tokens at most" if context else "its configuration sets no longest text",
    ]
    if stored:
        parts.append(f"weights stored in {stored}, loaded in fp32")
    for role, start in (reading.get("judges_start_with") or {}).items():
        parts.append(f"the judge of {role} starts each with {' '.join(start)}")
    return "; ".join(parts)


def _how_it_is_measured(evaluators: Sequence[EvaluatorSpec]) -> Iterator[str]:
    by_precision: dict[Precision, list[str]] = {}
    for evaluator in evaluators:
        by_precision.setdefault(evaluator.precision, []).append(evaluator.name)
    exact = by_precision.pop("fp32", [])
    for precision in by_precision:
        yield f"measured in {precision}" + (f" ({', '.join(exact)} in fp32)" if exact else "")
    if any(evaluator.judge_precision == "bf16" for evaluator in evaluators):
        yield "judges of perplexity and features compute in bf16"


def _strengths_text(plan: Plan, spec: TrialSpec) -> str:
    if spec.is_reference:
        return "as it is, erasure alone" if spec.is_of_unseen else "as it is"
    if spec.until is not None:
        is_ranked = plan.is_tuned and spec.until == plan.until[0]
        return f"{spec.strength_name} to {spec.until}{'*' if is_ranked else ''}"
    ranked = plan.ranked_at.get(spec.variant, spec.strengths[-1])
    values = ", ".join(f"{strength:g}{'*' if strength == ranked else ''}" for strength in spec.strengths)
    return f"{spec.strength_name} {values}"


def studies_table(studies: Sequence[StudyResults]) -> Group:
    """Return the searches of a tuned sweep, with their candidates and best results."""
    table = _empty_table(("Tuned", "Model", "Candidates", "Searched", "So far", "Study"), ("Tuned", "Study"))
    kinds, seeds = {study.spec.search for study in studies}, {study.spec.seeds for study in studies}
    for study in studies:
        spec, done = study.spec, len(study.candidates)
        so_far = "; ".join(f"{result.target}: {result}" for result in study.targets) if done else ""
        candidates = Text(f"{done} done", "green")
        if not is_over(spec, study.candidates):
            candidates = Text(f"{done} done, at most {spec.trials - done} to do", "yellow")
        row, model = spec.trial.variant, Text(spec.trial.model.short_name)
        row += f", {spec.seeds_text}" if len(seeds) > 1 else ""
        row += f", {spec.search}" if len(kinds) > 1 else ""
        searched = Text(", ".join(spec.space))
        table.add_row(Text(row), model, candidates, searched, Text(so_far), Text(spec.study_id))
    note = "Trials of what a study chooses follow from it, and are listed once it is over."
    return Group(table, Text(note))


def needs_table(trials: Sequence[TrialSpec], needs: Mapping[Row, int | None], machine: Machine | None) -> Group:
    """Return each row's need of memory, and its share of a machine (None: a cluster, whose memory is unknown)."""
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    for heading in ("Row", "Model", "Needs", "Has"):
        table.add_column(heading, justify="left" if heading in ("Row", "Model") else "right")
    for spec in {row_of(spec): spec for spec in trials}.values():
        need = needs[row_of(spec)]
        has = memory_share(machine, spec) if machine and spec.gpus <= machine.gpus else None
        sizes = [Text("not known" if size is None else gigabytes(size)) for size in (need, has)]
        if need is not None and has is not None and need > has:
            sizes[0].stylize("yellow" if spec.gpus > 0 else "red")
        table.add_row(Text(spec.variant), Text(spec.model.short_name), *sizes)
    return Group(table, Text(NOTE))


def print_plan(file: Path, planned: Plan, results: Path) -> None:
    """Print every trial with its state and memory; refuse one that cannot fit this machine."""
    folders = Folders.of_sweep(results, planned.sweep)
    journal = Journal(folders.results / "journal")
    measured = read_sweep_results(planned, journal)
    to_memorize = [job.spec for job in shared_jobs(measured, folders) if job.kind == "memorize"]
    terminal = console(width=120)
    terminal.print(trials_table(measured.plan, measured.statuses, len(to_memorize)), "")
    if measured.studies:
        terminal.print(studies_table(measured.studies), "")
    trials = [*measured.plan.trials, *(largest_candidate(study) for study in planned.studies)]
    machine, needs = this_machine(), memory_needs(trials)
    terminal.print(needs_table(trials, needs, machine))
    replaced = replaced_sentence(replaced_rows(planned, journal), folders.results, planned.sweep)
    for sentence in filter(None, (replaced, *changed_sentences(measured))):
        terminal.print(sentence, style="yellow", markup=False, highlight=False)
    if faults := find_unfit(list_remaining_specs(measured), machine, needs):
        raise ConfigError(str(file), faults)
