"""Waves: what trials share comes first, each job runs once, and a search proposes the same on every executor."""

import pytest

from harness.execution.job import Event, Folders
from harness.execution.waves import next_candidates, run_waves, shared_jobs, trial_jobs
from harness.records.artifacts import Artifacts, memorized_key
from harness.records.journal import WHOLE, Candidate, Failed, Journal
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


class Waves:
    """An executor that records each wave, and journals candidates; a builder in `failing` fails."""

    def __init__(self, failing=(), dying=()):
        self.waves, self.failing, self.dying = [], failing, dying

    def __call__(self, jobs, folders, watch):
        self.waves.append([job.name for job in jobs])
        for job in jobs:
            if job.kind in self.failing:
                watch(Event(job=job.name, kind="failed", message="ValueError: NaN loss"))
            elif job.candidate and job.candidate.number not in self.dying:
                record(job, folders)


def record(job, folders):
    task, nothing = job.candidate, {"probes": (), "targets": {}, "original": {}}
    about = {"number": task.number, "settings": task.settings, "seconds": 1.0, "end": WHOLE}
    Journal(folders.results / "journal").append(Candidate(trial_id=task.study.study_id, **about, **nothing))


def test_what_trials_share_is_a_wave_of_its_own_and_is_built_once(folders, make_row, results_of):
    rows = [make_row("ta", (0.1,), seed, reference="memorized_model") for seed in range(3)]
    execute = Waves()
    run_waves(results_of(*rows), folders, execute, lambda event: None)
    shared, trials = execute.waves
    assert [name.split("-")[0] for name in shared] == ["prepare", "memorize"]
    assert len(set(trials)) == 3
    Artifacts(folders.artifacts).build("memorized", memorized_key(rows[0]), lambda folder: None)
    assert [job.kind for job in shared_jobs(results_of(*rows), folders)] == ["prepare"], "the model is there"


@pytest.mark.parametrize("failing", ["memorize", "prepare"])
def test_a_trial_fails_without_running_if_what_it_needs_failed(folders, failing, make_row, results_of):
    reason = "a part it shares with others could not be made: ValueError: NaN loss"
    rows = [make_row("ta", (0.1,), reference="memorized_model"), make_row("emso", evaluators={"weights": "key"})]
    execute, events = Waves([failing]), []
    run_waves(results_of(*rows), folders, execute, events.append)
    assert [name.split("-")[0] for name in execute.waves[1]] == ["emso"]
    assert Journal(folders.results / "journal").read("ta-0") == [Failed(trial_id="ta-0", error=reason, log=())]
    assert [event.message for event in events][1:] == [reason]


def test_a_search_whose_model_failed_is_told_once(folders, make_study, results_of):
    execute, events = Waves(["memorize"]), []
    study = make_study("a", search="optuna", reference="memorized_model")
    run_waves(results_of(studies=[study]), folders, execute, events.append)
    assert all(name.startswith("memorize") for wave in execute.waves for name in wave)
    assert {event.kind for event in events} == {"failed"}


def test_references_come_first_and_then_the_longest(folders, make_row, results_of):
    rows = [make_row("ta", (0.1,)), make_row("emso", (1, 2, 3)), make_row("di", (1, 2)), make_row("original")]
    assert [job.spec.variant for job in trial_jobs(results_of(*rows), folders)] == ["original", "emso", "di", "ta"]


def numbers(jobs):
    return [job.candidate.number for job in jobs]


def test_a_generation_holds_all_that_can_be_proposed_and_the_next_learns_from_it(folders, make_study):
    study, started, generations = make_study("a", 9, tuple(range(1, 20)), search="optuna"), {}, []
    while generation := next_candidates(study, folders, started):
        generations.append(numbers(generation))
        for job in generation:
            record(job, folders)
    assert generations == [[0, 1, 2, 3, 4], [5, 6], [7, 8]]


def test_a_killed_search_goes_on_as_if_it_had_not_been(folders, make_study, tmp_path):
    study = make_study("a", 9, tuple(range(1, 20)), search="optuna")
    proposed = {}
    for where, is_killed in ((folders, False), (Folders(tmp_path / "t", tmp_path / "artifacts"), True)):
        started = {}
        while generation := next_candidates(study, where, started):
            record(generation[0], where)
            if is_killed:  # The others of the generation left nothing.
                started = {}
                continue
            for job in generation[1:]:
                record(job, where)
        read = Journal(where.results / "journal").read("a")
        proposed[is_killed] = {candidate.number: candidate.settings for candidate in read}
    assert proposed[True] == proposed[False]
    assert len(proposed[True]) == 9


def test_a_candidate_whose_process_died_is_tried_again_by_the_next_run_only(folders, make_study, results_of):
    study, execute = make_study("a"), Waves(dying=[1])
    run_waves(results_of(studies=[study]), folders, execute, lambda event: None)
    assert [len(wave) for wave in execute.waves] == [0, 3]
    assert numbers(next_candidates(study, folders, {})) == [1]
    assert numbers(next_candidates(replace(study, trials=4), folders, {})) == [1, 3]


def test_a_search_ends_where_nothing_is_left_to_try(folders, make_study):
    few = make_study("few", trials=9, values=(1, 2))
    assert {job.spec.settings["k"] for job in next_candidates(few, folders, {})} == {1, 2}
