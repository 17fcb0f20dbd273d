"""What Lethe uses of MLflow that MLflow does not document: an upgrade that changes it fails here, and says where."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient, environment_variables
from mlflow.exceptions import MlflowException

from harness.errors import DataError
from harness.records.tracking import database
from harness.records.tracking.database import check_database, connect, connect_alone, create_database
from harness.records.tracking.kept_models import model_name

UPGRADE = f"MLflow {mlflow.__version__} differs from the version that this was written for: adapt"
DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": database.ANSWER_SECONDS,
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": 1,
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": 1,
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": 0.0,
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": False,
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": True,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A database as Lethe has MLflow make it, which takes seconds."""
    root = tmp_path_factory.mktemp("mlflow")
    create_database(root)
    return root


@pytest.fixture
def root(tmp_path, made):
    (tmp_path / "mlflow.db").write_bytes((made / "mlflow.db").read_bytes())
    return tmp_path


def test_mlflow_names_the_schema_of_a_database_that_it_has_just_made(root):
    from mlflow.store.db.utils import _get_latest_schema_revision

    adapt = f"{UPGRADE} check_database (records/tracking/database.py), which asks MLflow for its schema's name."
    with closing(sqlite3.connect(root / "mlflow.db")) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [
            (_get_latest_schema_revision(),)
        ], adapt
        check_database(root)
        connection.execute("UPDATE alembic_version SET version_num = 'another'")
        connection.commit()
    with pytest.raises(DataError, match="has tables of another version of MLflow"):
        check_database(root)


@pytest.mark.parametrize("fails", [False, True], ids=["ends", "fails"])
def test_all_that_a_client_writes_goes_through_the_one_connection_that_was_made_for_it(root, fails):
    adapt = f"{UPGRADE} _connect_once (records/tracking/database.py), which has MLflow open one connection alone."
    try:
        client, together = connect_alone(root)
    except KeyError as error:
        pytest.fail(f"{adapt} MLflow opened no connection through SQLAlchemy's do_connect: {error}")
    seen = []
    with suppress(ZeroDivisionError), together():
        experiment = client.create_experiment("one")
        client.create_run(experiment, run_name="run")
        seen.append([each.name for each in MlflowClient(f"sqlite:///{root}/mlflow.db").search_experiments()])
        if fails:
            raise ZeroDivisionError
    seen.append(sorted(each.name for each in MlflowClient(f"sqlite:///{root}/mlflow.db").search_experiments()))
    assert seen == [["Default"], ["Default"] if fails else ["Default", "one"]], adapt


def test_mlflow_refuses_in_a_models_name_what_is_replaced_in_it(root):
    adapt = f"{UPGRADE} model_name (records/tracking/kept_models.py)."
    client = MlflowClient(f"sqlite:///{root}/mlflow.db")
    for character in ":./%\"'":
        with pytest.raises(MlflowException, match="Invalid model name"):
            client.create_logged_model("0", f"s{character}emso")
    name = "s:task_arithmetic@1e-05, 0.5/%\"'"
    assert client.create_logged_model("0", model_name(name)).name == model_name(name), adapt


def test_the_defaults_of_mlflows_settings_can_be_replaced(monkeypatch):
    adapt = f"{UPGRADE} _import_mlflow (records/tracking/database.py), which replaces their defaults."
    for name in DEFAULTS:
        monkeypatch.delenv(name, raising=False)
    connect("http://127.0.0.1:9")
    assert {name: getattr(environment_variables, name).get() for name in DEFAULTS} == DEFAULTS, adapt
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "7")
    assert environment_variables.MLFLOW_HTTP_REQUEST_TIMEOUT.get() == 7, adapt


def test_mlflows_page_reads_views_in_the_form_that_is_written_for_it():
    adapt = f"{UPGRADE} records/tracking/saved_views.py, which writes views as MLflow's page does. It has no more:"
    page = Path(mlflow.__file__).parent / "server" / "js" / "build"
    scripts = "".join(file.read_text(encoding="utf-8") for file in sorted(page.rglob("*.js")))
    names = ["mlflow.sharedViewState.", "viewStateShareKey", "compareRunsMode", "workflowType", "mlflow.experimentKind"]
    names += ["custom_model_development", "searchFilter", "orderByKey", "selectedColumns", "columnOrder"]
    names += ["columnWidths", "runsHiddenMode", "compareRunSections", "compareRunCharts", "isAccordionReordered"]
    names += ["metricSectionId", "selectedParams", "selectedMetrics", "showAllRuns", "runsCountToCompare", "SHOW_ALL"]
    assert [name for name in names if name not in scripts] == [], adapt


@pytest.mark.parametrize("chosen", [None, "NullPool"])
def test_the_pool_is_chosen_without_the_environment(root, monkeypatch, chosen):
    """A trial beside it may have the environment put back at any moment."""
    pool = environment_variables.MLFLOW_SQLALCHEMYSTORE_POOLCLASS
    monkeypatch.delenv(pool.name, raising=False)
    if chosen:
        monkeypatch.setenv(pool.name, chosen)
    before, seen, plain_connect = dict(os.environ), [], connect

    def connecting(uri):
        seen.append((dict(os.environ), pool.get()))
        return plain_connect(uri)

    monkeypatch.setattr(database, "connect", connecting)
    connect_alone(root)
    assert seen == [(before, "StaticPool")]
    assert (dict(os.environ), pool.get()) == (before, chosen)
