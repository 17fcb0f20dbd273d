"""Seconds of the copy of a sweep to MLflow: a new one, its table's tags at the end, and again with nothing new.

    python -m benchmarks.tracking [--trials N] [--points N]

The benchmark makes the journal of a sweep and writes it to a new SQLite database. 1,000 points may take three minutes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.measuring import Ratio, seconds_of
from harness.library import load_results
from harness.planning.plan import plan
from harness.plugins import EVALUATORS
from harness.records.journal import Journal, Measurement, Point, Started
from harness.records.mlflow import connect, copy_sweep
from harness.reporting.files import point_tags
from harness.settings import Trial, replace

LIMIT_SECONDS = 180
"""For 1,000 points."""


def main(argv: Sequence[str] | None = None) -> list[Ratio]:
    """Print seconds; return the share of the limit that 1,000 new points take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--points", type=int, default=1, help="of each trial")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "many"
        _journal(folder, arguments.trials, arguments.points)
        outcome = load_results(folder)
        tags, points = point_tags(outcome.ranked.table), len(outcome.results.measured)
        seconds = {
            "import of MLflow and its database": seconds_of(lambda: connect(folder.parent)),
            "new": seconds_of(lambda: copy_sweep(folder, outcome.results, {})),
            "the table's tags": seconds_of(lambda: copy_sweep(folder, outcome.results, tags)),
            "again, nothing new": seconds_of(lambda: copy_sweep(folder, outcome.results, tags)),
        }
    print(f"{len(outcome.results.trials)} trials, {points} points")
    for name, taken in seconds.items():
        print(f"{name:34} {taken:8.1f} s")
    whole = seconds["new"] + seconds["the table's tags"]
    return [Ratio("1,000 points, of three minutes", whole * 1000 / points / LIMIT_SECONDS, "1")]


def _journal(folder: Path, trials: int, points: int) -> None:
    """Write the records of a sweep's trials: EMSO's of the smoke sweep, again and again, and its references."""
    smoke = plan(Path("sweeps/smoke.yaml"))
    emso = next(spec for spec in smoke.trials if spec.method == "emso")
    strengths = tuple(range(1, points + 1))
    copies = [replace(emso, trial_id=f"{seed:016x}", seed=seed, strengths=strengths) for seed in range(trials)]
    specs = [replace(spec, sweep=folder.name) for spec in (*(s for s in smoke.trials if s.is_reference), *copies)]
    journal = Journal(folder / "journal")
    journal.write_plan(replace(smoke, sweep=folder.name, trials=tuple(specs)))
    for spec in specs:
        journal.append(
            Started(trial_id=spec.trial_id, spec=spec.model_dump(mode="json"), versions={"torch": "2"}, node="here")
        )
        for strength in spec.points():
            _journal_point(journal, spec, strength)


def _journal_point(journal: Journal, spec: Trial, strength: float | None) -> None:
    at = {"trial_id": spec.trial_id, "point_id": spec.point_id(strength), "strength": strength}
    if not spec.is_reference:
        journal.append(Point(**at, erase_seconds=strength or 0.0, peak_memory_bytes=1, notes={}))
    for evaluator in spec.evaluators:
        metrics = EVALUATORS.configure(evaluator.name, evaluator.settings).metrics
        measured = {"evaluator": evaluator.name, "key": evaluator.key, "definition": "exact", "seconds": 1.0}
        measured |= {"numbers": {metric.name: 0.5 + spec.seed / 1e4 for metric in metrics}}
        measured |= {"metrics": tuple(map(asdict, metrics)), "samples": (), "notes": {}, "items": ""}
        journal.append(Measurement(**at, **measured))


if __name__ == "__main__":
    main()
