"""A sweep file that plans without a fault, and whose trials fit this machine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.drafting.file_templates import filled, flow
from harness.drafting.first_file import evaluator_lines, method_lines
from harness.errors import ConfigError, DataError
from harness.planning.plan import plan_of
from harness.planning.sweep_file import sweep_file_of
from harness.plans import Plan
from harness.sizing.fit_check import check_fit, large
from harness.sizing.machine import this_machine
from harness.specs import REFERENCE_ROWS

EVALUATOR_SETTINGS: dict[str, dict[str, int]] = {"memorization": {"el_prefixes": 8}}
"""EL after every prefix takes long; after eight prefixes of each text it is the same to 0.01."""
MICRO_BATCHES = (16, 8, 4, 2, 1)


@dataclass(frozen=True)
class Fitting:
    """The resources of every trial, and the methods that need more than this machine has."""

    micro_batch: int
    cpus: int = 1
    gpus: int = 0
    about: str = "changes memory and speed, no number"
    too_large: dict[str, str] = field(default_factory=dict)


def planned_file(parts: dict[str, Any], out: Path) -> tuple[str, dict[str, str]]:
    """Return the file, and the methods that are left out of it: it plans, and its trials fit this machine.

    Raises:
        ConfigError: Something else than a method is wrong with it.
        DataError: No method is left.
    """
    left_out: dict[str, str] = {}
    fitting = Fitting(min(MICRO_BATCHES[0], parts["global_batch"]))
    has_holdout = bool(parts["holdout"] or parts["is_embedded"])
    recited = {"extraction": {"tokens": min(50, parts["continuation_tokens"])}}
    evaluators = list(evaluator_lines({**EVALUATOR_SETTINGS, **recited}, has_holdout=has_holdout))
    while True:
        methods = list(method_lines(left_out))
        if all(row.startswith("#") for row in methods):
            raise DataError(
                "No method is left that could erase from this model on this machine: " + "; ".join(left_out.values())
            )
        content = filled(
            "init.yaml.j2",
            **parts,
            methods=methods,
            evaluators=evaluators,
            micro_batch=fitting.micro_batch,
            about_memory=fitting.about,
            resources=flow({"cpus": fitting.cpus, "gpus": fitting.gpus}),
        )
        try:
            planned = plan_of(sweep_file_of(content, out))
        except ConfigError as error:
            refused = {fault.path.partition(".")[2]: fault.reason for fault in error.faults if "methods." in fault.path}
            if len(refused) < len(error.faults) or refused.keys() <= left_out.keys():
                raise
            left_out |= refused
            continue
        before, fitting = fitting, _fitting_of(planned, parts["global_batch"])
        left_out |= fitting.too_large
        if fitting == before:
            return content, left_out


def _fitting_of(planned: Plan, global_batch: int) -> Fitting:
    """Return the largest micro-batch, on the fewest CPUs, with which every trial fits, or what never fits."""
    machine = this_machine()
    micro_batches = [size for size in MICRO_BATCHES if size <= global_batch]
    if machine is None:
        return Fitting(micro_batches[0])
    gpus = min(1, machine.gpus)
    small = [replace(spec, gpus=gpus) for spec in planned.trials]
    if not large(small, machine):
        return Fitting(micro_batches[0], gpus=gpus)
    faults: dict[str, str] = {}
    for cpus in dict.fromkeys((1, max(1, machine.cpus // 2), machine.cpus)):
        for micro_batch in micro_batches:
            faults = {}
            for spec in small:
                tried = replace(spec, cpus=cpus, training=replace(spec.training, micro_batch=micro_batch))
                fit = check_fit([tried], machine)
                for fault in [*fit.faults, *fit.warnings]:
                    faults[spec.method] = fault.reason
            if not faults:
                about = "the largest that fits this machine, by --plan's estimate"
                return Fitting(micro_batch, cpus, gpus, about)
    for kind in REFERENCE_ROWS:
        if kind in faults:
            raise DataError(f"the model is too large to be measured on this machine: it {faults[kind]}")
    return Fitting(1, machine.cpus, gpus, "the smallest that there is", faults)
