"""Where MLflow keeps its runs: the database of a results folder, or a server; and the page that shows them.

Nothing here waits long. A server has seconds to answer, a lock seconds to be free, and a database that MLflow
cannot use is refused before MLflow tries to mend it.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import quote, urlsplit

from harness.base.files import locked
from harness.base.terminal import tell
from harness.errors import DataError
from harness.records.tracking.saved_views import addresses

if TYPE_CHECKING:
    from mlflow import MlflowClient

# Here, since what is set while a module is imported is nobody's accident: a guard leaves it.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
EXPERIMENT = "lethe"
ANSWER_SECONDS = 10
"""For a server to answer a request, which is tried twice; and for another program to unlock the database."""
ALONE_SECONDS = 60
"""For another sweep to end its call; the first one, which creates the database, takes several seconds."""


def serve_dashboard(results_root: Path, port: int = 5000) -> NoReturn:
    """Become MLflow's web server for these results, on 127.0.0.1 alone.

    Raises:
        DataError: Nothing has been tracked here yet, or MLflow cannot use what is here.
    """
    root = results_root.resolve()
    if not (root / "mlflow.db").exists():
        raise DataError(f"there is no {root}/mlflow.db. Run a sweep first: python -m harness.sweep FILE.")
    check_database(root)
    client = connect(database_uri(root))
    known = client.get_experiment_by_name(EXPERIMENT)
    if known:  # MLflow's own front page is that of chat traces.
        has_models = bool(client.search_logged_models([known.experiment_id], max_results=1))
        for name, page in addresses(known.experiment_id, known.tags, has_models=has_models).items():
            tell(f"{name}, in a moment: http://127.0.0.1:{port}/{page}")
    stores = ["--backend-store-uri", database_uri(root), "--artifacts-destination", artifacts_uri(root)]
    server = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    command = [sys.executable, "-m", "mlflow", "server", *stores, *server]
    os.execve(sys.executable, command, {**os.environ, **quiet})


def connect(uri: str) -> MlflowClient:
    """Return a client of a database or server, with telemetry and its chatter off, that soon gives up on a server.

    What the environment says of timeouts and retries holds; these are only the defaults, of this process alone.
    """
    _import_mlflow()
    from mlflow import MlflowClient

    return MlflowClient(uri)


def _import_mlflow() -> None:
    from mlflow import environment_variables

    environment_variables.MLFLOW_HTTP_REQUEST_TIMEOUT.default = ANSWER_SECONDS
    environment_variables.MLFLOW_HTTP_REQUEST_MAX_RETRIES.default = 1
    environment_variables.MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR.default = 1
    # Jitter is drawn from the random numbers that a trial in this process draws from.
    environment_variables.MLFLOW_HTTP_REQUEST_BACKOFF_JITTER.default = 0.0
    # A server that asks for an hour's patience does not get it.
    environment_variables.MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER.default = False
    environment_variables.MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT.default = True
    for noisy in ("mlflow", "alembic", "urllib3.connectionpool"):  # The caller reports what fails, once.
        logging.getLogger(noisy).setLevel(logging.CRITICAL)


class _Connection(sqlite3.Connection):
    """A connection to a database of runs, several of whose transactions can be made one."""

    is_joined = False

    def commit(self) -> None:
        """Commit, unless that is left to who joins."""
        if not self.is_joined:
            super().commit()

    def rollback(self) -> None:
        """Roll back, unless that is left to who joins: a pool does so whenever it gets a connection back."""
        if not self.is_joined:
            super().rollback()

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Make what is written in the block one transaction: all of it or, where the block fails, nothing."""
        try:
            self.is_joined = True
            yield
            self.is_joined = False
            self.commit()
        except BaseException:
            self.is_joined = False
            self.rollback()
            raise


_CONNECTIONS: dict[str, _Connection] = {}
"""By URI, as MLflow keeps them: one for all clients in this process."""
_CONNECTING = threading.Lock()
"""Held while MLflow's choice of a pool is another one for all of the process's threads."""


def connect_alone(root: Path) -> tuple[MlflowClient, Callable[[], AbstractContextManager[None]]]:
    """Return a client of a results folder's database, each of whose calls waits until no other process makes one.

    SQLite does not let those wait who have read and now want to write while another writes: they fail at once.
    With it comes what makes the calls of a block wait once, and be one transaction: MLflow alone makes eight for each
    run, and waits for the disk at each. Others can't write meanwhile, so a block should take no more than seconds.
    """
    client, connection = _connect_once(root)

    is_together = False

    @contextmanager
    def together() -> Iterator[None]:
        nonlocal is_together
        if is_together:  # Of this client: another one in this process may have joined the same connection.
            yield
            return
        with _alone(root), connection.joined():
            is_together = True
            try:
                yield
            finally:
                is_together = False

    class Alone:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            def alone(*arguments: Any, **options: Any) -> Any:
                with together():
                    return getattr(client, name)(*arguments, **options)

            return alone

    return cast("MlflowClient", Alone()), together


def _connect_once(root: Path) -> tuple[MlflowClient, _Connection]:
    """Return a client of a database that has one connection for all that it does, and that connection.

    Its URI is unlike `database_uri`: another client in this process would get the same connection.
    """
    _import_mlflow()
    from mlflow.environment_variables import MLFLOW_SQLALCHEMYSTORE_POOLCLASS as POOL
    from sqlalchemy import Engine, event

    uri = f"{database_uri(root)}?timeout={ANSWER_SECONDS}"

    def connected(dialect: object, record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        if arguments != [str(root / "mlflow.db")]:
            return None
        _CONNECTIONS[uri] = sqlite3.connect(*arguments, **options, factory=_Connection)
        return _CONNECTIONS[uri]

    # Not through the environment: a trial in another thread of this process may have that put back meanwhile.
    with _CONNECTING:
        event.listen(Engine, "do_connect", connected)
        POOL.get = lambda: "StaticPool"  # type: ignore[method-assign]
        try:
            return connect(uri), _CONNECTIONS[uri]
        finally:
            event.remove(Engine, "do_connect", connected)
            del POOL.get


def database_uri(root: Path) -> str:
    """Return the URI of the database of all sweeps in a results folder.

    Example:
        >>> database_uri(Path("/100% new?"))
        'sqlite:////100%25 new%3F/mlflow.db'
    """
    return _sqlite_uri(root / "mlflow.db")


def _sqlite_uri(file: Path) -> str:
    path = str(file).replace("%", "%25").replace("?", "%3F")  # All that SQLAlchemy reads in a special way.
    return f"sqlite:///{path}"


def place_of(server: str) -> str:
    """Return how people know a server, without the password that its address may hold.

    Example:
        >>> place_of("https://me:secret@runs.example:5000/path")
        'https://runs.example:5000'
    """
    address = urlsplit(server)
    return f"{address.scheme}://{address.netloc.rpartition('@')[2]}"


def create_database(root: Path) -> None:
    """Create the database whole or not at all: MLflow cannot go on with one whose tables it was making when killed.

    Raises:
        DataError: Another process has been at it for too long.
    """
    root.mkdir(parents=True, exist_ok=True)
    database = root / "mlflow.db"
    _import_mlflow()
    with _alone(root):
        for leftover in root.glob(".mlflow-*.db*"):
            leftover.unlink()
        if database.exists() and database.stat().st_size:  # An empty one is what a full disk leaves.
            return
        unfinished = root / f".mlflow-{secrets.token_hex(4)}.db"
        try:
            unfinished.touch(exist_ok=False)  # Where that fails, MLflow would try for minutes.
            connect(_sqlite_uri(unfinished)).search_experiments()
            if not unfinished.stat().st_size:
                raise DataError(f"MLflow cannot read the name of {root}. Choose plain letters for the results folder.")
            unfinished.rename(database)
        finally:
            for leftover in root.glob(f"{unfinished.name}*"):
                os.truncate(leftover, 0)  # MLflow keeps it open, and its space would stay taken.
                leftover.unlink()


def check_database(root: Path) -> None:
    """Refuse a database that MLflow could not use, or would change in place to its own version.

    Raises:
        DataError: It is locked, cannot be written to, or is none of this MLflow's; with what to do.
    """
    _import_mlflow()
    from mlflow.store.db.utils import _get_latest_schema_revision

    database, needed = root / "mlflow.db", _get_latest_schema_revision()  # type: ignore[no-untyped-call]
    address = f"file:{quote(str(database))}?mode=rw"
    new = f"Move it away: a new one is made, and lethe collate fills it in for each sweep of {root}."
    try:
        with closing(sqlite3.connect(address, ANSWER_SECONDS, isolation_level=None, uri=True)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            versions = [version for (version,) in connection.execute("SELECT version_num FROM alembic_version")]
    except sqlite3.Error as error:
        reason = getattr(error, "sqlite_errorname", type(error).__name__)
        if reason.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            message = f"{database} is locked by another program. End that program, or wait until it is done."
        elif reason.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR")):
            message = f"{database} is damaged, or not a database of MLflow ({reason}). {new}"
        else:
            message = f"{database} cannot be written to ({reason}). Make room on its disk, and allow writing there."
        raise DataError(message) from error
    if versions != [needed]:
        raise DataError(
            f"{database} has tables of another version of MLflow, or half of them (version "
            f"{', '.join(versions) or 'none'}; this one's is "
            f"{needed}). Copy it and run: mlflow db upgrade {database_uri(root)}; or: {new}"
        )


def _alone(root: Path) -> AbstractContextManager[None]:
    """Keep all other processes from the database for the block.

    Raises:
        DataError: Another one has it for too long.
    """
    lock = root / ".mlflow-lock"
    busy = f"another process has held {lock} for {ALONE_SECONDS} seconds. End the sweep or lethe collate that is stuck."
    return locked(lock, wait=ALONE_SECONDS, busy=busy)


def artifacts_uri(root: Path) -> str:
    """Return the URI of the folder where MLflow keeps attached files."""
    return (root / "mlartifacts").as_uri()
