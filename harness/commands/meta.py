"""Say which metric can be trusted: does it tell memorised models from retrained ones, and still once disturbed?

    lethe meta results/meta
    lethe meta results/meta --metrics ma extraction_strength

Every erased model of a finished sweep, and every retrained one, is trained for one epoch on the forget set and, apart
from that, rounded to 4 bits; and measured again. What is measured is kept: a run that was ended goes on. It leaves
meta.csv, meta.md and meta.json beside the sweep's tables.

Exit codes: 0 said; 1 some models could not be disturbed or measured; 2 the folder cannot be read, its sweep is not
finished, or it lacks models or metrics; 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from harness.base.paths import folder_argument
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.contracts import RoundingScheme
from harness.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from harness.analysis.meta.robustness import Disturbed
    from harness.execution.trial.disturbed import DisturbanceSettings, DisturbedTask
    from harness.records.results import Results

_DIGITS = 16
"""Of a digest, as tables print it."""


class MetaCommand(Command):
    """`lethe meta`."""

    interrupted = "What is measured is kept: run the same command again to continue."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the results, the metrics, and how models are disturbed."""
        parser.add_argument("folder", type=folder_argument, help="a finished sweep's results: results/meta")
        about = "which metrics are judged (default: all of erasure and robustness)"
        parser.add_argument("--metrics", nargs="+", default=[], metavar="NAME", help=about)
        about = "learning rate of the epoch on the forget set (default: %(default)g)"
        parser.add_argument("--rate", type=_rate_argument, default=1e-4, help=about)
        about = "to what weights are rounded (default: %(default)s, as in the public study)"
        parser.add_argument("--scheme", choices=get_args(RoundingScheme), default="nf4", help=about)
        about = "trials at the same time (default: as many as have CPUs)"
        parser.add_argument("--jobs", type=_jobs_argument, help=about)

    def run(self, arguments: argparse.Namespace) -> int:
        """Measure what is missing of the disturbed models, and print and write how far each metric can be believed."""
        from harness.analysis.meta.belief import belief_file
        from harness.analysis.meta.evaluation import meta_evaluation
        from harness.base.csv_text import csv_text
        from harness.base.files import write_whole
        from harness.execution.disturbing import measure_all
        from harness.execution.trial.disturbed import DisturbanceSettings
        from harness.library import read_folder, refuse_without_results
        from harness.reporting.meta import meta_markdown, meta_table
        from harness.reporting.text_tables import table_console

        refuse_without_results(arguments.folder)
        results = read_folder(arguments.folder)
        _refuse_unfinished(results, arguments.folder)
        settings = DisturbanceSettings(learning_rate=arguments.rate, scheme=arguments.scheme)
        tasks = disturbed_tasks(results, arguments.folder.resolve().parent / "artifacts", settings, arguments.metrics)
        cpus = max(task.spec.cpus for task in tasks)
        failures = measure_all(tasks, arguments.jobs or max(1, (os.cpu_count() or 1) // cpus), tell)
        evaluation = meta_evaluation(results, measured_numbers(tasks), arguments.metrics)
        provenance = provenance_of(results, tasks, settings)
        written = {
            "meta.csv": csv_text(evaluation.frame),
            "meta.md": meta_markdown(evaluation, provenance, results.plan.question),
            "meta.json": belief_file(evaluation, provenance),
        }
        for name, text in written.items():
            write_whole(arguments.folder / name, text)
        table_console().print(meta_table(evaluation))
        tell(f"Written: {', '.join(str(arguments.folder / name) for name in written)}")
        tell(*(f"not measured: {failure}" for failure in failures), is_error=True)
        return 1 if failures else 0


def _rate_argument(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is no learning rate: give a number above 0, such as 1e-4")
    return rate


def _jobs_argument(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of trials: give a whole number of at least 1")
    return int(text)


def _refuse_unfinished(results: Results, folder: Path) -> None:
    if results.unfinished:
        raise DataError(
            f"{len(results.unfinished)} of {len(results.trials)} trials in {folder} are not finished, the first "
            f"'{results.unfinished[0].spec.label}' on {results.unfinished[0].spec.model.id}. Run the sweep again: it "
            "does only what is missing."
        )


def disturbed_tasks(
    results: Results, artifacts: Path, settings: DisturbanceSettings, chosen: Sequence[str] = ()
) -> list[DisturbedTask]:
    """Return what is to be disturbed and measured: each trial's erased models both ways, retrained models relearned.

    Raises:
        DataError: The sweep has too few models, no such metric, or erases nothing.
    """
    from harness.analysis.meta.evaluation import erased_points
    from harness.analysis.meta.pools import judged_metrics, pools
    from harness.analysis.metrics import metric_info
    from harness.execution.trial.disturbed import DISTURBANCES, Disturbance, DisturbedTask

    both, judged = pools(results), judged_metrics(metric_info(results), chosen)
    points = erased_points(results)
    if not points:
        raise DataError(f"the sweep '{results.plan.sweep}' erased nothing, so nothing shows what disturbing changes.")
    names: dict[str, None] = {}
    for measurement in points[0].measurements:
        if judged.keys() & measurement.numbers.keys():
            names[measurement.evaluator] = None
    by_trial: dict[str, list[Any]] = {}
    for point in (*both.retrained, *points):
        by_trial.setdefault(point.spec.trial_id, []).append(point)
    tasks = []
    for of_trial in by_trial.values():
        spec = of_trial[0].spec
        disturbances: tuple[Disturbance, ...] = ("relearned",) if spec.is_reference else DISTURBANCES
        tasks.append(
            DisturbedTask(
                spec=spec,
                strengths=tuple(point.strength for point in of_trial),
                evaluators=tuple(names),
                disturbances=disturbances,
                settings=settings,
                artifacts=str(artifacts),
            )
        )
    return tasks


def measured_numbers(tasks: Sequence[DisturbedTask]) -> dict[str, Disturbed]:
    """Return what disturbed models have, by the id of the point that they were before."""
    from pathlib import Path

    from harness.records.artifacts import Artifacts

    by_point: dict[str, Disturbed] = {}
    for task in tasks:
        artifacts = Artifacts(Path(task.artifacts))
        for strength in task.strengths:
            numbers: dict[str, Mapping[str, float]] = {}
            for disturbance in task.disturbances:
                numbers[disturbance] = task.numbers(strength, disturbance, artifacts)
            by_point[task.spec.point_id(strength)] = numbers
    return by_point


def provenance_of(results: Results, tasks: Sequence[DisturbedTask], settings: DisturbanceSettings) -> Mapping[str, str]:
    """Return what the numbers were made with: models, texts, evaluators, disturbances, seeds and versions."""
    from harness.execution.environment import hardware, versions
    from harness.records.tracking.runs import own_commit

    specs = [task.spec for task in tasks]
    models = {spec.model.id: spec.model.digest[:_DIGITS] for spec in specs}
    twins = {spec.model.id: spec.retrained.digest[:_DIGITS] for spec in specs if spec.retrained}
    sources = {"forget": (specs[0].measured or specs[0].forget).digest[:_DIGITS]}
    for evaluator in specs[0].evaluators:
        sources |= {role: source.digest[:_DIGITS] for role, source in evaluator.texts.items()}
    evaluators = [f"{spec.name} {spec.version} ({spec.key[:_DIGITS]})" for spec in specs[-1].evaluators]
    of_packages = versions()
    packages = ("lethe", "python", "torch", "transformers", "numpy")
    return {
        "sweep": results.plan.sweep,
        "models": _listed(models),
        "retrained models": _listed(twins),
        "seeds of erasing": ", ".join(map(str, sorted({spec.seed for spec in specs}))),
        "texts": _listed(sources),
        "evaluators": ", ".join(evaluators),
        "relearned": f"one epoch on the forget set, AdamW at {settings.learning_rate:g}, {settings.batch} texts a step",
        "rounded": settings.scheme,
        "versions": ", ".join(f"{name} {of_packages[name]}" for name in packages),
        "commit": own_commit() or "not known",
        "processor": _listed(hardware(has_gpu=False)),
    }


def _listed(named: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in named.items())


main = MetaCommand()
