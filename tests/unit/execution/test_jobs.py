"""The queue: what trials share comes first, each job runs once, and a search proposes the same on every executor."""

import io

import pytest
from rich.console import Console

from harness.execution import jobs
from harness.execution.jobs import Event, Folders, Job, JobQueue, missing_jobs, next_candidates, shared_jobs, trial_jobs
from harness.records.artifacts import Artifacts, memorized_key
from harness.records.journal import WHOLE, Candidate, Failed
from harness.records.results import Results, StudyResults, trial_results
from harness.settings import Choice, Level, Source, Study, replace


@pytest.fixture
def folders(tmp_path):
    return Folders(results=tmp_path / "s", artifacts=tmp_path / "artifacts")


@pytest.fixture
def results_of(make_plan):
    """Return a maker of results without a measurement."""

    def make(*specs, studies=()):
        trials = tuple(trial_results(spec, ()) for spec in specs)
        return Results(make_plan(*specs), trials, tuple(StudyResults(study, (), ()) for study in studies))

    return make


@pytest.fixture
def make_study(make_spec):
    """Return a maker of studies that try one value of k after the other."""

    def make(name, trials=3, values=(1, 2, 3, 4), search="random", **changes):
        trial = make_spec(trial_id=name, variant=name, strengths=(), settings={}, **changes)
        fields = {"study_id": name, "trial": trial, "seeds": (0,), "search": search, "trials": trials}
        fields |= {"space": {"epochs": Choice(values=(1,)), "k": Choice(values=values)}}
        fields |= {"defaults": {"epochs": 1, "k": 1}, "is_cumulative": True, "is_trained": True}
        fields |= {"targets": (Level(metric="ma", at=0.5),), "utility_bounds": (0.5, 5.0)}
        return Study(selection=Source(source="miniature"), **fields)

    return make


class Workers:
    """An executor with as many workers, until `most` jobs have ended; `ends` is the place of the next to end."""

    def __init__(self, count=1, failing=(), dying=(), ends=0, most=99):
        self.count, self.failing, self.dying, self.ends, self.most = count, failing, dying, ends, most
        self.begun, self.running_at_begin = [], {}

    def __call__(self, queue):
        running = []
        for _ in range(self.most):
            while len(running) < self.count and (job := queue.next_job()):
                self.begun.append(job.name)
                self.running_at_begin[job.name] = [other.name for other in running]
                running.append(job)
            if not running:
                return
            job = running.pop(self.ends)
            is_failing = job.kind in self.failing or bool(job.candidate and job.candidate.number in self.dying)
            if job.candidate and not is_failing:
                record(job, queue.folders)
            message = "ValueError: NaN loss" if is_failing else ""
            queue.watch(Event(job=job.name, kind="failed" if is_failing else "finished", message=message))


def record(job, folders):
    task, k = job.candidate, job.candidate.settings["k"]
    probes = ({"strength": 1, "ma": 1 / k, "perplexity": 4.0 + k, "optimiser_steps": 0},)
    about = {"targets": {"ma=0.5": 0.5}, "original": {"ma": 1.0, "perplexity": 4.0}, "seconds": 1.0, "end": WHOLE}
    about |= {"trial_id": task.study.study_id, "number": task.number, "settings": task.settings}
    folders.journal.append(Candidate(probes=probes, **about))


def ran(results, folders, watch=lambda event: None, **workers):
    """Return an executor that has run what the results lack."""
    execute = Workers(**workers)
    execute(missing_jobs(results, folders, watch))
    return execute


@pytest.mark.parametrize("count", [1, 2, 9])
def test_what_trials_share_is_built_once_and_before_them(folders, make_row, results_of, count):
    rows = [*(make_row("ta", (0.1,), seed, reference="memorized_model") for seed in range(3)), make_row("original")]
    execute = ran(results_of(*rows), folders, count=count)
    shared, own = execute.begun[:2], [name for name in execute.begun[2:] if not name.startswith("original")]
    assert [name.split("-")[0] for name in shared] == ["prepare", "memorize"]
    assert len(execute.begun) == len(set(execute.begun)) == 6
    assert not any({*shared} & {*execute.running_at_begin[name]} for name in own)
    # The original needs neither, so it does not wait for them where there is room.
    [original] = [name for name in execute.begun if name.startswith("original")]
    assert (shared[1] in execute.running_at_begin[original]) == (count > 1)
    Artifacts(folders.artifacts).build("memorized", memorized_key(rows[0]), lambda folder: None)
    assert [job.kind for job in shared_jobs(results_of(*rows), folders)] == ["prepare"], "the model is there"


@pytest.mark.parametrize("failing", ["memorize", "prepare"])
def test_what_needs_a_part_that_failed_does_not_run(folders, failing, make_row, make_study, results_of):
    reason = "a part it shares with others could not be made: ValueError: NaN loss"
    rows = [make_row("ta", (0.1,), reference="memorized_model"), make_row("emso", evaluators={"weights": "key"})]
    study, events = make_study("a", trials=2, reference="memorized_model"), []
    execute = ran(results_of(*rows, studies=[study]), folders, events.append, failing=[failing])
    candidates = ["a", "a"] if failing == "prepare" else []
    assert [name.split("-")[0] for name in execute.begun] == ["prepare", "memorize", "emso", *candidates]
    assert folders.journal.read("ta-0") == [Failed(trial_id="ta-0", error=reason, log=())]
    assert {event.message for event in events if event.kind == "failed"} == {"ValueError: NaN loss", reason}


@pytest.fixture
def three(folders, make_spec):
    """A queue of three jobs that need nothing."""
    jobs = [Job(name=name, kind="trial", spec=make_spec(trial_id=name)) for name in "abc"]
    return JobQueue(jobs, (), folders, lambda event: None)


def test_a_job_whose_process_died_runs_again_after_all_others(three):
    three.return_job(first := three.next_job())
    second, *others = [three.next_job() for _ in range(4)]
    assert [second.name, *(job and job.name for job in others)] == ["b", "c", "a", None]
    three.watch(Event(job="a", kind="finished"))
    three.return_job(first)
    assert three.next_job() is None, "what is over is not run again"
    three.return_job(replace(first, then=second))
    assert three.next_job() == second, "but what goes on after it is"


def test_an_executor_takes_the_first_job_that_it_can_run_now(three):
    assert three.next_job(lambda job: job.name > "a").name == "b"
    assert three.next_job(lambda job: False) is None


def test_references_come_first_and_then_the_longest(folders, make_row, results_of):
    rows = [make_row("ta", (0.1,)), make_row("emso", (1, 2, 3)), make_row("di", (1, 2)), make_row("original")]
    assert [job.spec.variant for job in trial_jobs(results_of(*rows), folders)] == ["original", "emso", "di", "ta"]


def test_a_candidate_waits_for_those_that_it_learns_from_and_for_no_other(folders, make_study, results_of):
    execute = ran(results_of(studies=[make_study("a", 9, tuple(range(1, 20)), search="optuna")]), folders, count=9)
    waited = [[name.split("-")[4] for name in execute.running_at_begin[name]] for name in execute.begun]
    assert waited == [[], ["0"], ["0", "1"], ["0", "1", "2"], ["0", "1", "2", "3"], ["4"], ["5"], ["6"], ["7"]]


def proposals(folders, *studies):
    return [{one.number: one.settings for one in folders.journal.read(study.study_id)} for study in studies]


def test_how_many_run_and_which_ends_first_decides_nothing(folders, make_study, results_of, tmp_path):
    studies = [make_study(name, 20, tuple(range(1, 60)), search=name) for name in ("optuna", "random")]
    found = []
    for number, (count, ends) in enumerate([(1, 0), (2, 0), (2, -1), (9, 0), (9, -1)]):
        there = Folders(tmp_path / str(number), tmp_path / "artifacts")
        ran(results_of(studies=studies), there, count=count, ends=ends, dying=[3])
        found.append(proposals(there, *studies))
    assert [len(settings) for settings in found[0]] == [19, 19]
    assert found == [found[0]] * 5


def test_a_killed_search_goes_on_as_if_it_had_not_been(folders, make_study, results_of, tmp_path):
    study, killed = make_study("a", 9, tuple(range(1, 20)), search="optuna"), Folders(tmp_path / "t", tmp_path / "a")
    ran(results_of(studies=[study]), folders, count=5)
    for _ in range(9):  # The others that run leave nothing.
        ran(results_of(studies=[study]), killed, count=5, most=1)
    assert proposals(killed, study) == proposals(folders, study)


def test_a_candidate_whose_process_died_is_tried_again_by_the_next_run_only(folders, make_study, results_of):
    study = make_study("a")
    assert len(ran(results_of(studies=[study]), folders, dying=[1]).begun) == 3
    assert [job.candidate.number for job in next_candidates(replace(study, trials=4), folders, {})] == [1, 3]


def event(job, kind, message="", done=0, total=0):
    return Event(job=job, kind=kind, message=message, done=done, total=total)


def test_off_a_terminal_there_is_a_line_for_each_job_that_ends_and_one_a_minute(monkeypatch):
    clock = [100.0]
    console = Console(file=io.StringIO(), force_terminal=False, width=160, color_system=None, highlight=False)
    monkeypatch.setattr(jobs.time, "monotonic", lambda: clock[0])
    with jobs.SweepProgress(2, console) as progress:
        progress(event("emso", "started"))
        progress(event("emso", "progress", "memorization at 1", done=1, total=4))
        progress(event("emso", "lost", "its process died"))
        progress(event("memorize", "finished"))
        clock[0] += 61
        progress(event("emso", "progress", "memorization at 2", done=2, total=4))
        progress(event("emso", "progress", "generation at 2", done=3, total=4))
        progress(event("emso", "failed", "ValueError: \x1b[31mNaN"))
        progress(event("candidate", "finished", "ma 0.5"))
    assert console.file.getvalue().splitlines() == [
        "emso: its process died",
        "memorize: finished · 1 of 2 jobs",
        "emso: memorization at 2 (2 of 4) · 1 of 2 jobs",
        r"emso: failed: ValueError: \x1b[31mNaN",
        "candidate: ma 0.5 · 3 of 3 jobs · 1 failed",
    ]
