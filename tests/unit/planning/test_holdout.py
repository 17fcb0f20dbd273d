"""Unseen texts: which there are, what is refused of them, and that no other row's identity knows of them."""

import json
from functools import partial
from random import Random
from string import ascii_lowercase

import pytest

from harness.data.sequences import MAX_UNSEEN, find_shared_texts, load_holdout, load_validation_row
from harness.miniature import FORGET_RECORDS, UNSEEN_RECORDS, texts
from harness.settings import VALIDATION_ROW

FILE = """# What is unseen?
models: [{id: MODEL}]
data:
  forget: {source: jsonl, path: FOLDER/letters.jsonl, sequences: 6, prefix_tokens: 10, sequence_tokens: 50}
  utility: {source: jsonl, path: FOLDER/passages.jsonl, prompts: 4, prompt_tokens: 8, reference_tokens: 8}
methods: {emso: {epochs: [1]}}
evaluators: {memorization: , generation: }
judges: {perplexity: MODEL, features: MODEL, similarity: MODEL, coherence: MODEL}
"""
OTHERS = "{source: jsonl, path: FOLDER/letters.jsonl, start: 6"


def noise(seed):
    """Return fifty letters that no other seed has."""
    return "".join(Random(seed).choices(ascii_lowercase, k=50))


@pytest.fixture
def planned(plan_text, tmp_path):
    """Return a planner of FILE with changes, beside ten letters and eight passages of 60 bytes."""
    for name in ("letters", "passages"):
        lines = [json.dumps({"text": f"{name} {number} {noise(f'{name} {number}')}"}) for number in range(10)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    return partial(plan_text, FILE)


def unseen(found):
    [spec] = [spec for spec in found.trials if spec.method in ("holdout", "stand_in")]
    return spec


def test_named_texts_are_measured_by_what_measures_erasure_and_by_nothing_else(planned):
    spec = unseen(planned(f"data.holdout={OTHERS}}}", "seeds=[3, 4]"))
    assert (spec.variant, spec.label, spec.seed) == ("holdout", "Original on unseen texts", 3)
    assert spec.is_reference
    assert [evaluator.name for evaluator in spec.evaluators] == ["memorization"]
    assert (spec.forget.start, spec.forget.rows, spec.forget.longest) == (6, 4, 50)
    assert spec.forget.prefix_tokens == 10, "cut as the forget set is"


@pytest.mark.parametrize(("asked", "rows"), [("", 4), (", sequences: 3", 3)])
def test_how_many_there_are(planned, asked, rows):
    assert unseen(planned(f"data.holdout={OTHERS}{asked}}}")).forget.rows == rows
    fewer = planned(f"data.holdout={OTHERS}{asked}}}", "data.forget.sequences=2")
    assert unseen(fewer).forget.rows == (3 if asked else 2), "no more than forget sequences unless the file says so"


def test_the_miniature_has_unseen_records_of_its_own(planned, tokenizer):
    spec = unseen(planned("data.forget={source: miniature, sequences: 5}"))
    assert (spec.method, spec.forget.rows, spec.forget.prefix_tokens) == ("holdout", 5, 64)
    assert tokenizer.decode(load_holdout(spec.forget, tokenizer, 256).tokens_NT[0]) == texts("holdout")[0][:128]
    all_of_them = unseen(planned("data.forget={source: miniature}"))
    assert all_of_them.forget.rows == MAX_UNSEEN < UNSEEN_RECORDS < FORGET_RECORDS
    asked = "data.holdout={source: miniature, sequences: 128}"
    assert unseen(planned("data.forget={source: miniature}", asked)).forget.rows == 128


def test_without_any_the_validation_texts_stand_in_cut_as_the_forget_set(planned, tokenizer):
    spec = unseen(planned())
    assert (spec.method, spec.label) == (VALIDATION_ROW, "Original on validation texts")
    assert (spec.forget.rows, spec.forget.prefix_tokens, spec.forget.longest) == (4, 10, 50)
    read = load_validation_row(spec.forget, tokenizer, 256)
    assert read.digest == spec.forget.digest
    assert set(read.lengths_N.tolist()) == {50}


NO_STAND_INS = [
    "data.validation={source: jsonl, path: FOLDER/passages.jsonl, start: 4, sequence_tokens: 49}",  # too short
    "data.validation={source: jsonl, path: FOLDER/passages.jsonl, start: 4, sequences: 1}",  # no standard error
    "models.0.retrained=OTHER",  # it says better what a model says of unseen texts
]


@pytest.mark.parametrize("change", NO_STAND_INS)
def test_what_cannot_or_need_not_stand_in(planned, change):
    assert not [spec for spec in planned(change).trials if spec.method in ("holdout", "stand_in")]


def test_a_sweep_that_measures_no_erasure_measures_none_of_it(planned):
    assert {spec.method for spec in planned("evaluators={generation: }").trials} == {"original", "emso"}


def test_no_other_identity_knows_of_them_but_of_what_measures_damage(planned):
    def others(found, evaluator="generation"):
        seen = [spec for spec in found.trials if spec.method not in ("holdout", "stand_in")]
        return [(s.trial_id, s.forget, [each for each in s.evaluators if each.name == evaluator]) for s in seen]

    def keys(found):
        return [(unseen(found).trial_id, evaluator.key) for evaluator in unseen(found).evaluators]

    before, after = planned(), planned(f"data.holdout={OTHERS}}}")
    assert others(before) == others(after)
    assert set(keys(before)).isdisjoint(keys(after))
    assert keys(after) == keys(planned(f"data.holdout={OTHERS}}}", "data.utility.prompts=4", "methods.emso.epochs=2"))
    again = planned(f"data.holdout={OTHERS}, sequences: 3}}")
    assert set(keys(again)).isdisjoint(keys(after)), "other texts are another measurement"
    assert others(again) == others(after)
    assert others(again, "memorization") != others(after, "memorization") != others(before, "memorization")
    [memorization] = unseen(after).evaluators
    assert memorization.texts == {}, "the damage is not measured of the texts that show it"


FAULTS = [
    ("{source: jsonl, path: LETTERS, start: 4}", "", "2 of its 6 texts (number 1, 2) are in data.forget"),
    ("{source: jsonl, path: LETTERS, start: 6, sequences: 5}", "", "4 sequences are there from row 6 on, and 5"),
    ("{source: miniature, prefix_tokens: 60}", ".prefix_tokens", "must be below sequence_tokens (50)"),
]


@pytest.mark.parametrize(("holdout", "path", "reason"), FAULTS)
def test_faults_of_a_holdout(planned, refused, holdout, path, reason):
    named = holdout.replace("LETTERS", "FOLDER/letters.jsonl")
    said = refused(planned, f"data.holdout{path}", f"data.holdout={named}")
    assert reason in said
    assert "letters 4" not in said, "no text of the forget set"


def test_the_same_texts_are_known_by_their_tokens_however_long_they_are_cut(make_sequences):
    letters = make_sequences([[5, 6, 7, 8], [5, 8]])
    assert find_shared_texts(make_sequences([[5, 6, 7, 8]]), letters) == [0]
    assert find_shared_texts(make_sequences([[5, 6]]), letters) == [0]
    assert find_shared_texts(make_sequences([[5, 6, 7, 8, 9, 9]]), letters) == [0]
    assert find_shared_texts(make_sequences([[5, 6, 7, 9], [5, 8, 0], [8, 5]]), letters) == []


LETTERS = "{source: jsonl, path: FOLDER/letters.jsonl"


@pytest.mark.parametrize("role", ["retain", "validation"])
def test_other_texts_of_the_same_file_may_be_kept(planned, tmp_path, role):
    assert planned(f"data.{role}={LETTERS}, start: 6, sequences: 4}}").trials
    (tmp_path / "alike.jsonl").write_text((tmp_path / "letters.jsonl").read_text().upper().replace("TEXT", "text"))
    assert planned(f"data.{role}={{source: jsonl, path: FOLDER/alike.jsonl, sequences: 6}}").trials


def test_what_is_trained_on_is_not_unseen(planned, refused):
    retain = f"data.retain={LETTERS}, start: 6, sequences: 4}}"
    said = refused(planned, "data.holdout", f"data.holdout={LETTERS}, start: 6}}", retain)
    assert "4 of its 4 texts (number 1, 2, 3, 4) are in data.retain too" in said
    assert "training learns the texts that show the damage to unseen ones" in said


def test_where_nothing_is_erased_other_texts_may_be_any(planned):
    """As an audit's utility texts are, which nothing reads; but no text of the forget set stands in for unseen ones."""
    found = planned(f"data.utility={LETTERS}, prompts: 4, prompt_tokens: 20, reference_tokens: 30}}", "methods={}")
    assert {spec.method for spec in found.trials} == {"original"}
