"""The base of both conformance suites."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.execution.trial.inputs import clear_shared
from harness.execution.trial.tasks import ErasingTask, MeasuringTask
from harness.records.artifacts import Artifacts


class Conformance:
    """What both suites need."""

    @pytest.fixture(scope="class")
    @classmethod
    def artifacts(cls, tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
        """Return an empty folder of artifacts, shared by a class's tests."""
        return Artifacts(tmp_path_factory.mktemp("artifacts"))


@contextmanager
def left_alone(task: ErasingTask | MeasuringTask) -> Iterator[None]:
    """Assert at the end of the block that neither its task nor what the process shares has changed."""
    try:
        yield
        assert_unchanged([*task.process_state.changed(), *task.changes()])
    finally:
        task.process_state.restore()  # The next test is no neighbour to harm.
        clear_shared()


def assert_unchanged(changed: list[str]) -> None:
    """Fail with the names of everything that has changed."""
    assert not changed, f"it leaves changed: {', '.join(changed)}"
