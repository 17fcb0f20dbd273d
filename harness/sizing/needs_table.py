"""What `--plan` shows of the trials' needs: one line for each row and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields

from rich.console import Group
from rich.table import Table
from rich.text import Text

from harness.errors import Fault
from harness.sizing.estimate import UnknownEstimate
from harness.sizing.fit_check import FitCheck, gigabytes
from harness.sizing.memory_tracker import Bytes
from harness.specs import TrialSpec

WORDS = ("Row", "Model", "While")
NOTE = (
    "Needs: what tensors hold at most on a trial's device, erasing or measuring, whichever is more; counted by running "
    "the method's own code on tensors without contents. Has: its share of this machine."
)
WARNING = (
    "Warning: these trials are estimated to need more than their GPU has. No such figure has been measured on a GPU "
    "yet, so nothing is refused; a trial that runs out of memory fails, and the sweep goes on without it."
)


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
    return Group(table, *(Text(reason) for reason in sorted(reasons)), Text(NOTE))


def warning(doubts: Sequence[Fault]) -> str:
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
