"""View of a plan for the terminal: trials, their states, and their needs of memory."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Group
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from harness.base.messages import amount, console
from harness.errors import ConfigError
from harness.execution.jobs import Folders, shared_jobs
from harness.planning import memory, setting_changes
from harness.planning.machine import Machine, memory_share, this_machine
from harness.plugins import METHODS
from harness.records.results import Status, StudyResults, is_over, largest_candidate, read_sweep_results
from harness.reporting.render import Column, render
from harness.settings import Plan, Trial

NOTE = (
    "Needs: estimated peak memory of a trial on its device; not known where its code cannot be rehearsed on empty "
    "tensors. Has: its share of this machine."
)


def trials_table(plan: Plan, statuses: Mapping[str, Status], to_memorize: int) -> Group:
    """Return the trials of a plan; `to_memorize` is the number of memorised models left to train."""
    rows, points, measurements = [], 0, 0
    for spec in plan.trials:
        status = statuses[spec.trial_id]
        if status != "done":
            points += len(spec.points())
            measurements += len(spec.points()) * len(spec.evaluators)
        row = {"State": status, "Row": spec.variant, "Model": spec.model.id}
        rows.append(row | {"Strengths": _strengths_text(plan, spec), "Seed": spec.seed, "Trial": spec.trial_id})
    counts = Counter(statuses[spec.trial_id] for spec in plan.trials)
    states = ", ".join(f"{counts[status]} {status}" for status in ("done", "failed", "missing") if counts[status])
    evaluators = ", ".join(evaluator.name for evaluator in plan.trials[0].evaluators) if plan.trials else ""
    title = Text(f"{plan.sweep}: {plan.question}" if plan.question else plan.sweep, style="bold")
    about = [*map(Text, describe_readings(plan.trials)), Text(f"Each point is measured by: {evaluators}.")]
    about += [Text(sentence, style="yellow") for sentence in (*one_step_epochs(plan), *plan.shared_texts)]
    work = f"At most {amount(points, 'point')} to be reached, {amount(measurements, 'measurement')} to be made, and"
    work += f" {amount(to_memorize, 'memorised model')} to be trained. (* is ranked.)"
    total = Text(f"{amount(len(plan.trials), 'trial')}: {states or 'none'}. {work}")
    return Group(title, _terminal_table(rows), *about, total)


def _terminal_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    frame = pd.DataFrame(rows)
    return render(frame, [Column(str(name), str(name)) for name in frame.columns], "terminal")


def one_step_epochs(plan: Plan) -> list[str]:
    """Return a sentence for every batch that exceeds the forget set."""
    sentences = []
    for spec in (*plan.trials, *(study.trial for study in plan.studies)):
        has_training = not spec.is_reference and METHODS.load(spec.method).searched_training
        batches = {"training": spec.training.global_batch} if has_training else {}
        if not spec.is_reference and spec.reference == "memorized_model":
            batches["memorized_model"] = spec.memorized_training.global_batch
        for name, batch in batches.items():
            if 0 < spec.forget.rows < batch:
                above = f"{name}.global_batch ({batch}) is above the number of forget sequences ({spec.forget.rows})"
                sentences.append(f"{above}: every epoch is one step on all of them.")
    return list(dict.fromkeys(sentences))


def describe_readings(trials: Iterable[Trial]) -> list[str]:
    """Return a sentence on each model: its special tokens, maximal length and precision."""
    sentences = []
    for spec in {spec.model.id: spec for spec in trials if spec.reading}.values():
        starts, ends, context, stored = map(spec.reading.get, ("starts_with", "ends_at", "context", "stored"))
        parts = [
            f"every text starts with {' '.join(starts)}" if starts else "nothing is put before a text",
            f"its texts end at {' or '.join(ends)}" if ends else "its texts have no end",
            f"it reads {context:,} tokens at most" if context else "its configuration sets no longest text",
        ]
        if stored:
            parts.append(f"weights stored in {stored}, loaded in fp32")
        for role, start in (spec.reading.get("judges_start_with") or {}).items():
            parts.append(f"the judge of {role} starts each with {' '.join(start)}")
        exact = [evaluator.name for evaluator in spec.evaluators if evaluator.precision == "fp32"]
        if len(exact) < len(spec.evaluators):
            parts.append("measured in bf16" + (f" ({', '.join(exact)} in fp32)" if exact else ""))
        sentences.append(f"{spec.model.id}: {'; '.join(parts)}.")
    return sentences


def _strengths_text(plan: Plan, spec: Trial) -> str:
    if spec.is_reference:
        return "as it is, erasure only" if spec.is_unseen_row else "as it is"
    if spec.until is not None:
        is_ranked = plan.ranks_first_walk and spec.until == plan.until[0]
        return f"{spec.strength_name} to {spec.until}{'*' if is_ranked else ''}"
    ranked = plan.ranked_at.get(spec.variant, spec.strengths[-1])
    values = ", ".join(f"{strength:g}{'*' if strength == ranked else ''}" for strength in spec.strengths)
    return f"{spec.strength_name} {values}"


def studies_table(studies: Sequence[StudyResults]) -> Group:
    """Return the searches of a tuned sweep, with their candidates and best results."""
    rows = []
    for study in studies:
        spec, count = study.spec, len(study.candidates)
        rest = "" if is_over(spec, study.candidates) else f", at most {spec.trials - count} to do"
        so_far = "; ".join(f"{result.target}: {result}" for result in study.targets) if count else ""
        name = f"{spec.trial.variant}, {spec.seeds_text}, {spec.search}"
        row = {"Tuned": name, "Model": spec.trial.model.id, "Candidates": f"{count} done{rest}"}
        rows.append(row | {"Searched": ", ".join(spec.space), "So far": so_far, "Study": spec.study_id})
    return Group(_terminal_table(rows), Text("Trials of a study's choices are listed once it is over."))


def needs_table(trials: Sequence[Trial], needs: Mapping[memory.Row, int | None], machine: Machine | None) -> Group:
    """Return each row's need of memory, and its share of a machine (None: a cluster, whose memory is unknown)."""
    rows = []
    for spec in {memory.row_of(spec): spec for spec in trials}.values():
        need = needs[memory.row_of(spec)]
        has = memory_share(machine, spec) if machine and spec.gpus <= machine.gpus else None
        sizes = ["not known" if size is None else decimal(size) for size in (need, has)]
        rows.append({"Row": spec.variant, "Model": spec.model.id, "Needs": sizes[0], "Has": sizes[1]})
    return Group(_terminal_table(rows), Text(NOTE))


def print_plan(file: Path, planned: Plan, part: Plan, results: Path) -> None:
    """Print each chosen trial with its state and memory; refuse one that cannot fit this machine."""
    folders = Folders.locate(results, planned.sweep)
    measured = read_sweep_results(part, folders.journal)
    to_memorize = [job.spec for job in shared_jobs(measured, folders) if job.kind == "memorize"]
    terminal = console(width=120)
    terminal.print(trials_table(measured.plan, measured.statuses, len(to_memorize)), "")
    if measured.studies:
        terminal.print(studies_table(measured.studies), "")
    trials = [*measured.plan.trials, *(largest_candidate(study) for study in part.studies)]
    machine = this_machine()
    sized = memory.list_large(trials, machine) if machine else trials
    needs = memory.memory_needs(sized)
    all_fit = "Every trial fits: its model takes less than a twentieth of its memory."
    terminal.print(needs_table(sized, needs, machine) if sized else all_fit)
    replaced = setting_changes.replaced_sentence(planned, folders.journal)
    changed_code = setting_changes.changed_code_sentence(read_sweep_results(planned, folders.journal))
    for sentence in filter(None, (replaced, changed_code)):
        terminal.print(sentence, style="yellow", markup=False, highlight=False)
    if faults := memory.find_unfit(measured.remaining_specs, machine, needs):
        raise ConfigError(str(file), faults)
