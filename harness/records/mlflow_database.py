"""Where MLflow keeps its runs on this machine, and the page that shows them."""

from __future__ import annotations

import logging
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from harness.errors import DataError
from harness.files import locked
from harness.terminal import tell

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "lethe"


def serve_dashboard(results_root: Path, port: int = 5000) -> NoReturn:
    """Become MLflow's web server for these results, on 127.0.0.1 alone.

    Raises:
        DataError: Nothing has been tracked here yet.
    """
    root = results_root.resolve()
    if not (root / "mlflow.db").exists():
        raise DataError(f"there is no {root}/mlflow.db. Run a sweep first: python -m harness.sweep FILE.")
    known = connect(database_uri(root)).get_experiment_by_name(EXPERIMENT)
    if known:  # MLflow's own front page is that of chat traces.
        page = f"#/experiments/{known.experiment_id}/runs?workflowType=machine_learning"
        tell(f"The runs, in a moment: http://127.0.0.1:{port}/{page}")
    stores = ["--backend-store-uri", database_uri(root), "--artifacts-destination", artifacts_uri(root)]
    server = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    command = [sys.executable, "-m", "mlflow", "server", *stores, *server]
    os.execve(sys.executable, command, {**os.environ, **quiet})


def connect(uri: str) -> MlflowClient:
    """Return a client of a database or server, with telemetry and its chatter off."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    return MlflowClient(uri)


def database_uri(root: Path) -> str:
    """Return the URI of the database of all sweeps in a results folder, which is made."""
    root.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{root}/mlflow.db"


def create_database(root: Path) -> None:
    """Create the database whole or not at all: MLflow cannot go on with one whose tables it was making when killed."""
    database = root / "mlflow.db"
    with locked(root / ".mlflow-lock"):
        for leftover in root.glob(".mlflow-*.db"):
            leftover.unlink()
        if not database.exists():
            unfinished = root / f".mlflow-{secrets.token_hex(4)}.db"
            connect(f"sqlite:///{unfinished}").search_experiments()
            unfinished.rename(database)


def artifacts_uri(root: Path) -> str:
    """Return the URI of the folder where MLflow keeps attached files."""
    return (root / "mlartifacts").as_uri()
