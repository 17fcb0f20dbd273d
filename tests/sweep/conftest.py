"""Ray runs in these tests' own process, and warns of what is its own."""

from pathlib import Path

import pytest

OF_RAY = (
    "ignore::DeprecationWarning:ray",
    "ignore::FutureWarning:ray",
    "ignore:unclosed:ResourceWarning",  # It leaves sockets and logs to the end of the process,
    "ignore:subprocess .* is still running:ResourceWarning",  # and its servers.
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning",  # The same, said at the end.
)


@pytest.fixture(scope="session", autouse=True)
def quick_tables(copied_mlflow_tables):
    """Spare each sweep the seconds that MLflow takes to make its tables."""


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for line in OF_RAY:
                item.add_marker(pytest.mark.filterwarnings(line))


@pytest.fixture
def sweep_file(request, tmp_path):
    """A sweep file with its module's `SWEEP`."""
    file = tmp_path / "sweep.yaml"
    file.write_text(request.module.SWEEP)
    return file
