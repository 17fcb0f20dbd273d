"""Disturbed models of a whole sweep, several trials at a time, each in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from harness.execution.trial.disturbed import DisturbedTask, measure_disturbed


def measure_all(tasks: Sequence[DisturbedTask], jobs: int, say: Callable[[str], None]) -> list[str]:
    """Measure what is missing of all disturbed models; what is measured stays, whatever happens.

    Args:
        tasks: One for each trial.
        jobs: Processes at the same time; 1: this one.
        say: Is told after each trial how far this is.

    Returns:
        Why something could not be measured, in sentences.
    """
    failures: list[str] = []
    if jobs == 1:
        for number, task in enumerate(tasks, start=1):
            failures += measure_disturbed(task)
            say(f"{number} of {len(tasks)} trials: {task.spec.label} on {task.spec.model.id}")
        return failures
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(measure_disturbed, task): task.spec for task in tasks}
        try:
            for number, future in enumerate(as_completed(futures), start=1):
                failures += future.result()
                spec = futures[future]
                say(f"{number} of {len(tasks)} trials: {spec.label} on {spec.model.id}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failures
