"""The queue: jobs start in order, once what they need is there, and none is lost."""

import pytest

from harness.execution.job_queue import JobQueue
from harness.execution.jobs import Event, Folders
from harness.records.artifacts import Artifacts
from harness.records.journal import Journal
from harness.records.record import Failed


@pytest.fixture
def open_queue(tmp_path):
    """Return a maker of queues, each with the events that it passed on."""

    def make(*jobs, capacity=None):
        events = []
        folders = Folders(results=tmp_path / "results", artifacts=tmp_path / "artifacts")
        return JobQueue(jobs, folders, events.append, capacity), events

    return make


def failures(queue):
    journal = Journal(queue.folders.results / "journal")
    return {trial_id: journal.read(trial_id) for trial_id in journal.trial_ids()}


def test_jobs_keep_their_order_but_one_that_must_wait_is_passed(open_queue, make_job):
    memory = make_job("mem", provides="k")
    queue, _ = open_queue(make_job("a"), make_job("waits", needs="k"), memory, make_job("b"))
    assert [queue.next().name for _ in range(3)] == ["a", "mem", "b"]
    assert queue.next() is None
    assert not queue.is_exhausted()
    queue.finish(memory)
    assert queue.next().name == "waits"
    assert queue.next() is None
    assert queue.is_exhausted()


def test_what_lies_on_the_disk_need_not_be_provided(open_queue, tmp_path, make_job):
    queue, events = open_queue(make_job("waits", needs="k"))
    Artifacts(tmp_path / "artifacts").build("memorized", "k", lambda folder: None)
    assert queue.next().name == "waits"
    assert events == []


@pytest.mark.parametrize("reported", [True, False])
def test_who_needed_what_failed_fails_without_running(open_queue, reported, make_job):
    memory = make_job("mem", provides="k")
    queue, events = open_queue(memory, make_job("waits", needs="k"), make_job("b"))
    assert queue.next() is memory
    if reported:  # It said so itself, or its worker died.
        queue.report(Event(job="mem", kind="failed", message="ValueError: NaN loss"))
        queue.finish(memory)
    else:
        queue.fail(memory, "ValueError: NaN loss")
    assert queue.next().name == "b"
    error = "the memorised model could not be built: ValueError: NaN loss"
    assert failures(queue) == {"id-waits": [Failed(trial_id="id-waits", error=error, log=())]}
    assert [(event.job, event.kind) for event in events] == [("mem", "failed"), ("waits", "failed")]
    assert queue.is_exhausted()


def test_a_need_that_nobody_provides_does_not_wait_for_ever(open_queue, make_job):
    queue, events = open_queue(make_job("waits", needs="k"))
    assert queue.next() is None
    assert queue.is_exhausted()
    assert [event.message for event in events] == ["the memorised model could not be built: no job builds it"]


@pytest.mark.parametrize(
    ("cpus", "gpus", "capacity", "fits"),
    [
        (2, 0, {"CPU": 2.0}, True),
        (3, 0, {"CPU": 2.0}, False),
        (1, 0.5, {"CPU": 2.0, "GPU": 1.0}, True),
        (1, 0.5, {"CPU": 2.0}, False),
        (99, 9, None, True),
    ],
)
def test_a_job_that_asks_for_more_than_there_is_fails(open_queue, cpus, gpus, capacity, fits, make_job):
    queue, events = open_queue(make_job("big", cpus=cpus, gpus=gpus), make_job("small"), capacity=capacity)
    assert queue.next().name == ("big" if fits else "small")
    if not fits:
        [event] = events
        assert f"it asks for {cpus} CPUs and {gpus} GPUs, and this machine has 2 and 0" in event.message


def test_closing_fails_what_is_not_over_and_only_that(open_queue, make_job):
    done, runs, waits = make_job("done"), make_job("runs"), make_job("waits")
    queue, _ = open_queue(done, runs, waits)
    queue.next()
    queue.next()
    queue.finish(done)
    queue.close("Ray ended")
    assert {trial_id: [failed.error for failed in records] for trial_id, records in failures(queue).items()} == {
        "id-runs": ["Ray ended"],
        "id-waits": ["Ray ended"],
    }


def test_a_memorised_model_has_no_trial_to_record_a_failure_for(open_queue, make_job):
    queue, events = open_queue(make_job("mem", provides="k"))
    queue.fail(queue.next(), "WorkerDied: killed")
    assert failures(queue) == {}
    assert [event.message for event in events] == ["WorkerDied: killed"]
