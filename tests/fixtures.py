"""Shared fixtures: small random GPT-Neos, checkpoints without weights, and makers of trials and their records."""

import copy
import gc
import hashlib
import logging
import os
import re
import shutil
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from harness.settings import Collapse, Engine, EvaluatorSpec, Level, MemorizedModel, Plan, Source, Trial

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Each core has a worker; NumPy's threads would wait for theirs.
os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")  # Frozen intervals are of AVX2; AVX-512 rounds the ninth digit.

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch.profiler import ProfilerActivity, profile
from transformers import BertConfig, BertModel, GPTNeoConfig, GPTNeoForCausalLM, PreTrainedTokenizerFast

from harness.analysis.metrics import metric_info
from harness.analysis.ranking import rank
from harness.analysis.table import table
from harness.contracts import Checkpoint, Metric, Sequences, Training
from harness.errors import ConfigError
from harness.execution import tasks, trial
from harness.execution.isolate import ProcessState
from harness.execution.jobs import Folders, Job
from harness.models.loading import load_model
from harness.planning.plan import plan
from harness.plugins import EVALUATORS, METHODS
from harness.records.items import MetricItems, aggregated
from harness.records.journal import Journal, Measurement, Point, Walked
from harness.records.results import Results, trial_results
from harness.testing import Conformance
from tests.unit.tasks import maker

logging.getLogger("transformers").setLevel(logging.ERROR)
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


LONG = "end_to_end memory tuned every_evaluator bootstrap ray_tune walk workers deepspeed every_method interruption"
LONG_FILES = tuple(f"test_{name}.py" for name in LONG.split())
"""Begun after the promises, the longest first: begun last, one would run alone while the other worker waits."""


MATRICES = (
    "test_gradients_layer_by_layer_are_those_of_the_whole_model_to_the_last_bit",
    "test_blocks_tile_the_matrices_of_attention_and_mlp_and_nothing_else",
    "test_every_continuation_is_that_of_plain_passes",
    "test_samples_are_those_of_plain_passes",
    "test_they_are_the_matrices_of_the_mlp_blocks",
    "test_they_are_called_as_in_the_paper",
    "test_hidden_states_are_those_before_the_final_norm",
    "test_a_logit_lens_reads_the_last_layer_as_the_model_itself_does",
    "test_erasing_is_told_to_within_a_quarter",
    "test_a_method_gives_what_the_plain_engine_gives",
    "test_a_method_whose_sign_is_turned_round_does_not_conform",
    "test_all_texts_together_are_certain_and_each_is_the_product_of_its_tokens",
    "test_it_is_how_often_the_project_samples_each_text",
    "test_equal_logits_are_in_or_out_by_position_as_they_are_drawn",
)
"""Tests of every family or method: make test runs one case in four, of conformance suites in eight; make soak all."""
QUICK = ("introduces_itself", "declares_can_be_searched", "off_changes_nothing", "wrong_setting_is_named")
"""Ends of the conformance tests of which make test runs every case."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    # Each matrix begins at another case, so that every plugin and family is there in some of them.
    cases = Counter({name: place for place, name in enumerate(MATRICES)})
    for item in items:
        name, suite = getattr(item, "originalname", ""), getattr(item, "cls", None)
        is_of_suite = suite is not None and issubclass(suite, Conformance)
        if name in MATRICES or (is_of_suite and not name.endswith(QUICK)):
            cases.setdefault(name, len(cases))
            if cases[name] % (8 if is_of_suite else 4):
                item.add_marker(pytest.mark.soak)
            cases[name] += 1
    places = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: ("promises" not in item.path.parts, places.get(item.path.name, len(places))))


def pytest_runtest_setup(item):
    """Keep what was imported so far from being looked through whenever a trial ends, which would take a second."""
    now = [item.path, len(sys.modules)]
    if now != _AT_LAST_FREEZE:
        _AT_LAST_FREEZE[:] = now
        gc.collect()
        gc.freeze()


_AT_LAST_FREEZE = [None, 0]
"""The file whose test was to begin, and how many modules were imported."""


@maker
def make_model(seed=0, layers=4, hidden=32, heads=4, vocabulary=60, window=8, scale=0.3, positions=128):
    """Make a GPT-Neo whose weights are large enough for opinions of its own."""
    torch.manual_seed(seed)
    config = GPTNeoConfig(
        vocab_size=vocabulary, hidden_size=hidden, num_layers=layers, num_heads=heads, window_size=window,
        attention_types=[[["global", "local"], layers // 2]], max_position_embeddings=positions,
        initializer_range=scale, bos_token_id=0, eos_token_id=0,
        resid_dropout=0.0, embed_dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    return GPTNeoForCausalLM(config).eval()


@maker
def make_sequences(rows, prefix_tokens=1, digest="0" * 16):
    """Make sequences from lists of token ids."""
    width = max(len(row) for row in rows)
    tokens = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    return Sequences(tokens, torch.tensor([len(row) for row in rows]), prefix_tokens, digest)


@pytest.fixture(scope="session")
def tokenizer():
    """One token a byte: lengths can be counted by eye."""
    alphabet = {character: number for number, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    bytes_alone = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bytes_alone)


@pytest.fixture(scope="session")
def world(make_model, tokenizer, tmp_path_factory):
    """A folder with the checkpoints MODEL, OTHER and THIRD: whole, tiny, and of weights that nobody trained."""
    folder = tmp_path_factory.mktemp("world")
    for seed, name in enumerate(("MODEL", "OTHER", "THIRD")):
        make_model(seed, layers=2, hidden=8, heads=2, vocabulary=256, positions=512).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="session")
def encoder(tokenizer, tmp_path_factory):
    """A folder with a tiny sentence encoder, a judge of similarity."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    folder = tmp_path_factory.mktemp("encoder")
    BertModel(BertConfig(vocab_size=256, max_position_embeddings=512, **sizes)).save_pretrained(folder)
    padded = tokenizer.__class__(tokenizer_object=tokenizer.backend_tokenizer, pad_token="!", model_max_length=512)
    padded.save_pretrained(folder)
    return folder


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """Return a maker of repositories in an empty cache of the hub: a folder's files become blobs behind links."""
    from huggingface_hub import constants

    cache = tmp_path / "cache" / "hub"
    cache.mkdir(parents=True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))

    def add(id, folder, kind="model", commit="c0ffee" * 6 + "c0de"):
        home = cache / f"{kind}s--{id.replace('/', '--')}"
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            blob = home / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
            blob.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, blob)
            link = home / "snapshots" / commit / file.relative_to(folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(blob, link.parent))
        (home / "refs").mkdir(exist_ok=True)
        (home / "refs" / "main").write_text(commit)
        return home / "snapshots" / commit

    add.folder = cache
    return add


@pytest.fixture(scope="session")
def mlflow_template(tmp_path_factory):
    """A database as MLflow makes it, which takes seconds; every test gets a copy."""
    from mlflow import MlflowClient

    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    assert [experiment.name for experiment in MlflowClient(f"sqlite:///{file}").search_experiments()] == ["Default"]
    return file


@pytest.fixture(scope="session")
def copied_mlflow_tables(mlflow_template):
    """Let new databases of this process begin as copies, not as MLflow's forty migrations."""
    from mlflow.store.db import utils

    def copy(engine):
        engine.dispose()
        shutil.copyfile(mlflow_template, engine.url.database)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(utils, "_initialize_tables", copy)
        yield


@maker
def make_spec(evaluators=None, **changes):
    """Make a trial; `evaluators` are given by their keys."""
    keys = evaluators or {name: f"{name}-key" for name in ("memorization", "generation")}
    text = Source(source="miniature", digest="1" * 16)
    fields = {"trial_id": "t1", "sweep": "s", "variant": "emso", "method": "emso", "label": "EMSO"}
    fields |= {"reference": "none", "settings": {"k": 2}, "method_version": 1, "seed": 0, "judges": {}}
    fields |= {"strength_name": "epochs", "strengths": (1, 2), "training": Training(), "engine": Engine()}
    fields |= {"model": Checkpoint("miniature-m", "/m", "/m", "0" * 16)}
    fields |= {"memorization": MemorizedModel(epochs=1, learning_rate=0.1, global_batch=1, gate=0.9)}
    fields |= {"forget": text, "retain": None, "utility": text, "validation": text}
    evaluators = tuple(EvaluatorSpec(name=name, version=1, settings={}, key=keys[name]) for name in keys)
    return Trial(**fields | {"evaluators": evaluators} | changes)


@pytest.fixture(scope="session")
def make_row(make_spec):
    """Return a maker of a sweep's rows, each a trial under its variant's name; without strengths, of a reference."""

    def make(variant, strengths=(), seed=0, **changes):
        fields = {"variant": variant, "method": variant, "label": variant.upper(), "seed": seed}
        fields |= {"trial_id": f"{variant}-{seed}", "strengths": strengths}
        return make_spec(**{"strength_name": "epochs" if strengths else ""} | fields | changes)

    return make


@maker
def make_plan(*trials, **changes):
    """Make a plan of these trials."""
    fields = {"sweep": "s", "question": "What does it cost?", "file": "# What?\nname: s\n", "overrides": ()}
    fields |= {"trials": trials, "ranked_at": {}, "collapse": Collapse(), "samples": "redacted"}
    return Plan(**fields | changes)


@maker
def make_point(spec, strength=None, **changes):
    """Make a point of a trial."""
    fields = {"trial_id": spec.trial_id, "point_id": spec.point_id(strength), "strength": strength}
    return Point(**fields | {"erase_seconds": 1.0, "peak_memory_bytes": 7, "notes": {}} | changes)


@pytest.fixture(scope="session")
def declared():
    """Return what the shipped evaluators declare of each of the named metrics, whatever its n is."""

    def metric(name):
        n = int(re.search(r"\d*$", name).group() or 3)
        settings = {"memorization": {"n": n}, "generation": {"rep": n, "div": n}}
        metrics = [m for evaluator in settings for m in EVALUATORS.configure(evaluator, settings[evaluator]).metrics]
        return next(m for m in metrics if m.name == name)

    return lambda *names: [metric(name) for name in names]


@pytest.fixture(scope="session")
def make_results():
    """Return a maker of a plan's results from the records of its trials, by their ids."""
    return lambda plan, records: Results(
        plan, tuple(trial_results(spec, records.get(spec.trial_id, ())) for spec in plan.trials)
    )


@pytest.fixture(scope="session")
def make_ranked(make_results):
    """Return a maker of a plan's results and their ranked table, from the records of its trials, by their ids."""

    def make(plan, records, evidence=None):
        results = make_results(plan, records)
        info = metric_info(results)
        return results, rank(table(results, info, evidence), info, evidence)

    return make


@pytest.fixture(scope="session")
def make_measurement(declared):
    """Return a maker of measurements, under the key that the trial asks of the evaluator."""

    def make(spec, strength=None, evaluator="memorization", numbers=None, **changes):
        numbers = numbers or {"ma": 0.5}
        keys = {evaluator.name: evaluator.key for evaluator in spec.evaluators}
        fields = {"trial_id": spec.trial_id, "point_id": spec.point_id(strength), "strength": strength}
        fields |= {"evaluator": evaluator, "key": keys.get(evaluator), "definition": "exact", "numbers": numbers}
        if "metrics" not in changes:
            fields["metrics"] = tuple(asdict(metric) for metric in declared(*numbers))
        return Measurement(**fields | {"samples": (), "notes": {}, "seconds": 2.0} | changes)

    return make


@pytest.fixture(scope="session")
def simulate_sweep(make_row, make_plan):
    """Return a maker of a sweep's folder: rows that cost what they are told, with noise of seeds and of items.

    `costs` is by row what erasing down to an MA of .75 costs, as a logarithm; it deviates from seed to seed.
    """
    about = {"unit": "", "low": 0.0, "source": "", "better": "lower"}
    about_N = {"group": "generation", "high": float("inf"), "items": "prompt", "aggregate": "exp_mean", **about}
    metrics = (
        Metric(name="ma", title="MA", group="erasure", high=1.0, items="sequence", **about),
        Metric(name="perplexity", title="Perplexity", **about_N),
    )

    def make(folder, costs, *, seeds=5, deviation=0.05, seed=0, prompts=64, sequences=48, noise=1.0):
        generator = np.random.default_rng(seed)
        hard_S, hard_N = generator.normal(0, 0.1, sequences), generator.normal(0, 0.5, prompts)
        journal, specs, level = Journal(folder / "journal"), [], Level(metric="ma", at=0.75)

        def append(spec, strength, levels):
            items, numbers = {}, {}
            for metric, hard, spread in zip(metrics, (hard_S, hard_N), (0.1, 0.3), strict=True):
                ids = tuple(f"{metric.items} {place}" for place in range(len(hard)))
                values = levels[metric.name] + hard + generator.normal(0, noise * spread, len(hard))
                items[metric.name] = MetricItems(ids, ids, values, np.ones(len(hard)))
                numbers[metric.name] = aggregated(values, np.ones(len(hard)), metric.aggregate)
            of_point = {"trial_id": spec.trial_id, "point_id": spec.point_id(strength), "strength": strength}
            journal.append(Point(**of_point, erase_seconds=60.0 * (strength or 0), peak_memory_bytes=None, notes={}))
            found = {"numbers": numbers, "metrics": tuple(map(asdict, metrics)), "samples": (), "notes": {}}
            measured = {"evaluator": "generation", "key": keys["generation"], "definition": "exact", "seconds": 10.0}
            journal.append_measurement(Measurement(**of_point, **measured, **found), items)

        keys = {"generation": "generation-key"}
        for number in range(seeds):
            original = make_row("original", evaluators=keys, seed=number)
            append(original, None, {"ma": 0.99, "perplexity": 2.0})
            specs.append(original)
        for row, cost in costs.items():
            for number in range(seeds):
                spec = make_row(row, evaluators=keys, seed=number, until=level, walk_to=3, strength_name="epochs")
                near = {"strength": 2, "ma": 0.75, "perplexity": 2.0}
                found = {"strength": 2, "reached": True, "nearest": near, "probes": ()}
                journal.append(Walked(trial_id=spec.trial_id, level=0.75, **found))
                append(spec, 2, {"ma": 0.75, "perplexity": 2.0 + cost + generator.normal(0, deviation)})
                specs.append(spec)
        journal.write_plan(make_plan(*specs, until=(level,)))
        return folder

    return make


@pytest.fixture(scope="session")
def sound():
    """A sweep file without a fault, for the checkpoints of `world`."""
    return """
# What is right?
name: sound
models: [{id: MODEL, retrained: OTHER}]
seeds: [0, 1]
data:
  forget: {source: miniature, sequences: 4}
  retain: {source: miniature}
  utility: {source: miniature, prompts: 4}
training: {learning_rate: 1e-3, global_batch: 16, early_stop: null}
methods:
  emso: {epochs: [1, 2, 3]}
  task_arithmetic: {gamma: [0.04, 0.05]}
  kl_divergence:
  full_em: {method: emso, selection: all, training: {micro_batch: 2}}
evaluators: {memorization: {el_sequences: 4}, generation: }
judges: {perplexity: OTHER, features: {id: OTHER, tokenizer: MODEL}, similarity: OTHER, coherence: OTHER}
ranking: {at: {task_arithmetic: 0.04}}
collapse: {mauve: 0.3}
resources: {cpus: 2, gpus: 0}
report: {samples: plain}
keep_erased: none
"""


@pytest.fixture
def plan_text(world, tmp_path):
    """Return a planner of a sweep file's text with changes, in which names stand for checkpoints and this folder."""
    places = {name: world / name for name in ("MODEL", "OTHER", "THIRD")} | {"FOLDER": tmp_path}

    def filled(text):
        for name, place in places.items():
            text = text.replace(name, str(place))
        return text

    def run(text, *changes, only=()):
        file = tmp_path / "file.yaml"
        file.write_text(filled(text).lstrip())
        return plan(file, [filled(change) for change in changes], only)

    return run


@pytest.fixture
def refused():
    """Return a runner of a planner that refuses its changes for one fault, at this path: its message."""

    def run(planned, path, *changes, **more):
        with pytest.raises(ConfigError) as caught:
            planned(*changes, **more)
        [fault] = caught.value.faults
        assert fault.path == path
        return fault.reason

    return run


@pytest.fixture
def check(world, sound, plan_text):
    """Return a checker: text in, the faults by path out; none if the file is right."""

    def run(*changes, text=sound, only=(), **replaced):
        """`replaced`: top-level settings by name, as YAML; None removes one."""
        for name, value in replaced.items():
            pattern = rf"(?m)^{name}:.*\n(?:[ -].*\n)*"
            assert re.search(pattern, text), name
            text = re.sub(pattern, lambda _: "" if value is None else f"{name}: {value}\n", text)  # noqa: B023
        try:
            plan_text(text, *changes, only=only)
        except ConfigError as error:
            faults = error.faults
        else:
            return {}
        assert len(set(faults)) == len(faults), "no fault twice"
        return {fault.path: fault.reason.replace(f"{world}/", "") for fault in faults}

    return run


@pytest.fixture
def fault_at(check):
    """Return a checker of a file with one fault, which is at this path: its message."""

    def run(path, *changes, **replaced):
        found = check(*changes, **replaced)
        assert list(found) == [path]
        return found[path]

    return run


@pytest.fixture
def hostile(monkeypatch):
    """Add the plugins of tests/hostile_package to those of this process; each has its way as a setting."""
    monkeypatch.syspath_prepend(Path(__file__).parent / "hostile_package")
    for shelf in (METHODS, EVALUATORS):
        for name in (f"{word}_{shelf.kind}" for word in ("harmful", "leaking")):
            shelf.add(name, import_module(f"hostile.{name}"))
    yield
    for shelf in (METHODS, EVALUATORS):
        vars(shelf).pop("_entry_points", None)


@pytest.fixture
def put_back():
    """Put back what a process shares after the test, and return a function that does so before its end."""
    before = ProcessState()
    yield before.restore
    before.restore()


@pytest.fixture
def measured(monkeypatch):
    """Return a measurer: the most bytes that torch says tensors held while a function ran."""

    kept = []

    def counted(checkpoint, dtype=torch.float32):
        # Some weights are allocated in transformers' own threads, which are not counted: a copy is. What is
        # allocated elsewhere must not be freed here either, or that is counted.
        with ThreadPoolExecutor(1) as elsewhere:
            kept.append(elsewhere.submit(load_model, checkpoint, dtype).result())
        return copy.deepcopy(kept[-1])

    monkeypatch.setattr(tasks.loading, "load_model", counted)

    def run(work):
        gc.collect()  # What is left over from before and freed meanwhile would count as less.
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            work()
        events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
        now = most = 0
        for event in sorted(events, key=lambda each: each.start_ns()):
            now += event.nbytes()
            most = max(most, now)
        return most

    return run


@pytest.fixture
def run_whole(tmp_path):
    """Return a runner of a whole trial, with the memorised model that it needs, and with no judge loaded before."""

    tasks.JUDGES.__init__()

    def run(spec):
        folders = Folders(results=tmp_path / "results", artifacts=tmp_path / "artifacts")
        if spec.reference == "memorized_model":
            trial.run_job(Job(name="memorize", kind="memorize", spec=spec), folders, lambda event: None)
        trail = trial.erasing.Trail(tasks.PeakMemory(torch.device("cpu")))
        trial.run_trial(Job(name="trial", kind="trial", spec=spec), folders, lambda event: None, trail)

    return run
