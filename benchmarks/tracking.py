"""How much faster the copy to MLflow is than MLflow's client, with a batch for each run and a call for each number.

    python -m benchmarks.tracking [--trials N] [--points N] [--kept] [--rows N]

The benchmark makes the journal of a sweep. Lethe writes it to a new SQLite database; the other ways copy the runs that
are in it then to others, in the same process, one after the other, `--rows` of them, and are scaled up. The figures
that matter are the ratios. The last line is what a sweep that was tracked while it ran waits for at its end.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run

from benchmarks.measuring import Ratio, seconds_of
from harness.library import load_results
from harness.planning.plan import plan
from harness.plugins import EVALUATORS
from harness.records.artifacts import Artifacts
from harness.records.journal import Journal
from harness.records.record import Measurement, Point, Started
from harness.records.tracking.database import EXPERIMENT, connect, create_database, database_uri
from harness.records.tracking.tracker import Tracker
from harness.reporting.point_tags import point_tags
from harness.specs import TrialSpec

Write = Callable[[MlflowClient, str, Run], None]


def main(argv: Sequence[str] | None = None) -> list[Ratio]:
    """Print seconds and ratios; return the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--points", type=int, default=1, help="of each trial")
    parser.add_argument("--kept", action="store_true", help="every erased model was kept")
    parser.add_argument("--rows", type=int, default=100, help="runs for the other ways")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _journal(root / "many", arguments.trials, arguments.points)
        outcome = load_results(root / "many")
        tags = point_tags(outcome.ranked.table)
        for point in outcome.results.measured if arguments.kept else ():
            if not point.spec.is_reference:
                Artifacts(root / "artifacts").build("erased", point.spec.point_id(point.strength), lambda folder: None)
        live, later = Tracker(root), Tracker(root)
        live.prepare()
        written = seconds_of(lambda: live.sync(outcome.results))
        at_the_end = seconds_of(lambda: live.sync(outcome.results, tags))
        unchanged = seconds_of(lambda: later.sync(outcome.results, tags))
        client = connect(database_uri(root))
        experiment = client.get_experiment_by_name(EXPERIMENT)
        runs = list(client.search_runs([experiment.experiment_id], max_results=50_000))
        print(f"{len(outcome.results.trials)} trials, {len(outcome.results.measured)} points, {len(runs)} runs")
        bare = seconds_of(lambda: _bare_copy(root))
        print(f"{'Lethe':34} {written:8.1f} s")
        print(f"{'the rows alone, copied by SQLite':34} {bare:8.1f} s")
        ratios = []
        for name, write in (("a batch for each run", _batch), ("a call for each number", _one_by_one)):
            scaled = _copied(root / name, runs[: arguments.rows], write) * len(runs) / min(arguments.rows, len(runs))
            ratios.append(
                Ratio(f"MLflow's client, {name}", scaled / written, f"{scaled / bare:.0f}: SQLite's own copy")
            )
            print(f"{name:34} {scaled:8.1f} s = {scaled / written:6.1f} x, scaled from {arguments.rows} runs")
        print(f"{'the table`s tags, at the end':34} {at_the_end:8.1f} s")
        print(f"{'again, nothing new':34} {unchanged:8.1f} s")
    return ratios


def _bare_copy(root: Path) -> None:
    """Write the same rows and indexes to a new database, as fast as SQLite does by itself."""
    with contextlib.closing(sqlite3.connect(root / "mlflow.db")) as database:
        database.execute("VACUUM INTO ?", [str(root / "copy.db")])


def _journal(folder: Path, trials: int, points: int) -> None:
    """Write what a sweep's trials leave: EMSO's of the smoke sweep, again and again, and its references."""
    smoke = plan(Path("sweeps/smoke.yaml"))
    emso = next(spec for spec in smoke.trials if spec.method == "emso")
    strengths = tuple(range(1, points + 1))
    made = [replace(emso, trial_id=f"{seed:016x}", seed=seed, strengths=strengths) for seed in range(trials)]
    specs = [replace(spec, sweep=folder.name) for spec in (*(s for s in smoke.trials if s.is_reference), *made)]
    journal = Journal(folder / "journal")
    journal.write_plan(replace(smoke, sweep=folder.name, trials=tuple(specs)))
    for spec in specs:
        journal.append(Started(trial_id=spec.trial_id, spec=spec.to_json(), versions={"torch": "2"}, node="here"))
        for strength in spec.points():
            _journal_point(journal, spec, strength)


def _journal_point(journal: Journal, spec: TrialSpec, strength: float | None) -> None:
    at = {"trial_id": spec.trial_id, "point_id": spec.point_id(strength), "strength": strength}
    if not spec.is_reference:
        journal.append(Point(**at, erase_seconds=strength or 0.0, peak_memory_bytes=1, notes={}))
    for evaluator in spec.evaluators:
        metrics = EVALUATORS.configure(evaluator.name, evaluator.settings).metrics
        measured = {"evaluator": evaluator.name, "key": evaluator.key, "definition": "exact", "seconds": 1.0}
        measured |= {"numbers": {metric.name: 0.5 + spec.seed / 1e4 for metric in metrics}}
        measured |= {"metrics": tuple(map(asdict, metrics)), "samples": (), "notes": {}, "items": ""}
        journal.append(Measurement(**at, **measured))


def _copied(root: Path, runs: list[Run], write: Write) -> float:
    """Return how long it takes to write runs to a new database."""
    create_database(root)
    client = connect(database_uri(root))
    experiment = client.create_experiment(EXPERIMENT)
    return seconds_of(lambda: [write(client, experiment, run) for run in runs])


def _batch(client: MlflowClient, experiment: str, run: Run) -> None:
    made = client.create_run(experiment, run.info.start_time, run.data.tags).info.run_id
    metrics = [Metric(name, value, 0, 0) for name, value in run.data.metrics.items()]
    client.log_batch(made, metrics, [Param(name, value) for name, value in run.data.params.items()])
    client.set_terminated(made, run.info.status, run.info.end_time)


def _one_by_one(client: MlflowClient, experiment: str, run: Run) -> None:
    made = client.create_run(experiment, run.info.start_time).info.run_id
    for name, value in run.data.tags.items():
        client.set_tag(made, name, value)
    for name, value in run.data.params.items():
        client.log_param(made, name, value)
    for name, value in run.data.metrics.items():
        client.log_metric(made, name, value, 0, 0)
    client.set_terminated(made, run.info.status, run.info.end_time)


if __name__ == "__main__":
    main()
