"""The queue: jobs start in order, once what they need is there, and none is lost."""

from dataclasses import replace

import pytest
from harness.execution.job_queue import JobQueue

from harness.errors import StorageError
from harness.execution.job import Event, Folders
from harness.plans import StudySpec, Target
from harness.records.artifacts import Artifacts, memorized_key
from harness.records.journal import Journal
from harness.records.record import WHOLE, Candidate, Failed
from harness.search_space import Choice
from harness.specs import Source, TimeLimit


@pytest.fixture
def open_queue(tmp_path):
    """Return a maker of queues, each with the events that it passed on."""

    def make(*jobs, capacity=None, studies=()):
        events = []
        folders = Folders(results=tmp_path / "results", artifacts=tmp_path / "artifacts")
        return JobQueue(jobs, folders, events.append, capacity, studies), events

    return make


def failures(queue):
    journal = Journal(queue.folders.results / "journal")
    return {file.stem: journal.read(file.stem) for file in sorted(journal.folder.glob("*.jsonl"))}


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


def test_a_job_waits_for_all_that_it_needs_and_is_told_which_could_not_be_made(open_queue, make_job):
    prepare, memory = (make_job(name, provides=name) for name in ("prepared", "memory"))
    prepare = replace(prepare, kind="prepare")
    waits = [make_job("both", needs=("prepared", "memory")), make_job("one", needs=("prepared",))]
    queue, _ = open_queue(*waits, prepare, memory)
    assert [queue.next(), queue.next(), queue.next()] == [prepare, memory, None]
    queue.finish(memory)
    assert queue.next() is None
    queue.finish(prepare)
    assert [queue.next(), queue.next()] == waits
    queue, events = open_queue(*waits, prepare, memory)
    assert [queue.next(), queue.next()] == [prepare, memory]
    queue.finish(memory)
    queue.report(Event(job="prepared", kind="failed", message="no memory"))
    queue.finish(prepare)
    assert queue.next() is None
    said = {event.message for event in events if event.job in ("both", "one")}
    assert said == {"what is measured of the original alone could not be computed: no memory"}


def test_a_job_whose_process_died_is_tried_once_more(open_queue, make_job):
    dying, other = make_job("dies"), make_job("other")
    queue, events = open_queue(dying, other)
    assert [queue.next(), queue.next()] == [dying, other]
    assert queue.is_exhausted()
    queue.lose(dying, "WorkerDied: again", ["last words"])
    assert not queue.is_exhausted()
    assert not queue.is_over()
    assert failures(queue) == {}
    assert queue.next() is dying
    queue.lose(dying, "WorkerDied: again", ["last words"])
    assert failures(queue) == {"id-dies": [Failed(trial_id="id-dies", error="WorkerDied: again", log=("last words",))]}
    queue.finish(other)
    assert queue.is_over()
    assert [event.kind for event in events] == ["lost", "failed"]
    assert queue.most_attempts == 4


def test_jobs_that_ended_through_no_fault_of_theirs_start_again_first_however_often(open_queue, make_job):
    slow = make_job("slow", time_limit=TimeLimit(minutes=0.5, setting="timeout_minutes"))
    running = [make_job("a"), make_job("b")]
    queue, events = open_queue(slow, *running, make_job("waits"))
    assert [queue.next() for _ in range(3)] == [slow, *running]
    queue.exceed(slow)
    for _ in range(3):
        queue.put_running_back()
        assert {queue.next().name, queue.next().name} == {"a", "b"}
    queue.lose(running[0], "WorkerDied: killed")
    queue.put_running_back()
    assert [queue.next().name for _ in range(3)] == ["b", "a", "waits"]
    assert [event.kind for event in events] == ["failed", "lost"], "of `slow`; of `a`, which has one death left"


def test_a_job_that_ran_too_long_fails_once_and_is_not_tried_again(open_queue, make_job):
    limit = TimeLimit(minutes=0.5, setting="methods.emso.timeout_minutes")
    slow = make_job("slow", time_limit=limit)
    queue, events = open_queue(slow)
    assert queue.next() is slow
    queue.exceed(slow)
    queue.lose(slow, "WorkerDied: it was killed")
    [record] = failures(queue)["id-slow"]
    assert record.error.startswith("TrialError: it ran longer than methods.emso.timeout_minutes: 0.5 allows.")
    assert [event.kind for event in events] == ["failed"]
    assert queue.is_over()


def test_a_job_that_ended_while_its_time_ran_out_is_over_once(open_queue, make_job):
    memory = make_job("mem", provides="k", time_limit=TimeLimit(minutes=0.5, setting="timeout_minutes"))
    queue, events = open_queue(memory, make_job("needs", needs="k"))
    assert queue.next() is memory
    queue.exceed(memory)
    queue.finish(memory)
    assert queue.next() is None
    assert queue.is_over()
    assert [(event.job, event.kind) for event in events] == [("mem", "failed"), ("needs", "failed")]
    assert events[1].message.startswith("the memorised model could not be built: it ran longer than")


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


@pytest.fixture
def make_study(make_spec):
    """Return a maker of studies that try one value of k after the other."""

    def make(name, trials=3, values=(1, 2, 3, 4), **changes):
        trial = make_spec(trial_id=name, variant=name, strengths=(), settings={}, **changes)
        return StudySpec(
            study_id=name,
            trial=trial,
            seeds=(0,),
            space={"epochs": Choice(values=(1,)), "k": Choice(values=values)},
            defaults={"epochs": 1, "k": 1},
            is_cumulative=True,
            is_trained=True,
            search="random",
            trials=trials,
            targets=(Target(metric="ma", at_most=0.5),),
            utility="perplexity",
            utility_bounds=(0.5, 5.0),
            selection=Source(source="miniature"),
            retrained=None,
        )

    return make


def journal(queue, job):
    task = job.candidate
    record = Candidate(
        trial_id=task.study.study_id,
        number=task.number,
        settings=task.settings,
        probes=(),
        targets={},
        original={},
        end=WHOLE,
        seconds=1.0,
    )
    Journal(queue.folders.results / "journal").append(record)
    queue.finish(job)


def names(queue, count):
    jobs = [queue.next() for _ in range(count)]
    return [f"{job.candidate.study.study_id}{job.candidate.number}" if job and job.candidate else job for job in jobs]


def test_candidates_follow_the_jobs_and_the_study_that_tried_least_is_next(open_queue, make_job, make_study):
    job = make_job("first")
    queue, _ = open_queue(job, studies=[make_study("a"), make_study("b", trials=2)])
    assert queue.most_attempts == 2 * 6
    assert queue.next() is job
    assert names(queue, 6) == ["a0", "b0", "a1", "b1", "a2", None]
    assert queue.is_exhausted()
    assert not queue.is_over()


def test_a_study_goes_on_from_its_journal_and_a_number_is_tried_once_in_a_run(open_queue, make_study):
    queue, _ = open_queue(studies=[make_study("a")])
    first, second = queue.next(), queue.next()
    journal(queue, first)
    queue.fail(second, "WorkerDied: killed")
    assert failures(queue).keys() == {"a"}, "one whose process died leaves nothing"
    assert names(queue, 2) == ["a2", None]
    again, _ = open_queue(studies=[make_study("a")])
    assert names(again, 3) == ["a1", "a2", None], "and is tried again by the next run"
    more, _ = open_queue(studies=[make_study("a", trials=4)])
    assert names(more, 4) == ["a1", "a2", "a3", None]


def test_a_study_that_has_nothing_left_waits_for_who_is_running_and_then_is_over(open_queue, make_study):
    queue, _ = open_queue(studies=[make_study("a", trials=9, values=(1, 2))])
    jobs = [queue.next(), queue.next()]
    assert {job.spec.settings["k"] for job in jobs} == {1, 2}
    assert queue.next() is None
    assert not queue.is_exhausted(), "what is running might tell of more to try"
    for job in jobs:
        journal(queue, job)
    assert queue.next() is None
    assert queue.is_exhausted()
    assert queue.is_over()


def test_candidates_wait_for_the_memorised_model_and_all_fail_at_once_without_it(open_queue, make_job, make_study):
    study = make_study("a", reference="memorized_model")
    memory = make_job("mem", provides=memorized_key(study.trial))
    queue, _ = open_queue(memory, studies=[study])
    assert queue.next() is memory
    assert queue.next() is None
    assert not queue.is_exhausted()
    queue.finish(memory)
    assert names(queue, 1) == ["a0"]
    queue, events = open_queue(memory, studies=[study, make_study("b", trials=1)])
    queue.next()
    queue.fail(memory, "ValueError: NaN loss")
    assert names(queue, 2) == ["b0", None]
    assert [event.message for event in events][1:] == [
        "the memorised model could not be built: ValueError: NaN loss"
    ], "said once"
    assert queue.is_exhausted()
    queue, _ = open_queue(studies=[make_study("a"), make_study("b")])
    queue.close("Ray ended")
    assert queue.is_over()


@pytest.fixture
def lost(open_queue, make_job, make_study):
    """A queue with a job and a study of three, two of whose candidates' processes died, in this order."""
    queue, events = open_queue(make_job("waits", cpus=9), studies=[make_study("a")], capacity={"CPU": 9.0})
    job, *candidates = [queue.next() for _ in range(3)]
    queue.finish(job)
    for candidate in candidates:
        queue.lose(candidate, "WorkerDied: killed")
    return queue, events, candidates


def test_lost_candidates_are_tried_once_more_before_the_others(lost):
    queue, events, (first, second) = lost
    assert not queue.is_exhausted()
    assert {queue.next().name, queue.next().name} == {first.name, second.name}
    assert names(queue, 2) == ["a2", None]
    queue.lose(first, "WorkerDied: killed")
    journal(queue, second)
    assert names(queue, 1) == [None], "a second death is the last"
    assert [record.number for record in failures(queue)["a"]] == [1], "and leaves nothing in the journal"
    assert not queue.is_over()
    assert [(event.job, event.kind) for event in events[2:]] == [(first.name, "failed")]


def test_closing_ends_lost_candidates_too(lost):
    queue, events, candidates = lost
    queue.close("Ray ended")
    assert queue.is_over()
    assert queue.next() is None
    assert {(event.job, event.message) for event in events[2:]} == {(job.name, "Ray ended") for job in candidates}
    assert failures(queue) == {}


def test_where_the_journal_cannot_be_written_when_a_candidates_time_is_over_it_is_said(
    open_queue, make_study, monkeypatch
):
    queue, events = open_queue(studies=[make_study("a", time_limit=TimeLimit(minutes=1, setting="timeout_minutes"))])
    job = queue.next()

    def append(self, record):
        raise StorageError("/x cannot be written: its disk is full.")

    monkeypatch.setattr(Journal, "append", append)
    queue.exceed(job)
    assert [event.kind for event in events] == ["failed"]
    assert queue.next() is None
    with pytest.raises(StorageError, match="cannot be written"):
        queue.check_writable()


def test_where_the_journal_cannot_be_written_nothing_more_starts(open_queue, make_job):
    queue, events = open_queue(make_job("first"), make_job("second"))
    folder = queue.folders.results / "journal"
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.touch()
    queue.fail(queue.next(), "WorkerDied: killed")
    assert "File exists" in events[-1].message
    assert queue.next() is None
    assert queue.is_over()
    queue.close("Ray ended")
    with pytest.raises(StorageError, match="cannot be written"):
        queue.check_writable()


def test_a_candidate_that_could_not_be_written_ends_the_search(open_queue, make_study):
    queue, _ = open_queue(studies=[make_study("a")])
    queue.fail(queue.next(), "harness.errors.StorageError: /x cannot be written: its disk is full.")
    assert queue.next() is None
    with pytest.raises(StorageError, match=r"^/x cannot be written: its disk is full\.$"):
        queue.check_writable()
