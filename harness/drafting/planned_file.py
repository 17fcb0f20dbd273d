"""A sweep file that plans without a fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.drafting.file_templates import filled, flow
from harness.drafting.first_file import evaluator_lines, method_lines
from harness.errors import ConfigError, DataError
from harness.planning.machine import this_machine
from harness.planning.plan import plan_of
from harness.planning.sweep_file import sweep_file_of

EVALUATOR_SETTINGS: dict[str, dict[str, int]] = {"memorization": {"el_prefixes": 8}}
"""EL after every prefix takes long; after eight prefixes of each text it is the same to 0.01."""
MICRO_BATCH = 16


def planned_file(parts: dict[str, Any], out: Path) -> tuple[str, dict[str, str]]:
    """Return the file, and the methods that are left out of it: it plans.

    Raises:
        ConfigError: Something else than a method is wrong with it.
        DataError: No method is left.
    """
    left_out: dict[str, str] = {}
    machine = this_machine()
    has_holdout = bool(parts["holdout"] or parts["is_embedded"])
    recited = {"extraction": {"tokens": min(50, parts["continuation_tokens"])}}
    evaluators = list(evaluator_lines({**EVALUATOR_SETTINGS, **recited}, has_holdout=has_holdout))
    while True:
        methods = list(method_lines(left_out))
        if all(row.startswith("#") for row in methods):
            raise DataError("No method is left that could erase from this model: " + "; ".join(left_out.values()))
        content = filled(
            "init.yaml.j2",
            **parts,
            methods=methods,
            evaluators=evaluators,
            micro_batch=min(MICRO_BATCH, parts["global_batch"]),
            resources=flow({"cpus": 1, "gpus": min(1, machine.gpus) if machine else 0}),
        )
        try:
            plan_of(sweep_file_of(content, out))
        except ConfigError as error:
            refused = {fault.path.partition(".")[2]: fault.reason for fault in error.faults if "methods." in fault.path}
            if len(refused) < len(error.faults) or refused.keys() <= left_out.keys():
                raise
            left_out |= refused
        else:
            return content, left_out
