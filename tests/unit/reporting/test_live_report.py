"""The report beside a running sweep: it is written as trials end, told once, and can neither harm nor outlive one."""

import threading
from types import SimpleNamespace

import pytest
from harness.reporting.live import LiveReport

from harness.errors import StorageError
from harness.execution.job import Event
from harness.records.journal import Journal
from harness.records.record import Started
from harness.reporting import live as live_report
from harness.running import watched


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "s"


@pytest.fixture
def sweep(folder, make_spec, make_plan, make_measurement):
    """A plan whose journal begins empty, and what measures one point of it."""
    spec, journal = make_spec({"memorization": "key"}), Journal(folder / "journal")
    journal.append(Started(trial_id="t1", spec=spec.to_json()))
    return make_plan(spec), journal, lambda strength: journal.append(make_measurement(spec, strength))


class Written:
    """Stands for `write`: notes how many points each report has."""

    def __init__(self, monkeypatch, error=None):
        self.points, self.calls, self.error = [], threading.Semaphore(0), error
        monkeypatch.setattr("harness.reporting.files.write", self)

    def __call__(self, analysis, folder):
        self.points.append(len(analysis.results.measured))
        self.calls.release()
        if self.error:
            raise self.error

    def wait(self):
        assert self.calls.acquire(timeout=20)


def test_the_report_is_written_as_trials_end_and_told_once(sweep, folder, monkeypatch):
    plan, journal, measure = sweep
    written, said = Written(monkeypatch), []
    with LiveReport(plan, journal, folder, said.append, seconds=0.0) as report:
        for strength in (1, 2):
            measure(strength)
            report.refresh()
            written.wait()
    assert written.points == [1, 2]
    assert said == [f"The report so far, written again as trials end: {folder / 'report.html'}"]


def test_there_is_no_report_of_nothing_and_none_without_news(sweep, folder, monkeypatch):
    plan, journal, measure = sweep
    written, said = Written(monkeypatch), []
    looked = threading.Event()
    read = live_report.read_tuned
    monkeypatch.setattr(live_report, "read_tuned", lambda *which: (read(*which), looked.set())[0])
    with LiveReport(plan, journal, folder, said.append, seconds=0.0) as report:
        report.refresh()
        assert looked.wait(20)
    with LiveReport(plan, journal, folder, said.append, seconds=0.0):
        measure(1)
    assert written.points == []
    assert said == []


@pytest.mark.parametrize(("kind", "is_news"), [("finished", True), ("failed", True), ("measured", False)])
def test_a_trial_that_is_over_is_news(sweep, make_job, kind, is_news):
    plan, journal, _ = sweep
    told = []
    report = SimpleNamespace(refresh=lambda: told.append("report"))
    tracking = SimpleNamespace(log_trial=lambda plan, trial: None)
    jobs = [make_job("emso"), make_job("memory", provides="k")]
    watch = watched(lambda event: told.append(event.job), plan, jobs, journal, tracking, report)
    watch(Event(job="memory", kind=kind))
    watch(Event(job="emso", kind=kind))
    assert told == ["memory", "emso", *["report"] * is_news]


@pytest.mark.parametrize("error", [StorageError("the disk is full"), MemoryError(), ValueError("another's words")])
def test_a_report_that_fails_ends_them_without_a_word(sweep, folder, monkeypatch, capfd, caplog, error):
    plan, journal, measure = sweep
    written, said = Written(monkeypatch, error), []
    measure(1)
    with LiveReport(plan, journal, folder, said.append, seconds=0.0) as report:
        report.refresh()
        report._thread.join(20)
        assert not report._thread.is_alive()
        report.refresh()
    assert written.points == [1]
    assert said == []
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_a_report_being_written_is_waited_for_so_that_it_replaces_no_later_one(sweep, folder, monkeypatch):
    plan, journal, measure = sweep
    begun, ended = threading.Event(), threading.Event()

    def write(measured, folder):
        begun.set()
        assert report._is_over.wait(20)
        ended.set()

    monkeypatch.setattr("harness.reporting.files.write", write)
    measure(1)
    with LiveReport(plan, journal, folder, lambda line: None, seconds=0.0) as report:
        report.refresh()
        assert begun.wait(20)
    assert ended.is_set()


def test_a_process_that_ends_at_once_does_not_wait_for_it(sweep, folder):
    plan, journal, _ = sweep
    with LiveReport(plan, journal, folder, lambda line: None) as report:
        assert report._thread.daemon


def test_without_a_thread_there_is_the_report_at_the_end_alone(sweep, folder, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with LiveReport(*sweep[:2], folder, lambda line: None) as report:
        report.refresh()
