"""Writes the models that sweeps kept to MLflow, as logged models of their points' runs: what they are, no weights.

A model's numbers are those of its run, and are written with them (`run_writer`). It is ready once it has them all: one
that is not, since a process died meanwhile, is completed by the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from harness.records.tracking.runs import DataSet, KeptModel

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

_PAGE = 1000


class HeldModel:
    """What MLflow holds of a kept model, as far as it was asked."""

    def __init__(self, model: LoggedModel) -> None:
        self.model_id: str = model.model_id
        self.run_id: str = model.source_run_id or ""
        self.is_ready: bool = model.status.name == "READY"
        self.tags: dict[str, str] = dict(model.tags)
        self.data_sets: Mapping[str, DataSet] = {}
        """What each group of its metrics was measured on, once that is known."""


class ModelWriter:
    """Reads and writes the logged models of one experiment."""

    def __init__(self, client: MlflowClient, experiment: str) -> None:
        self._client, self._experiment = client, experiment

    def search(self, condition: str) -> Iterator[HeldModel]:
        """Yield the models that meet a condition, by pages."""
        token = None
        while True:
            page = self._client.search_logged_models([self._experiment], condition, max_results=_PAGE, page_token=token)
            for model in page:
                yield HeldModel(model)
            if not (token := page.token):
                return

    def create(self, run_id: str, content: KeptModel, params: Mapping[str, str], tags: Mapping[str, str]) -> HeldModel:
        """Make a run's model, which is not ready yet."""
        model = self._client.create_logged_model(
            self._experiment, content.name, run_id, dict(tags), dict(params), "erased"
        )
        return HeldModel(model)

    def link(self, model: HeldModel) -> None:
        """Have the page of a model's run show it."""
        from mlflow.entities import LoggedModelOutput

        self._client.log_outputs(model.run_id, [LoggedModelOutput(model.model_id, 0)])

    def finish(self, model: HeldModel, tags: Mapping[str, str]) -> None:
        """Give a model that has all its numbers the tags that it lacks, and call it ready."""
        if changed := {name: value for name, value in tags.items() if model.tags.get(name) != value}:
            self._client.set_logged_model_tags(model.model_id, changed)
            model.tags |= changed
        if not model.is_ready:
            self._client.finalize_logged_model(model.model_id, "READY")
            model.is_ready = True

    def delete(self, model: HeldModel) -> None:
        """Remove a model from MLflow's list."""
        self._client.delete_logged_model(model.model_id)
