"""How long a new sweep file's trials take on this machine: one of them, on a few of the texts, tells."""

from __future__ import annotations

import tempfile
from pathlib import Path

from harness.base.storage import writing
from harness.drafting.file_templates import flow
from harness.execution.job import Folders
from harness.execution.jobs import jobs_for
from harness.execution.trial.run import run_job
from harness.planning.plan import plan_of
from harness.planning.sweep_file import sweep_file_of
from harness.records.journal import Journal
from harness.records.results import Results, read_results
from harness.sizing.machine import this_machine
from harness.sizing.speeds import ExpectedTime, expected_time, side_by_side, speeds_of

FORGET_TEXTS, PROMPTS, PASSES = 8, 16, 4


def probed_time(content: str, out: Path, forget_texts: int) -> tuple[ExpectedTime, int]:
    """Return how long a sweep file would take, and how many of its trials run at the same time.

    A few texts are measured less efficiently than many, so it is rather too much than too little.

    Args:
        content: The file, which plans.
        out: Where it will be: what it names is found from there.
        forget_texts: How many it has.

    Raises:
        ConfigError: The texts are too few to be tried.
        StorageError: There is no room for what is tried.
        TrialError: The trial failed.
    """
    whole = plan_of(sweep_file_of(content, out))
    changes = {
        "methods": {"gradient_ascent": {"epochs": [PASSES], "training": {"early_stop": None}}},
        "data.forget.sequences": min(forget_texts, FORGET_TEXTS),
        "data.utility.prompts": PROMPTS,
    }
    few = plan_of(sweep_file_of(content, out, [f"{path}={flow(value)}" for path, value in changes.items()]))
    with writing(Path(tempfile.gettempdir()), "a temporary folder; TMPDIR names another place"):
        folder = tempfile.TemporaryDirectory(prefix="lethe-init-")
    with folder as root:
        folders = Folders.of_sweep(root, few.sweep)
        journal = Journal(folders.results / "journal")
        for job in jobs_for(read_results(few, journal), folders):
            if not job.spec.is_of_unseen:
                run_job(job, folders, lambda event: None)
        measured = read_results(few, journal)
        # The original's measurements loaded the judges: what a text takes is seen at the other trial.
        warm = [trial for trial in measured.trials if not trial.spec.is_reference]
        speeds = speeds_of([Results(few, tuple(warm))])
        nothing = read_results(whole, Journal(folders.results / "none"))
        to_memorize = [job.spec for job in jobs_for(nothing, folders) if job.kind == "memorize"]
    machine = this_machine()
    at_once = side_by_side(machine, whole.trials) if machine else 1
    return expected_time(nothing, to_memorize, speeds, at_once), at_once
