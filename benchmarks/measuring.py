"""Parts of all benchmarks: taking times in turn, and the ratios that `make bench` shows at its end."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """A rival against Lethe in one run, or Lethe against its target."""

    what: str
    value: float
    limit: str
    """What the ratio could be at best, or should be at most, and why."""

    def row(self, benchmark: str) -> str:
        """Return it as a row of a Markdown table.

        Example:
            >>> Ratio("a call for each number", 12.345, "–").row("selection")
            '| selection | a call for each number | 12.3 | – |'
        """
        return f"| {benchmark} | {self.what} | {self.value:.3g} | {self.limit} |"


def seconds_of(run: Callable[[], object]) -> float:
    """Return the seconds of `run`."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def medians(ways: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Return the median of each way's seconds: all are run in turn, so often, after one turn that does not count.

    Args:
        ways: Each runs once, and returns the seconds that count.
        repeats: How many turns count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            seconds[name].append(way())
    return {name: statistics.median(times[1:]) for name, times in seconds.items()}


def table(ratios: Mapping[str, Sequence[Ratio]]) -> str:
    """Return all ratios as a Markdown table, by benchmark."""
    lines = ["| benchmark | what | ratio | limit |", "| --- | --- | --: | --- |"]
    for benchmark, benchmark_ratios in ratios.items():
        lines += [ratio.row(benchmark) for ratio in benchmark_ratios]
    return "\n".join(lines)
