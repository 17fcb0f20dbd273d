"""MLflow never hurts a sweep: whatever it does, the sweep goes on, hears of it once, and is not kept waiting."""

import contextlib
import http.server
import logging
import re
import socket
import sqlite3
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from harness import collate
from harness.errors import DataError
from harness.records.journal import Journal
from harness.records.record import Started
from harness.records.tracking import live as live_tracking
from harness.records.tracking.database import check_database, place_of
from harness.records.tracking.live import LiveTracking, only_tracking, reason_of
from harness.reporting import files as write

SECRET = "Zdenka Albrecht lives at 14 Linden Row"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A sweep's results folder, in results whose MLflow is no server."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "s").mkdir()
    return tmp_path / "s"


@pytest.fixture
def results(make_spec, make_plan, make_point, make_measurement, make_results):
    spec = make_spec({"memorization": "key"})
    records = [Started(trial_id="t1", spec=spec.to_json())]
    records += [make(spec, strength) for strength in (1, 2) for make in (make_point, make_measurement)]
    return make_results(make_plan(spec), {"t1": records})


def tracked(folder, results):
    """Track a sweep of several trials, as its driver does."""
    with LiveTracking(folder) as tracking:
        tracking.start()
        for trial in results.trials * 3:
            tracking.log_trial(results.plan, trial)
        tracking.finish(results, {}, [])


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@contextmanager
def answering(status, body=b""):
    """Serve one answer to every request, and tell the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Retry-After", "3600")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = answer

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://me:{SECRET.split()[0]}@127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def silent():
    """Accept connections, and never answer."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def refusing():
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    yield address


@pytest.mark.parametrize(
    ("server", "cause"),
    [
        (refusing, "MlflowException from ConnectionRefusedError (Connection refused)"),
        (lambda: answering(500, SECRET.encode()), "MlflowException from "),
        (lambda: answering(503), "MlflowException from "),
        (lambda: answering(404, SECRET.encode()), "MlflowException"),
        (lambda: answering(200, SECRET.encode()), "MlflowException"),
    ],
)
def test_a_server_that_fails_is_told_once_without_its_words(folder, results, monkeypatch, caplog, capfd, server, cause):
    with server() as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        tracked(folder, results)
    [warning] = warnings_of(caplog)
    place = re.sub("//.*@", "//", address)
    assert warning.startswith(f"MLflow at {place} failed: {cause}")
    assert re.search(r", raised at [\w.-]+/\w+\.py:\d+\. ", warning)
    assert warning.endswith(f"The sweep needs no MLflow: lethe collate {folder} fills it in later.")
    assert SECRET not in warning
    assert SECRET.split()[0] not in warning
    assert capfd.readouterr() == ("", "")


def test_a_server_that_never_answers_is_not_waited_for(folder, results, monkeypatch, caplog):
    monkeypatch.setattr(live_tracking, "END_SECONDS", 0.3)
    with silent() as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        tracked(folder, results)
        [warning] = warnings_of(caplog)
        assert warning.startswith(f"MLflow at {address} was not done 0.3 seconds after the sweep's end. ")


def test_a_sweep_that_is_interrupted_neither_waits_nor_warns(folder, results, monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with silent() as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        with contextlib.suppress(KeyboardInterrupt), LiveTracking(folder) as tracking:
            tracking.start()
            raise KeyboardInterrupt
        assert not tracking._is_over.is_set(), "it is still waiting for its server, and nobody for it"
        [thread] = [thread for thread in threading.enumerate() if thread.name == "mlflow"]
        assert thread.daemon
    tracking._is_over.wait(20)
    assert warnings_of(caplog) == []


def database(root, *statements):
    with closing(sqlite3.connect(root / "mlflow.db", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


TABLE = "CREATE TABLE alembic_version (version_num TEXT)"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda root: (root / "mlflow.db").write_bytes(b"not a database" * 100), "not a database of MLflow"),
        (lambda root: (root / "mlflow.db").mkdir(), "cannot be written to (SQLITE_CANTOPEN)"),
        (lambda root: database(root, "CREATE TABLE t (c)"), "not a database of MLflow (SQLITE_ERROR)"),
        (lambda root: database(root, TABLE), "or half of them (version none; this one's is "),
        (lambda root: database(root, TABLE, "INSERT INTO alembic_version VALUES ('1a')"), "(version 1a; this one's is"),
    ],
)
def test_a_database_that_mlflow_could_not_use_is_left_as_it_is(folder, results, caplog, capsys, damage, said):
    root = folder.parent
    damage(root)
    before = {path: path.read_bytes() for path in root.iterdir() if path.is_file()}
    tracked(folder, results)
    [warning] = warnings_of(caplog)
    assert warning.startswith(f"{root}/mlflow.db ")
    assert said in warning
    assert "lethe collate" in warning
    after = {path: path.read_bytes() for path in root.iterdir() if path.is_file() and path.name != ".mlflow-lock"}
    assert after == before


def test_a_sweep_is_tracked_by_one_at_a_time(folder):
    second = only_tracking(folder)
    with only_tracking(folder), pytest.raises(DataError, match="a run of this sweep, or lethe collate"):
        second.__enter__()
    with only_tracking(folder):
        pass


def test_a_reason_has_no_words_of_others():
    def chained(first, second):
        try:
            try:
                raise first
            except BaseException:
                raise second  # noqa: B904
        except BaseException as error:
            return error

    here = Path(__file__)
    at = rf"raised at {here.parent.name}/{here.name}:\d+\."
    full = OSError(28, "No space left on device", SECRET)
    told = reason_of(chained(full, ValueError(SECRET)), "/db")
    assert re.fullmatch(rf"MLflow at /db failed: ValueError from OSError \(No space left on device\), {at}", told)
    assert re.fullmatch(
        rf"MLflow at /db failed: KeyError, {at}", reason_of(chained(KeyError(1), KeyError(SECRET)), "/db")
    )
    assert reason_of(ValueError(SECRET), "/db") == "MLflow at /db failed: ValueError, raised at an unknown place."
    assert reason_of(DataError("our own words."), "/db") == "our own words."


def test_an_address_is_told_without_its_password():
    assert place_of("http://me:word@127.0.0.1:5000") == "http://127.0.0.1:5000"
    assert place_of("https://runs.example/some/path?token=word") == "https://runs.example"


def test_every_file_that_a_sweep_writes_is_attached_later(tmp_path):
    texts = {"table.csv", "table.metrics.yaml", "table.md", "table.tex", "ranking.csv", "report.html", "published.md"}
    names = texts | {"tradeoff.png", "exact_match_groups.pdf", "matched.csv", "selected_blocks.csv"}
    foreign = ["forget.csv", "journal", "notes.md", ".table.csv.1234.tmp", "tables.csv"]
    for name in [*names, *foreign, "figures/map.png"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert {path.name for path in write.written_files(tmp_path)} == {*names, "map.png"}
    assert write.written_files(tmp_path) == sorted(write.written_files(tmp_path))


def test_collate_ends_with_1_and_the_reason_where_mlflow_cannot_be_written(folder, results, monkeypatch, capsys):
    journal = Journal(folder / "journal")
    journal.write_plan(results.plan)
    with refusing() as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        assert collate.main([str(folder)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"MLflow at {address} failed: MlflowException from ConnectionRefusedError (")
    assert told.endswith("Fix that and run this again: it continues where it stopped.\n")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    (folder.parent / "mlflow.db").write_bytes(b"not a database" * 100)
    assert collate.main([str(folder)]) == 1
    assert "Move it away: a new one is made" in capsys.readouterr().err
    with only_tracking(folder):
        assert collate.main([str(folder)]) == 1
    assert "Wait until it ends." in capsys.readouterr().err


def test_an_intact_database_is_accepted(folder):
    from mlflow.store.db.utils import _get_latest_schema_revision

    database(folder.parent, TABLE, f"INSERT INTO alembic_version VALUES ('{_get_latest_schema_revision()}')")
    check_database(folder.parent)
