"""A conformance suite's outcome in plain sentences: each test's docstring states its requirement."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.base.messages import shown
from harness.base.terminal import tell

_MARGIN = 10
_WORDS = {"passed": "holds", "failed": "fails", "skipped": "—"}


class Sentences:
    """A plugin of pytest that has a sentence or two on each test.

    Args:
        plugin_file: The source of the plugin that is tested: a failure is located there.
        at_once: Print each sentence as soon as it is known.
    """

    def __init__(self, plugin_file: Path, *, at_once: bool) -> None:
        self.lines: list[str] = []
        self.failed = 0
        self._counts = dict.fromkeys(_WORDS, 0)
        self._file, self._at_once = plugin_file, at_once
        self._held: dict[str, str] = {}
        self._reasons: dict[str, list[str]] = {}
        self._over: set[str] = set()

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Note the requirement of each test."""
        for item in items:
            about = inspect.getdoc(getattr(item, "function", None)) or item.name
            self._held[item.nodeid] = about.partition("\n\n")[0].replace("\n", " ")

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Note why a test failed, and where in the plugin; the report itself is made by pytest."""
        if call.excinfo is not None:
            self._reasons[item.nodeid] = reasons(call.excinfo, self._file)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the sentences on a test once it is over; one that fails during its teardown has failed too."""
        if report.when != "call" and report.passed:
            return
        if report.nodeid in self._over and not report.failed:
            return
        self._over.add(report.nodeid)
        self._counts[report.outcome] += 1
        self.failed += report.failed
        lines = [f"{_WORDS[report.outcome]:<{_MARGIN}}{self._held.get(report.nodeid, report.nodeid)}"]
        because = self._reasons.get(report.nodeid, []) if report.failed else []
        if report.skipped and isinstance(report.longrepr, tuple):
            because = [f"Does not apply: {report.longrepr[2].removeprefix('Skipped: ')}."]
        lines += [f"{'':{_MARGIN}}{reason}" for reason in because]
        self.lines += lines
        if self._at_once:
            tell(*lines)

    def summary(self, what: str) -> str:
        """Return one sentence on all of it."""
        held, skipped = self._counts["passed"], self._counts["skipped"]
        apart = f" (not applicable: {skipped})" if skipped else ""
        return f"{held} of {held + self.failed} requirements hold for {what}{apart}."


def reasons(raised: pytest.ExceptionInfo[BaseException], file: Path) -> list[str]:
    """Return why a test failed, as far as it says so, and the last line of `file` that it passed through."""
    message = shown(str(raised.value)).partition("\n")[0]
    if not isinstance(raised.value, AssertionError):
        message = f"{type(raised.value).__name__}: {message}"
    elif message.startswith("assert "):
        message = ""  # Nothing but the code of the suite.
    passed = [entry.lineno + 1 for entry in raised.traceback if Path(entry.path).resolve() == file.resolve()]
    where = [f"At {file.name}, line {passed[-1]}."] if passed else []
    return ([f"{message[:1].upper()}{message[1:]}"] if message else []) + where
