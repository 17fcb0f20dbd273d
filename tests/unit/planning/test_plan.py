"""Plans: which trials a sweep file asks for, and what makes two of them the same."""

import json
import re
import shutil

import pytest

from harness.data.sequences import load_forget
from harness.execution.trial import sequence_identities
from harness.models.loading import load_tokenizer
from harness.models.resolving import resolve_model
from harness.reporting.plan import one_step_epochs

FILE = """# What is asked?
name: sound
models: [{id: MODEL, retrained: OTHER}]
seeds: [0, 1]
data:
  forget: {source: miniature, sequences: 4}
  retain: {source: miniature, sequences: 4}
  utility: {source: miniature, prompts: 4}
training: {learning_rate: 1e-3, global_batch: 16}
methods:
  emso: {epochs: [3, 1, 2]}
  task_arithmetic: {gamma: [0.04, 0.05]}
  kl_divergence:
evaluators: {memorization: , generation: }
judges: {perplexity: MODEL, features: MODEL, similarity: MODEL, coherence: OTHER}
"""


def ids(found, method):
    return [spec.trial_id for spec in found.trials if spec.method == method]


def keys(found, evaluator):
    return {measured.key for spec in found.trials for measured in spec.evaluators if measured.name == evaluator}


def test_references_come_first_then_methods_in_the_files_order(planned):
    found = planned()
    seen = [(spec.variant, spec.seed, spec.strengths) for spec in found.trials]
    erasing = [("emso", (1, 2, 3)), ("task_arithmetic", (0.04,)), ("task_arithmetic", (0.05,)), ("kl_divergence", (1,))]
    references = [(name, seed, ()) for seed in (0, 1) for name in ("original", "retrained")] + [("holdout", 0, ())]
    assert seen == [*references, *((name, seed, strengths) for seed in (0, 1) for name, strengths in erasing)]
    assert (found.sweep, found.question, found.samples) == ("sound", "What is asked?", "redacted")
    assert len({spec.trial_id for spec in found.trials}) == len(found.trials)


def test_specs_hold_all_that_a_worker_needs(planned, world):
    found = {spec.variant: spec for spec in planned().trials if spec.seed == 0}
    emso = found["emso"]
    assert (emso.label, emso.reference, emso.strength_name) == ("EMSO", "none", "epochs")
    assert "epochs" not in emso.settings
    assert emso.settings["k"] == 2, "settings at their defaults are written out"
    assert emso.retain is None, "only methods that use retain data get it"
    assert found["kl_divergence"].retain.sequences == 4
    assert len(emso.forget.digest) == len(emso.utility.digest) == len(emso.validation.digest) == 64
    assert (emso.forget.prefix_tokens, emso.forget.sequence_tokens) == (64, 128), "the miniature's own"
    assert (emso.utility.prefix_tokens, emso.utility.sequence_tokens, emso.utility.sequences) == (32, 160, 4)
    assert (emso.training.learning_rate, emso.training.micro_batch) == (0.001, 16)
    assert (emso.memorization.epochs, emso.memorization.gate, emso.memorization.global_batch) == (10, 0.98, 16)
    assert emso.judges["coherence"].location == str(world / "OTHER")
    assert found["retrained"].retrained.location == str(world / "OTHER")
    assert found["retrained"].model == found["original"].model
    assert found["original"].retrained is None


DECIDING_NOTHING = [
    ["methods={kl_divergence: , task_arithmetic: {gamma: [0.05, 0.04]}, emso: {k: 2, epochs: 2}}"],
    ["seeds=[1, 0, 2]", "data.utility.prompts=8", "models.0.retrained=THIRD", "memorized_model={gate: 0.98}"],
    ["name=another", "training.micro_batch=1", "evaluators={memorization: {n: 5}}", "resources={cpus: 2, gpus: 0}"],
    ["timeout_minutes=0.5", "keep_erased=all", "report={samples: plain}", "judges.perplexity=THIRD"],
]


@pytest.mark.parametrize("changes", DECIDING_NOTHING)
def test_what_must_not_change_an_erasures_id(planned, changes):
    before, after = planned(), planned(*changes)
    for method in ("emso", "task_arithmetic", "kl_divergence"):
        assert set(ids(before, method)) <= set(ids(after, method))


DECIDING = [
    ("models.0.id=THIRD", "emso task_arithmetic kl_divergence original"),
    ("data.forget.sequences=5", "emso task_arithmetic kl_divergence"),
    ("data.retain.start=1", "kl_divergence"),
    ("memorized_model.epochs=9", "task_arithmetic"),
    ("training.learning_rate=1e-4", "emso task_arithmetic kl_divergence"),
    ("models.0.training={loss_region: continuation}", "emso task_arithmetic kl_divergence"),
    ("methods.emso.k=3", "emso"),
    ("methods.task_arithmetic.gamma=[0.041, 0.051]", "task_arithmetic"),
    ("data.validation={source: miniature, start: 5}", "emso task_arithmetic kl_divergence"),
    ("seeds=[2, 3]", "emso task_arithmetic kl_divergence original retrained"),
    ("models.0.retrained=THIRD", "retrained"),
]


@pytest.mark.parametrize(("change", "changed"), DECIDING)
def test_what_must_change_an_erasures_id(planned, change, changed):
    at = ["ranking.at={task_arithmetic: 0.051}"] if "gamma" in change else []
    before, after = planned(), planned(change, *at)
    for method in ("emso", "task_arithmetic", "kl_divergence", "original", "retrained"):
        same = not set(ids(before, method)).isdisjoint(ids(after, method))
        follows = method == "retrained" and "original" in changed  # it is compared with the original
        assert same != (method in changed.split() or follows), method


OF_MEASUREMENTS = [
    ("evaluators={generation: {}, memorization: {n: 3}}", True, True),
    ("evaluators.memorization={el_sequences: 2}", False, True),
    ("judges.similarity=THIRD", False, True),
    ("judges.features=THIRD", True, False),
    ("data.utility.prompts=5", False, False),
]


@pytest.mark.parametrize(("change", "memorization", "generation"), OF_MEASUREMENTS)
def test_what_a_measurements_key_depends_on(planned, change, memorization, generation):
    before, after = planned(), planned(change)
    assert (keys(before, "memorization") == keys(after, "memorization")) == memorization
    assert (keys(before, "generation") == keys(after, "generation")) == generation


def test_variants_have_their_own_name_and_training(planned):
    found = planned("methods.full={method: emso, selection: all, training: {learning_rate: 1e-4}}", "seeds=[0]")
    full = next(spec for spec in found.trials if spec.variant == "full")
    assert (full.method, full.label, full.strengths) == ("emso", "EMSO (full)", (7,))
    assert (full.training.learning_rate, full.training.global_batch) == (1e-4, 16)
    assert full.memorization.learning_rate == 1e-3, "shared by all methods of the model"


def test_lists_multiply_and_training_is_an_axis_like_any_setting(planned):
    stops = planned("methods.emso={training: {early_stop: [null, 1.05]}}", "seeds=[0]").trials
    named = {spec.variant: spec.training.early_stop for spec in stops if spec.method == "emso"}
    assert named == {"emso(early_stop=null)": None, "emso(early_stop=1.05)": 1.05}
    grid = "methods.emso={epochs: [2, 1], k: [2, 3], training: {learning_rate: [1e-5, 4e-5], global_batch: 8}}"
    rows = {spec.variant: spec for spec in planned(grid, "seeds=[0]").trials if spec.method == "emso"}
    settings = [(k, rate) for k in (2, 3) for rate in (1e-5, 4e-5)]
    names = [f"emso(k={k},learning_rate={rate})" for k, rate in settings]
    assert list(rows) == names
    assert {spec.strengths for spec in rows.values()} == {(1, 2)}
    assert [(rows[name].settings["k"], rows[name].training.learning_rate) for name in names] == settings
    assert rows[names[0]].label == "EMSO (k=2,learning_rate=1e-05)"
    assert {spec.training.global_batch for spec in rows.values()} == {8}, "one value sets no rows apart"
    assert len({spec.trial_id for spec in rows.values()}) == 4
    alone = planned("methods.emso={epochs: [2, 1], training: {learning_rate: 1e-5, global_batch: 8}}", "seeds=[0]")
    assert ids(alone, "emso") == [rows[names[0]].trial_id], "how a rate came to be written is not measured"


def test_which_strength_is_ranked(planned):
    assert planned().ranked_at == {"task_arithmetic": 0.05}, "the default; a cumulative method's last is not named"
    assert planned("ranking.at={task_arithmetic: 0.04, emso: 2}").ranked_at == {"task_arithmetic": 0.04, "emso": 2}
    assert planned("methods.task_arithmetic.gamma=0.3").ranked_at == {"task_arithmetic": 0.3}
    grid = "methods.task_arithmetic={gamma: [0.04, 0.05], formula: [literal, shrink]}"
    rows = ("task_arithmetic(formula=literal)", "task_arithmetic(formula=shrink)")
    assert planned(grid).ranked_at == dict.fromkeys(rows, 0.05)
    at = f"ranking.at={{task_arithmetic: 0.04, '{rows[1]}': 0.05}}"
    assert planned(grid, at).ranked_at == {rows[0]: 0.04, rows[1]: 0.05}


def test_only_keeps_the_references_of_what_is_chosen(planned):
    def chosen(*only):
        return [(spec.variant, spec.seed) for spec in planned(only=only).trials]

    both = [("original", 0), ("retrained", 0), ("original", 1), ("retrained", 1), ("holdout", 0)]
    assert chosen("method=emso") == [*both, ("emso", 0), ("emso", 1)]
    assert chosen("method=original") == both
    assert chosen("seed=1", "variant=emso") == [*both[2:], ("emso", 1)], "one holdout for all seeds"
    assert chosen("method=emso", "method=kl_divergence", "seed=0")[3:] == [("emso", 0), ("kl_divergence", 0)]


def test_paths_are_absolute_and_retain_texts_as_many_as_forget_sequences(planned, tmp_path, monkeypatch):
    lines = [json.dumps({"text": " ".join(map(str, range(number, 40_000, 401)))}) for number in range(40)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    found = planned(
        "data.forget={source: jsonl, path: texts.jsonl, sequences: 7, prefix_tokens: 10, sequence_tokens: 50}",
        "data.retain={source: jsonl, path: texts.jsonl, start: 20}",
        "data.utility={source: jsonl, path: texts.jsonl, start: 10, prompts: 5}",
    )
    kl = found.trials[-1]
    assert kl.forget.path == str(tmp_path / "texts.jsonl")
    assert (kl.retain.sequences, kl.retain.sequence_tokens) == (7, 50)
    assert (kl.validation.path, kl.validation.start, kl.validation.sequences) == (kl.utility.path, 15, 5)


@pytest.fixture
def twin(world, tmp_path):
    """A copy of OTHER whose tokenizer calls `a` what was `b`."""
    folder = shutil.copytree(world / "OTHER", tmp_path / "TWIN")
    content = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


def test_a_retrained_model_that_reads_other_tokens_is_refused(planned, refused, world, twin):
    reason = refused(planned, "models.0.retrained", f"models=[{{id: MODEL, retrained: {twin}}}]")
    assert f"(in {world / 'MODEL'}): text 1 of data.forget (item " in reason
    assert "Name a model that was retrained with the same tokenizer, or leave retrained out" in reason
    item = re.search(r"\(item (\w+)\)", reason).group(1)
    forget = planned("models=[MODEL]").trials[0].forget
    tokens = load_forget(forget, load_tokenizer(resolve_model(str(world / "MODEL"))), 256)
    assert item == sequence_identities(tokens)[0][0], "as files of items name it"


def test_more_blocks_than_a_model_has_are_refused(planned, refused):
    """MODEL has two layers of two heads: 2 x (2 x 4 + 2) blocks."""
    reason = refused(planned, "methods.emso", "methods.emso={k: [2, 20, 21], epochs: [1, 2]}")
    assert "it has 20 blocks, and k asks for 21. Say 20 at most. Or use selection: all" in reason
    assert planned("methods.emso={k: [2, 20]}").trials
    assert planned("methods.emso={k: 21, selection: all}").trials


@pytest.mark.parametrize(("dial", "given"), [("emso.epochs", "0"), ("task_arithmetic.gamma", "[0.0]")])
def test_a_row_that_erases_nothing_at_all_is_refused(planned, refused, dial, given):
    reason = refused(planned, f"methods.{dial}", f"methods.{dial}={given}")
    assert reason.startswith("0 by itself erases nothing, and the original is measured in every sweep.")
    assert planned(f"methods.{dial}=[0, 1]", f"ranking.at={{{dial.partition('.')[0]}: 1}}").trials


def test_a_batch_above_the_forget_set_is_told_in_the_plan(planned):
    """A sentence and no fault: the default is 64, and of few texts a step on all of them may be meant."""

    def told(*changes):
        return one_step_epochs(planned(*changes))

    whole = "is above the number of forget sequences (4): every epoch is one step on all of them."
    both = [f"{name}.global_batch (5) {whole}" for name in ("training", "memorized_model")]
    assert told("training.global_batch=5") == both
    assert told("training.global_batch=4") == []
    assert told("training.global_batch=5", "methods={emso: {epochs: 1}}") == both[:1]
    assert told("training.global_batch=5", "methods={task_arithmetic: }", "memorized_model.global_batch=4") == []


def test_what_a_method_needs_may_depend_on_its_settings(planned, refused):
    both = "methods={npo: , npo_alone: {method: npo, retain: false}}"
    rows = [spec for spec in planned(both).trials if spec.method == "npo"]
    needs = {spec.variant: (spec.reference, spec.retain is not None) for spec in rows}
    assert needs == {"npo": ("retain_data", True), "npo_alone": ("none", False)}
    assert planned("data.retain=null", "methods={npo: {retain: false}}").trials
    assert refused(planned, "methods.npo", "data.retain=null", both).startswith("needs retain data")
