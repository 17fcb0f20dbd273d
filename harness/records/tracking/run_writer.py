"""Writes runs to MLflow: what a run is to hold and does not hold yet, and nothing twice.

Whatever moment a process dies at, the next one completes what is there. Numbers go before the tag that says that they
are all there, so that a run which has it is never read back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.digests import digest_of, file_digest
from harness.records.tracking.model_writer import HeldModel, ModelWriter
from harness.records.tracking.runs import DataSet, KeptModel, Metrics, RunContent, Span, contradicts
from harness.specs import TrialSpec

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Run

NUMBERS_TAG = "numbers_digest"
_BATCH = 700
_PAGE = 5000


class HeldRun:
    """What MLflow holds of a run, as far as it was asked."""

    def __init__(self, run: Run) -> None:
        self.run_id: str = run.info.run_id
        self.started_ms: int = run.info.start_time
        self.status: str = run.info.status
        self.tags: dict[str, str] = dict(run.data.tags)
        self.params: set[str] = set(run.data.params)
        self.has_inputs = bool(run.inputs and run.inputs.dataset_inputs)
        self.outputs: set[str] = {output.model_id for output in run.outputs.model_outputs} if run.outputs else set()
        self.model: HeldModel | None = None
        self.last_values: dict[str, float] = dict(run.data.metrics)
        """Of each metric, at its last step."""


class RunWriter:
    """Reads and writes the runs of one experiment."""

    def __init__(self, client: MlflowClient, experiment: str) -> None:
        self._client, self._experiment = client, experiment
        self.models = ModelWriter(client, experiment)

    def search(self, condition: str) -> Iterator[HeldRun]:
        """Yield the runs that meet a condition, by pages."""
        token = None
        while True:
            page = self._client.search_runs([self._experiment], condition, max_results=_PAGE, page_token=token)
            for run in page:
                yield HeldRun(run)
            if not (token := page.token):
                return

    def create(self, tags: Mapping[str, str], span: Span) -> HeldRun:
        """Make a run that began when `span` says, or, where that is not known, as long ago as it took."""
        start = span.started.timestamp() if span.started else time.time() - span.seconds
        # MLflow would draw a name from the random numbers that a trial in this process draws from.
        name = tags["mlflow.runName"]
        return HeldRun(self._client.create_run(self._experiment, int(start * 1000), dict(tags), run_name=name))

    def fill(self, held: HeldRun | None, content: RunContent, tags: Mapping[str, str]) -> HeldRun:
        """Make a run hold what it is to hold, and return it.

        Args:
            held: The run that is there, if any. One whose numbers are others is deleted, and a new one made:
                measured numbers cannot be changed in MLflow; another evaluator setting makes a new run.
            content: What it is to hold.
            tags: More tags, such as what it is nested in.
        """
        tags = {**content.tags, **tags}
        held, metrics = self._missing(held, content)
        if held is None:
            held = self.create(tags, content.span)
        if content.spec and not held.has_inputs:
            self._client.log_inputs(held.run_id, _inputs(content.spec))
            held.has_inputs = True
        tags_of_model = _tags_of_model(tags, content.model) if content.model else {}
        self._hold_model(held, content, tags_of_model)
        self.write(held, metrics, content.params, {**tags, NUMBERS_TAG: content.numbers_digest})
        if held.model:
            self.models.finish(held.model, tags_of_model)
        self.end(held, content.status, content.span)
        return held

    def _missing(self, held: HeldRun | None, content: RunContent) -> tuple[HeldRun | None, Metrics]:
        """Return the numbers that are to be written, and the run: None where its own contradict them."""
        is_whole = held is not None and held.tags.get(NUMBERS_TAG) == content.numbers_digest
        has_model = held is not None and held.model is not None and held.model.is_ready
        if is_whole and (has_model or content.model is None):
            return held, {}
        there = self._metrics(held) if held else {}
        if held and contradicts(there, content.metrics):
            self._client.delete_run(held.run_id)
            self._remove_model(held)
            held, there = None, {}
        if content.model:  # It gets all numbers of its run, also those that the run has already.
            return held, {key: there.get(key, value) for key, value in content.metrics.items()}
        return held, {key: value for key, value in content.metrics.items() if key not in there}

    def _hold_model(self, held: HeldRun, content: RunContent, tags: Mapping[str, str]) -> None:
        """Make sure that a run has the model that was kept, and none where none is kept any longer."""
        if content.model is None:
            self._remove_model(held)
            return
        if held.model is None:
            held.model = self.models.create(held.run_id, content.model, content.params, tags)
        held.model.data_sets = content.model.data_sets
        if held.model.model_id not in held.outputs:
            self.models.link(held.model)
            held.outputs.add(held.model.model_id)

    def _remove_model(self, held: HeldRun) -> None:
        if held.model:
            self.models.delete(held.model)
            held.model = None

    def write(self, held: HeldRun, metrics: Metrics, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Write metrics, to the run and to its model, and the params and tags that the run lacks; tags come last.

        A metric's time is the run's start: to MLflow, what is written a second time is then what it has.
        """
        from mlflow.entities import Metric, Param, RunTag

        model_id = held.model.model_id if held.model else None
        points = []
        for (name, step), value in metrics.items():
            texts = held.model.data_sets.get(name.partition("/")[0]) if held.model else None
            of_texts = (texts.name, texts.digest) if texts else (None, None)
            points.append(Metric(name, value, held.started_ms, step, model_id, *of_texts))
        settings = [Param(key, value) for key, value in params.items() if key not in held.params]
        while len(points) > _BATCH or len(settings) > 100:
            self._client.log_batch(held.run_id, points[:_BATCH], settings[:100])
            points, settings = points[_BATCH:], settings[100:]
        changed = [RunTag(key, value) for key, value in tags.items() if held.tags.get(key) != value]
        while points or settings or changed:
            self._client.log_batch(held.run_id, points, settings, changed[:100])
            points, settings, changed = [], [], changed[100:]
        for (name, _), value in metrics.items():
            held.last_values[name] = value
        held.params |= params.keys()
        held.tags |= tags

    def end(self, held: HeldRun, run_status: str, span: Span) -> None:
        """Give a run its status; one that ended did so when `span` says, or else once it took as long as it did."""
        if held.status == run_status:
            return
        if run_status == "RUNNING":
            self._client.update_run(held.run_id, status=run_status)
        else:
            end_ms = int(span.ended.timestamp() * 1000) if span.ended else held.started_ms + int(span.seconds * 1000)
            self._client.set_terminated(held.run_id, run_status, end_ms)
        held.status = run_status

    def attach(self, held: HeldRun, files: Mapping[str, Path]) -> None:
        """Attach files to a run; the tag `attached`, written last, says of what content they are."""
        content = digest_of({name: file_digest(path) for name, path in files.items()})
        there = {file.path for file in self._client.list_artifacts(held.run_id)}
        if held.tags.get("attached") == content and files.keys() <= there:
            return
        for path in files.values():
            self._client.log_artifact(held.run_id, str(path))
        self.write(held, {}, {}, {"attached": content})

    def _metrics(self, held: HeldRun) -> Metrics:
        """Return all numbers that a run holds: a point's have one step, others are read back one by one."""
        if held.tags.get("kind") == "point":
            return {(name, 0): value for name, value in held.last_values.items()}
        metrics: Metrics = {}
        for name in held.last_values:
            for entry in self._client.get_metric_history(held.run_id, name):
                metrics[entry.key, entry.step] = entry.value
        return metrics


def _tags_of_model(tags: Mapping[str, str], model: KeptModel) -> dict[str, str]:
    """Return a model's tags: its own, and its run's but for those that say what MLflow does with a run."""
    of_model = {}
    for name, value in tags.items():
        is_for_runs = name in ("kind", "times") or name.startswith("mlflow.")
        if name.startswith("mlflow.source.") or not is_for_runs:
            of_model[name] = value
    return of_model | dict(model.tags)


def _inputs(spec: TrialSpec) -> list[DatasetInput]:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    texts = [(spec.method if spec.is_of_unseen else "forget", spec.forget)]
    if spec.measured is not None:
        texts.append(("forget", spec.measured))
    if spec.retain is not None:
        texts.append(("retain", spec.retain))
    inputs = []
    for role, source in (*texts, ("utility", spec.utility), ("validation", spec.validation)):
        named = DataSet.of(role, source)
        dataset = Dataset(named.name, named.digest, "digest", "{}")
        inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", role)]))
    return inputs
