"""Tuned sweeps: which searches a file asks for, what names them, and each fault by its path and sentence."""

import json

import pytest

from harness.errors import ConfigError
from harness.planning import tuning
from harness.records.results import largest_candidate
from harness.settings import Choice, Level, LogUniform

FILE = """# What is asked?
name: tuned
models: [{id: MODEL, retrained: OTHER}]
seeds: [3, 1]
data:
  forget: {source: miniature, sequences: 8}
  retain: {source: miniature, sequences: 8}
  utility: {source: miniature, prompts: 4}
training: {learning_rate: 4e-5, global_batch: 4}
until: {ma: [0.9, retrained]}
tune: {budget: {trials: 5}, per: model}
methods:
  emso:
  task_arithmetic: {formula: [literal, shrink]}
  gradient_difference: {training: {learning_rate: 1e-5}}
evaluators: {memorization: , generation: }
judges: {perplexity: MODEL, features: MODEL, similarity: MODEL, coherence: OTHER}
"""
RATE = "training.learning_rate"


def studies(found):
    return {study.trial.variant: study for study in found.studies}


def test_a_tuned_sweep_is_its_references_and_a_study_for_each_variant_that_has_more_than_its_dial(planned):
    found = planned()
    references = [("original", 3), ("retrained", 3), ("original", 1), ("retrained", 1), ("holdout", 3)]
    assert [(spec.method, spec.seed) for spec in found.trials if spec.is_reference] == references
    assert list(studies(found)) == ["emso", "gradient_difference"]
    formulas = [f"task_arithmetic(formula={formula})" for formula in ("literal", "shrink")]
    assert found.rows == ("emso", *formulas, "gradient_difference"), "in the file's order"
    assert found.ranks_first_walk
    assert found.ranked_at == {}
    for study in found.studies:
        assert (study.trials, study.search) == (5, "optuna")
        assert study.targets == found.until == (Level(metric="ma", at=0.9), Level(metric="ma", at="retrained"))
        assert (study.trial.seed, study.seeds, study.trial.trial_id) == (1_000_000, (3, 1), study.study_id)
        assert study.utility_bounds == (0.5, 5.0)
        assert study.trial.training.early_stop is None
        assert study.trial.retrained is not None
    assert len({study.study_id for study in found.studies}) == 2


def test_a_row_that_has_its_dial_only_is_walked_to_the_end_of_its_range(planned):
    found = planned("methods.contrastive_decoding={gamma: 2}", only=["seed=3"])
    walked = [(s.variant, str(s.until), s.walk_to, s.strengths) for s in found.trials if not s.is_reference]
    literal, shrink = (f"task_arithmetic(formula={formula})" for formula in ("literal", "shrink"))
    ends = {literal: 1.0, shrink: 1.0, "contrastive_decoding": 2.0}
    assert walked == [(row, level, end, ()) for row, end in ends.items() for level in ("MA 0.9", "MA retrained")]
    assert len({spec.trial_id for spec in found.trials}) == len(found.trials)


def test_what_is_searched_is_what_is_declared_and_not_fixed(planned):
    found = studies(planned())
    emso = found["emso"]
    choices = {"k": (1, 2, 4, 8), "loss": ("em", "nll"), "selection": ("contrastive", "saliency", "random", "all")}
    ranges = {"epochs": LogUniform(low=1, high=12), RATE: LogUniform(low=1e-6, high=1e-3)}
    assert emso.space == ranges | {name: Choice(values=values) for name, values in choices.items()}
    as_declared = {"k": 2, "loss": "em", "selection": "contrastive"}
    assert emso.defaults == {"epochs": 12, **as_declared, RATE: 4e-5}, "a walk goes to the end of its range"
    assert emso.published == {**emso.defaults, RATE: 1e-5}
    assert emso.trial.settings["norm"] == "l1"
    assert "k" not in emso.trial.settings
    assert (emso.is_cumulative, emso.is_trained, emso.trial.strengths) == (True, True, ())
    difference = found["gradient_difference"]
    assert set(difference.space) == {"epochs", "retain_weight"}, "the row fixes the rate"
    without = studies(planned("methods={npo: {retain: false}}"))["npo"]
    assert "beta" in without.space
    assert "retain_weight" not in without.space, "it would do nothing"
    assert difference.trial.training.learning_rate == 1e-5


def test_the_file_replaces_what_is_declared_and_adds_to_it(planned):
    choices, rate = "k: [3], loss: [nll, em], selection: [all]", "training: {learning_rate: {low: 1, high: 2}}"
    space = f"{{{choices}, epochs: {{low: 2, high: 5}}, {rate}}}"
    emso = studies(planned(f"tune.space={{emso: {space}}}"))["emso"]
    expected = {"epochs": LogUniform(low=2, high=5), RATE: LogUniform(low=1.0, high=2.0)}
    expected |= {"k": Choice(values=(3,)), "loss": Choice(values=("nll", "em")), "selection": Choice(values=("all",))}
    assert emso.space == expected
    assert type(emso.space[RATE].low) is float, "a setting's own type: ids are made of it"
    assert emso.defaults == {"epochs": 5, "k": 3, "loss": "em", "selection": "all", RATE: 1.0}, "the nearest allowed"


def test_a_strength_that_the_row_fixes_is_the_only_one(planned):
    found = studies(planned("methods.emso={epochs: 4}", "methods.deliberate_imagination={gamma: 3}"))
    assert found["emso"].trial.strengths == (4,)
    assert "epochs" not in found["emso"].space
    assert found["deliberate_imagination"].trial.strengths == (3.0,)
    assert list(found["deliberate_imagination"].space) == ["epochs", RATE]


def test_a_tuned_sweep_is_measured_on_the_half_that_its_search_never_sees(planned):
    found, untuned = planned(), planned("tune=null")
    assert {spec.measured.half for spec in found.trials if spec.method != "holdout"} == {"report"}
    [holdout] = [spec for spec in found.trials if spec.method == "holdout"]
    assert holdout.measured is None
    [before] = [spec for spec in untuned.trials if spec.method == "holdout"]
    assert [e.key for e in holdout.evaluators] == [e.key for e in before.evaluators]
    original, as_before = found.trials[0], untuned.trials[0]
    assert original.trial_id == as_before.trial_id
    assert {e.key for e in original.evaluators}.isdisjoint(e.key for e in as_before.evaluators)
    study = found.studies[0]
    assert study.selection.half == "selection"
    assert study.selection.rows + original.measured.rows == 8
    assert len({study.selection.digest, original.measured.digest, original.forget.digest}) == 3
    assert [e.key for e in study.trial.evaluators] == [e.key for e in original.evaluators]


OF_STUDIES = [
    (["tune.budget={trials: 50}", "name=other", "training.micro_batch=1", "seeds=[1, 3]", "keep_erased=all"], True),
    (["data.utility.prompts=5", "evaluators.memorization={n: 3}", "collapse={mauve: 0.3}"], True),
    *(([change], False) for change in (
        "tune.seed=1", "tune.search=random", "until={ma: 0.9}", "tune.space={emso: {k: [1, 2]}}",
        "data.validation={source: miniature, start: 5}", "models.0.retrained=THIRD",
        "collapse={perplexity: [0.5, 6]}", "methods.emso={scale: d}", "training.early_stop=1.5",
    )),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "is_same"), OF_STUDIES)
def test_a_studys_id_names_what_decides_its_candidates_but_not_how_many(planned, changes, is_same):
    before, after = (studies(planned(*changed))["emso"].study_id for changed in ((), changes))
    assert (before == after) == is_same


def test_only_chooses_studies_as_it_chooses_trials(planned):
    assert list(studies(planned(only=["method=emso"]))) == ["emso"]
    [study] = planned(only=["seed=1", "method=emso"]).studies
    assert (study.seeds, study.trial.seed) == ((1,), 1_000_000), "tuned with a seed of its own"
    assert planned(only=["method=original"]).studies == ()


def test_each_seed_has_a_search_of_its_own_unless_the_file_says_per_model(planned):
    found = planned("tune.per=seed", "methods={emso: }").studies
    assert [(study.seeds, study.trial.seed) for study in found] == [((3,), 1_000_000), ((1,), 2_000_000)]
    assert len({study.study_id for study in found}) == 2
    [shared] = planned("methods={emso: }").studies
    assert (shared.seeds, shared.study_id) == ((3, 1), found[0].study_id), "the first search is the same"
    [one] = planned("tune.per=seed", "methods={emso: }", only=["seed=1"]).studies
    assert one.study_id == found[1].study_id
    other = planned("tune.per=seed", "tune.seed=7", "methods={emso: }").studies
    assert [study.trial.seed for study in other] == [1_000_007, 2_000_007]
    with pytest.raises(ConfigError, match="2000000 is a seed of candidates"):
        planned("tune.per=seed", "seeds=[3, 2000000]")
    assert planned("seeds=[3, 2000000]").studies, "nothing is searched with that"


def test_a_published_recipe_is_what_is_declared_so_and_the_papers_training(planned):
    found = studies(planned("methods={gradient_ascent: , deliberate_imagination: }"))
    assert found["gradient_ascent"].published == {"epochs": 12, RATE: 5e-5}
    assert found["deliberate_imagination"].published == {"gamma": 3.0, "epochs": 10, RATE: 1e-6}
    narrow = "tune.space={gradient_ascent: {epochs: [2], training: {learning_rate: {low: 6e-5, high: 1e-3}}}}"
    ascent = studies(planned("methods={gradient_ascent: }", narrow, "training.learning_rate=1e-4"))["gradient_ascent"]
    assert ascent.published == {"epochs": 2, RATE: 6e-5}, "the nearest that may be tried"


@pytest.fixture
def tuned(sound):
    """A tuned sweep file without a fault, for `check`."""
    methods = sound[sound.index("methods:") : sound.index("evaluators:")]
    text = sound.replace(methods, FILE[FILE.index("until:") : FILE.index("evaluators:")])
    return text.replace("ranking: {at: {task_arithmetic: 0.04}}\n", "").replace("4}\n  retain", "8}\n  retain")


FAULTS = [
    (["until={}"], "tune", "searches settings for levels, and the file names none: add until: {ma: [0.75]}."),
    (["seeds=[3, 1000000]"], "seeds.1", "1000000 is a seed of candidates (tune.seed + a multiple of 1,000,000)"),
    (["tune.space={emso: {epochs: {low: 0, high: 2}}}"], "tune.space.emso.epochs", "low must be above 0 and below"),
    (["tune.space={gradient_difference: {training: {learning_rate: [1e-5]}}}"],
     "tune.space.gradient_difference.training.learning_rate", "is fixed by methods.gradient_difference.training.l"),
    (["methods.emso={epochs: [1, 2]}"], "methods.emso.epochs", "is a list of strengths, and a tuned sweep search"),
    (["ranking.at={task_arithmetic: 0.05}"], "ranking.at.task_arithmetic", "ranks the walk to its first level"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "path", "reason"), FAULTS)
def test_faults_of_form(fault_at, tuned, changes, path, reason):
    assert reason in fault_at(path, *changes, text=tuned)


@pytest.mark.parametrize(("endings", "distinct"), [("abcabc", 3), ("abcd", 4)])
def test_a_forget_set_that_cannot_be_halved(planned, refused, tmp_path, endings, distinct):
    lines = [json.dumps({"text": f"{number:02}" * 10 + ending * 40}) for number, ending in enumerate(endings)]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines))
    forget = f"data.forget={{source: jsonl, path: {tmp_path}/mine.jsonl, prefix_tokens: 20, sequence_tokens: 50}}"
    if distinct >= 4:
        assert planned(forget).studies
        return
    assert f"has {distinct} distinct continuation" in refused(planned, "data.forget", forget)
    assert planned(forget, "tune=null").trials, "untuned there is nothing to halve"


def test_a_method_that_declares_nothing_needs_a_range_for_its_strength(planned, refused, monkeypatch):
    monkeypatch.setattr(tuning, "declared_space", lambda plugin: {})
    reason = refused(planned, "methods.gradient_ascent", "methods={gradient_ascent: }")
    assert reason.startswith("does not declare in which range 'epochs' is to be searched: say so here, tune.space:")
    found = planned("methods={gradient_ascent: }", "tune.space={gradient_ascent: {epochs: {low: 1, high: 3}}}")
    assert {spec.walk_to for spec in found.trials if not spec.is_reference} == {3}


def test_candidates_are_sized_at_the_ends_of_their_ranges(planned):
    study = studies(planned("tune.space={emso: {k: [8, 64], selection: [contrastive, all]}}"))["emso"]
    largest = largest_candidate(study)
    assert (largest.settings["k"], largest.settings["selection"], largest.strengths) == (64, "all", tuple(range(1, 13)))
    assert largest.training.learning_rate == 1e-3
    assert largest.trial_id == study.study_id
