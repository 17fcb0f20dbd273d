"""Roles of texts that are apart, and what is said or refused where they are not; no text is quoted."""

import json
from random import Random
from string import ascii_lowercase

import pytest

from harness.errors import ConfigError

FILE = """# Who is apart?
models: [{id: MODEL}]
data:
  forget: {source: jsonl, path: FOLDER/letters.jsonl, sequences: 20, prefix_tokens: 10, sequence_tokens: 50}
  retain: {source: jsonl, path: FOLDER/read.jsonl, sequences: 40}
  utility: {source: jsonl, path: FOLDER/passages.jsonl, prompts: 40, prompt_tokens: 8, reference_tokens: 42}
  validation: {source: jsonl, path: FOLDER/watched.jsonl, sequences: 40}
methods: {gradient_difference: {epochs: [1]}}
evaluators: {memorization: , generation: }
judges: {perplexity: MODEL, features: MODEL, similarity: MODEL, coherence: MODEL}
"""
UNSTEERED = "training.early_stop=null"
FEW = {"letters": 20, "read": 40, "passages": 120, "watched": 40}


def text(name, number):
    return "".join(Random(f"{name} {number}").choices(ascii_lowercase, k=60))


def nearly(name, number):
    """Return a text with one letter changed of the fifty that are used."""
    whole = text(name, number)
    return f"{whole[:45]}#{whole[46:]}"


@pytest.fixture
def planned(plan_text, tmp_path):
    """Return a planner of FILE, in whose files the first texts are replaced: `read=[...]`."""

    def run(*changes, **replaced):
        for name, count in FEW.items():
            texts = replaced.get(name, [])
            texts = texts + [text(name, number) for number in range(len(texts), count)]
            (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": one}) for one in texts))
        return plan_text(FILE, *changes)

    return run


def refused(planned, *changes, **replaced):
    with pytest.raises(ConfigError) as caught:
        planned(*changes, **replaced)
    assert not any(text(name, 0)[:12] in str(caught.value) for name in FEW), "no text is quoted"
    [fault] = caught.value.faults
    return fault


def test_texts_that_are_apart_are_neither_refused_nor_spoken_of(planned):
    assert planned().shared_texts == ()


SHARING = [
    ("read", "letters", "data.retain", "training would keep texts that it is to erase"),
    ("passages", "letters", "data.utility", "utility would be measured on erased texts"),
    ("watched", "letters", "data.validation", "texts to be erased would end a training early"),
    ("read", "passages", "data.retain", "training learns the texts that utility is measured on"),
    ("watched", "passages", "data.validation", "the texts that stop or choose trainings are reported on"),
]


@pytest.mark.parametrize(("name", "other", "path", "why"), SHARING)
def test_roles_that_share_near_duplicates_are_refused_and_one_alone_is_named(planned, name, other, path, why):
    fault = refused(planned, **{name: [nearly(other, number) for number in (4, 7, 9)]})
    assert fault.path == path
    assert "3 of its 40 texts (number 1, 2, 3) are in data." in fault.reason
    assert f": {why}. At most" in fault.reason
    assert "of either may be. Name others (start skips rows), or remove these from the file." in fault.reason
    [sentence] = planned(**{name: [nearly(other, 4)]}).shared_texts
    assert sentence.startswith(f"{path}: 1 of its 40 texts (number 1) is in data.")
    assert text(other, 4)[:12] not in sentence


def test_few_texts_that_hold_a_large_share_of_the_other_role_are_refused(planned):
    read = [text("more", number) for number in range(390)] + [text("passages", number) for number in range(10)]
    fault = refused(planned, "data.retain.sequences=400", UNSTEERED, read=read)
    assert "10 of its 400 texts (number 391, 392, 393, 394, 395 and 5 more)" in fault.reason
    assert "(10 of the 40 there)" in fault.reason


def test_the_same_text_is_refused_where_a_single_near_duplicate_is_not(planned):
    fault = refused(planned, "data.validation.sequences=4", watched=[text("passages", 0)])
    assert "1 of its 4 texts (number 1) is in data.utility too" in fault.reason
    assert planned("data.validation.sequences=4", watched=[nearly("passages", 0)]).shared_texts


def test_what_steers_nothing_may_be_what_is_reported(planned):
    same = [text("passages", number) for number in range(40)]
    assert refused(planned, watched=same).path == "data.validation"
    assert planned(UNSTEERED, watched=same).shared_texts == ()
    assert planned("methods={task_arithmetic: {gamma: 0.1}}", watched=same).trials, "it has no early stop"


def test_near_duplicates_in_a_holdout_are_said_and_refuse_nothing(planned, tmp_path):
    lines = [json.dumps({"text": nearly("letters", number)}) for number in range(10)]
    (tmp_path / "unseen.jsonl").write_text("\n".join(lines))
    [sentence] = planned(f"data.holdout={{source: jsonl, path: {tmp_path}/unseen.jsonl}}").shared_texts
    assert sentence.startswith("data.holdout: 10 of its 10 texts (number 1, 2, 3, 4, 5 and 5 more) are in data.forget")


def test_validation_texts_that_are_left_out_are_those_after_the_reported(planned):
    found = planned("data.validation=null", passages=["too short", *(text("passages", n) for n in range(1, 9))])
    validation = found.trials[0].validation
    assert (validation.start, validation.rows) == (41, 40), "one row is too short to be used"
    assert found.shared_texts == ()
    assert planned("data.validation=null", UNSTEERED).trials[0].validation.start == 0
