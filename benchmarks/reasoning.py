"""Speed of the evaluator `reasoning` on its tasks against lm-eval's, with one and with 32 choices at once.

    python -m benchmarks.reasoning [--model ID] [--limit N] [--repeats N]

The same model and questions, the embedded corpus's six tasks, in one process, one way after the other; seconds are
medians. lm-eval makes its requests from the questions each time, as it does for every model; Lethe keeps them. All must
give the same accuracies; the program says which differ.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measuring import Ratio, medians, seconds_of
from harness.contracts import Model
from harness.models.loading import load_model, load_tokenizer
from harness.models.resolving import resolve_model
from harness.plugins import EVALUATORS
from harness.records.artifacts import Artifacts
from harness.testing import small_task
from harness.toolkit import embedded_task

TASKS = ("piqa", "arc_easy", "copa", "pubmedqa", "winogrande", "hellaswag")
FILES = Path(__file__).parents[1] / "evaluators" / "reasoning_tasks"
BATCHES = (1, 32)


def main(argv: Sequence[str] | None = None) -> list[Ratio]:
    """Print seconds, ratios and differences; return the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="miniature-m")
    parser.add_argument("--limit", type=int, default=100, help="questions of each task")
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args(argv)
    logging.getLogger("lm_eval").setLevel(logging.CRITICAL)
    checkpoint = resolve_model(arguments.model, None)
    model, tokenizer = load_model(checkpoint), load_tokenizer(checkpoint)
    evaluator = EVALUATORS.configure("reasoning", {"limit": arguments.limit})
    accuracies: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        task = small_task(evaluator, model, Artifacts(Path(folder)))

        def ours() -> None:
            numbers = evaluator.evaluate(model, task).numbers
            accuracies["Lethe"] = {name: numbers[name] for name in TASKS}

        def theirs(batch: int) -> None:
            accuracies[f"lm-eval, batch {batch}"] = _lm_eval(model, tokenizer, arguments.limit, batch)

        ways = {"Lethe": partial(seconds_of, ours)}
        for batch in BATCHES:
            ways[f"lm-eval, batch {batch}"] = partial(seconds_of, partial(theirs, batch))
        seconds = medians(ways, arguments.repeats)
    print(f"{len(TASKS)} tasks of the embedded corpus, {arguments.limit} questions of each at most")
    for name, median in seconds.items():
        differ = [task for task in TASKS if accuracies[name][task] != accuracies["Lethe"][task]]
        note = f"differs on {', '.join(differ)}" if differ else "the same accuracies"
        print(f"{name:18} {median:7.2f} s = {median / seconds['Lethe']:5.2f} x; {note}")
    return [Ratio(name, seconds[name] / seconds["Lethe"], "1 at an equal batch") for name in ways if name != "Lethe"]


def _tasks(limit: int) -> dict[str, Any]:
    """Return lm-eval's tasks on the embedded corpus's questions, their requests made."""
    from datasets import Dataset
    from lm_eval.tasks import TaskManager

    configurations = []
    for name in TASKS:
        configuration = yaml.safe_load((FILES / f"{name}.yaml").read_text(encoding="utf-8"))
        rows = {"rows": Dataset.from_list(embedded_task(name))}
        configuration |= {"training_split": None, "validation_split": None, "test_split": "rows"}
        configurations.append(configuration | {"custom_dataset": lambda rows=rows, **_: rows})
    tasks = TaskManager(include_defaults=False).load(configurations)["tasks"]
    for task in tasks.values():
        task.set_config(key="num_fewshot", value=0)
        with contextlib.redirect_stderr(io.StringIO()):
            task.build_all_requests(limit=limit)
    return dict(tasks)


def _lm_eval(model: Model, tokenizer: Any, limit: int, batch: int) -> dict[str, float]:
    """Return the accuracies that lm-eval gives by itself."""
    from lm_eval.evaluator import evaluate
    from lm_eval.models.huggingface import HFLM

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        lm = HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", batch_size=batch)
        results = evaluate(lm, {"tasks": _tasks(limit), "groups": {}}, limit=limit, bootstrap_iters=1)["results"]
    return {name: float(results[name]["acc,none"]) for name in TASKS}


if __name__ == "__main__":
    main()
