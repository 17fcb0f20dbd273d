"""The walk to a level: by hand on a made-up erasure, and on a small model whose MA is measured another way."""

import math

import pytest
import torch

from harness.contracts import Strength
from harness.execution import trial
from harness.execution.erasing import TOLERANCE, erase, find_level, probe
from harness.execution.jobs import Folders, Job
from harness.execution.tasks import EvaluatingTask, PeakMemory, forget_set, measured_set, validation_set
from harness.models.loading import load_model
from harness.plugins import EVALUATORS
from harness.records.artifacts import Artifacts
from harness.records.journal import Journal, Walked
from harness.records.results import trial_results
from harness.settings import EvaluatorSpec, Level, replace
from harness.testing import small_spec
from harness.toolkit.scoring import own_perplexity

ERASING = "harness.execution.erasing"
EPOCHS = Strength("epochs", cumulative=True, off=0, divisible=True)
WHOLE_EPOCHS = Strength("epochs", cumulative=True, off=0)
DIAL = Strength("gamma", cumulative=False, off=0.0)
LINE = {number: 1 - 0.05 * number for number in range(25)}
"""MA after each step: epochs have eight of them."""
NAN = float("nan")


def walked(dial, walk_to, ma_at, level=0.75, stop=None):
    """Return what was erased, each time as far as it was wanted, and what the walk says at its end."""
    erased = []

    def models_at(strengths):
        erased.append([])
        for strength in strengths:
            erased[-1].append(strength)
            stopped = {"stop": "it stopped"} if strength == stop else {}
            yield {"strength": strength, "ma": ma_at(strength), "perplexity": 2.0} | stopped
            if strength == stop:
                return

    probes, reason = find_level(dial, walk_to, level, {"strength": dial.off, "ma": 1.0}, models_at, 8)
    return erased, probes[-1]["strength"], reason


BY_HAND = [
    # .6 after an epoch; .9, .8, .7 after quarters of it; .75 at the one step between .8 and .7.
    (EPOCHS, 3, lambda s: LINE[round(8 * s)], [[1], [0.25, 0.5, 0.75], [0.625]], 0.625, ""),
    (EPOCHS, 3, lambda s: 1 - 0.12 * s, [[1, 2]], 2, ""),  # .76 is near enough.
    (EPOCHS, 2.5, lambda s: 1 - 0.096 * s, [[1, 2, 2.5]], 2.5, ""),
    (EPOCHS, 3, lambda s: 0.9, [[1, 2, 3]], 3, "the walk ends at epochs 3"),
    (EPOCHS, 1, lambda s: 0.9 if s < 1 else 0.6, [[1], [0.25, 0.5, 0.75], [0.875]], 0.875,
     "MA goes from 0.90 at epochs 0.875 to 0.60 at epochs 1 at once"),
    (EPOCHS, 3, lambda s: NAN if s > 1 else 0.9, [[1, 2], [1.25], [1.125]], 1.125,
     "the model collapses at epochs 1.125: its perplexity is no number"),
    (WHOLE_EPOCHS, 3, lambda s: {1: 0.9, 2: 0.5}[s], [[1, 2]], 2,
     "MA goes from 0.90 at epochs 1 to 0.50 at epochs 2 at once"),
    (Strength("distance", cumulative=True, off=0.0), 0.9, lambda d: 1 - d / 2, [[0.9], [0.5]], 0.5, ""),
    (Strength("distance", cumulative=True, off=0.0), 3.0, lambda d: 1 - d / 10, [[1, 2, 3.0], [2.5]], 2.5, ""),
    # The line between both ends is at the level at gamma 1, which has .5; then the middle, and so on.
    (DIAL, 3.0, lambda g: 1 / (1 + g), [[3.0], [1.0], [0.5], [0.375], [0.1875], [0.3379]], 0.3379, ""),
    (DIAL, 0.1, lambda g: 1 / (1 + g), [[0.1]], 0.1, "the walk ends at gamma 0.1"),
    (DIAL, 8, lambda g: 0.9 if g < 3 else 0.5, [[8], [4], [2], [3]], 3,
     "MA goes from 0.90 at gamma 2 to 0.50 at gamma 3 at once"),
]  # fmt: skip


@pytest.mark.parametrize(("dial", "walk_to", "ma_at", "erased", "found", "reason"), BY_HAND)
def test_walks_by_hand(dial, walk_to, ma_at, erased, found, reason):
    assert walked(dial, walk_to, ma_at) == (erased, found, reason)


def test_the_last_halving_counts():
    erased, found, reason = walked(DIAL, 1000.0, lambda g: 0.05 + 0.9 / (1 + (g / 0.33) ** 10), level=0.5)
    assert (len(erased), found, reason) == (13, 0.3321, "")
    assert walked(DIAL, 1000.0, lambda g: 0.02 + 0.93 * math.exp(-((g / 0.01) ** 2)), level=0.5)[2] == ""


def test_a_trajectory_that_stops_above_the_level_has_its_reason():
    assert walked(EPOCHS, 3, lambda s: 0.9, stop=2) == ([[1, 2]], 2, "it stopped")


def walk(spec, artifacts):
    """Return the record of a walk that shares its way with none, its model and seconds."""
    trail = trial.erasing.Trail(PeakMemory(torch.device("cpu")))
    found = trail.walk(spec, artifacts, lambda message: None)
    trail.stop()
    return found, trail.erasure, trail.seconds


@pytest.fixture
def spec():
    """A trial that is walked to MA 0.75: 12 sequences, as many steps an epoch."""
    small = small_spec()
    training = replace(small.training, learning_rate=1e-4, global_batch=1)
    about = {"method": "gradient_ascent", "settings": {"epochs": 1}, "strength_name": "epochs", "walk_to": 4}
    little = {"el_sequences": 1, "el_prefixes": 1}
    memorization = EvaluatorSpec(name="memorization", version=1, settings=little, key="memorization-key")
    level = Level(metric="ma", at=0.75)
    forget = replace(small.forget, sequences=12, rows=12)
    spec = replace(small, training=training, until=level, levels=(level,), forget=forget, **about)
    return replace(spec, evaluators=(memorization,)).identified(is_cumulative=True)


def ma_by_hand(model, texts):
    """Return MA by one plain pass over each text: the paper's sum ends one before the last token."""
    shares = []
    for tokens, length in zip(texts.tokens_NT, texts.lengths_N, strict=True):
        with torch.no_grad():
            choices = model(tokens[None, :length]).logits[0].argmax(-1)
        first, last = texts.prefix_tokens, int(length) - 1
        shares.append(float((choices[first - 1 : last - 1] == tokens[first:last]).float().mean()))
    return sum(shares) / len(shares)


def test_the_model_at_the_found_strength_is_at_the_level_and_again_the_same(spec, tmp_path):
    artifacts = Artifacts(tmp_path)
    found, at_level, seconds = walk(spec, artifacts)
    assert found.reached
    assert seconds > 0
    assert found.strength != round(found.strength), "within an epoch"
    [erasure] = erase(spec, artifacts, (found.strength,), lambda message: None)
    assert abs(ma_by_hand(erasure.erased.model, measured_set(spec)) - 0.75) <= TOLERANCE
    weights = dict(at_level.erased.model.named_parameters())
    assert all(torch.equal(weight, weights[name]) for name, weight in erasure.erased.model.named_parameters())
    assert found.nearest["strength"] == found.strength
    assert walk(spec, Artifacts(tmp_path / "other"))[0] == found


def test_models_within_an_epoch_are_kept_only_when_the_level_is_near(spec, tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(f"{ERASING}.write_erasure", lambda erasure, *others: kept.append(erasure.erased.strength))
    slow = replace(spec, training=replace(spec.training, learning_rate=spec.training.learning_rate / 9), walk_to=9)
    found = walk(slow, Artifacts(tmp_path))[0]
    assert found.reached
    assert {math.ceil(one) for one in kept} == {1, math.ceil(found.strength)}, "and nothing of epochs 2 to 4"


def test_killed_between_walk_and_measurement_it_measures_what_the_walk_found(spec, tmp_path, monkeypatch):
    folders = Folders(results=tmp_path / "results", artifacts=tmp_path / "artifacts")
    job = Job(name="walk", kind="trial", spec=spec)

    def killed(*arguments, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trial._RunningTrial, "keep", killed)
        with pytest.raises(KeyboardInterrupt):
            trial.run_job(job, folders, lambda event: None)
    journal = Journal(folders.results / "journal")
    [walked] = [record for record in journal.read(spec.trial_id) if isinstance(record, Walked)]
    half = trial_results(spec, journal.read(spec.trial_id))
    assert (half.status, half.walked) == ("missing", walked)
    assert [point.strength for point in half.points] == [walked.strength]
    monkeypatch.setattr(trial.erasing.Trail, "walk", lambda *arguments: pytest.fail("walked again"))
    trial.run_job(job, folders, lambda event: None)
    whole = trial_results(spec, journal.read(spec.trial_id))
    [point] = whole.measured
    assert (whole.status, point.strength, point.made.point_id) == ("done", walked.strength, spec.point_id(None))
    assert abs(point.numbers["ma"] - 0.75) <= TOLERANCE


CHAINS = [((0.75, 0.5), 2**34, 1), ((0.75, 0.9999, 0.5), 2**34, 2), ((0.5, 0.75), 0, 2)]


def test_each_walk_of_a_chain_finds_what_it_finds_separately_and_they_train_their_way_once(spec, tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(f"{ERASING}.erase", lambda *arguments: trained.append(arguments) or erase(*arguments))

    def found(name, job):
        folders, events = Folders(results=tmp_path / name, artifacts=tmp_path / f"{name}-artifacts"), []
        trained.clear()
        trial.run_job(job, folders, events.append)
        ended = [event.job for event in events if event.kind in ("finished", "failed")]
        assert ended == [each.name for each in job.chain()], "each has an end of its own"
        read = [trial_results(each.spec, folders.journal.read(each.trial_id)) for each in job.chain()]
        return [
            (each.walked, each.failure and each.failure.error, [one.numbers for one in each.measured]) for each in read
        ]

    weights = EvaluatorSpec(name="weights", version=1, settings={}, key="weights-key")
    spec, keys, scratch_dir = replace(spec, evaluators=(weights,)), set(), Artifacts.scratch_dir
    monkeypatch.setattr(Artifacts, "scratch_dir", lambda *about: keys.add(about[1:]) or scratch_dir(*about))
    jobs, separate = {}, {}
    for at in (0.75, 0.5, 0.9999):
        level = Level(metric="ma", at=at)
        until = replace(spec, until=level, levels=(level,)).identified(is_cumulative=True)
        jobs[at] = Job(name=f"{at}", kind="trial", spec=until)
        [separate[at]] = found(f"separate-{at}", jobs[at])
        assert len(trained) == (at != 0.9999)
        assert bool(separate[at][2]) == (at != 0.9999)
    assert "MA 0.9999 is 1.000, and the original has" in separate[0.9999][1]
    assert len(keys) == 1, "what a kill leaves is removed by any level"
    for number, (levels, kept_bytes, trainings) in enumerate(CHAINS):
        job = None
        for at in reversed(levels):
            job = replace(jobs[at], then=job)
        monkeypatch.setattr(f"{ERASING}.MAX_KEPT_BYTES", kept_bytes)
        assert found(f"together-{number}", job) == [separate[at] for at in levels]
        assert len(trained) == trainings


def test_while_a_grids_last_point_is_measured_its_optimiser_is_gone(spec, tmp_path, monkeypatch):
    grid, folders, done = replace(spec, until=None, walk_to=None, strengths=(1, 2)), Folders(tmp_path, tmp_path), []
    monkeypatch.setattr("harness.toolkit.engines.TorchEngine.close", lambda engine: done.append("closed"))
    monkeypatch.setattr(trial._RunningTrial, "measure", lambda *arguments: done.append("measured"))
    trial.run_job(Job(name="grid", kind="trial", spec=grid), folders, lambda event: None)
    assert done == ["measured", "closed", "measured"]


def test_a_trajectory_that_the_early_stop_ends_is_done_and_measured_where_it_ended(spec, tmp_path):
    stopping, folders = replace(spec.training, early_stop=1.001), Folders(tmp_path, tmp_path)
    grid = replace(spec, until=None, walk_to=None, strengths=(30,), training=stopping)
    trial.run_job(Job(name="grid", kind="trial", spec=grid), folders, lambda event: None)
    results = trial_results(grid, folders.journal.read(grid.trial_id))
    [point] = results.measured
    assert (results.status, results.remaining, point.strength < 30) == ("done", (), True)
    assert point.stop_reason.startswith("validation perplexity ")


def test_a_walk_that_does_not_get_there_is_done_and_has_no_point(spec):
    about = {"level": 0.75, "strength": None, "nearest": {"strength": 4, "ma": 0.83, "perplexity": 3.0}, "probes": ()}
    record = Walked(trial_id=spec.trial_id, reached=False, reason="the walk ends at epochs 4", **about)
    results = trial_results(spec, [record])
    assert (results.status, results.points, results.walked) == ("done", (), record)


# Probes: the numbers that the table has, from two forward passes.


def test_a_probe_is_what_the_evaluator_and_the_early_stop_measure(spec, tmp_path):
    model = load_model(spec.model)
    seen = probe(model, forget_set(spec), validation_set(spec))
    evaluator = EVALUATORS.configure("memorization", {"el_sequences": 1, "el_prefixes": 1})
    measured = evaluator.evaluate(model, EvaluatingTask(spec, Artifacts(tmp_path), model, prepares=True)).numbers
    assert seen == {"ma": measured["ma"], "perplexity": own_perplexity(model, validation_set(spec))}


def test_where_a_model_is_broken_nothing_is_known(spec):
    model = load_model(spec.model)
    with torch.no_grad():
        model.base_model.ln_f.weight.fill_(float("nan"))
    assert set(map(str, probe(model, forget_set(spec), validation_set(spec)).values())) == {"nan"}
