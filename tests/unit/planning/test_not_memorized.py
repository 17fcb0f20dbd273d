"""Forget sets that mix what the model recites with what it does not, and samples of rows."""

import numpy as np
import pytest

from harness.commands.prefetch import hub_contents
from harness.data.sequences import load_forget
from harness.errors import DataError
from harness.miniature import texts
from harness.settings import HOLDOUT, Source, Trial, replace

MIXED = "{source: miniature, sequences: 3, not_memorized: {source: miniature, sequences: 5}}"
VOCABULARY = 256


@pytest.fixture
def arrays(tmp_path):
    """Two files of token ids: rows of 20 that all begin with 1, and rows that all begin with 2; each has its number."""
    for first, rows in (("1", 9), ("2", 30)):
        ids = np.random.default_rng(int(first)).integers(VOCABULARY, size=(rows, 20), dtype=np.uint16)
        ids[:, 0], ids[:, 1] = int(first), np.arange(rows)
        np.save(tmp_path / f"{first}.npy", ids)
    alike = {"source": "npy", "prefix_tokens": 5, "sequence_tokens": 12}
    other = Source(path=str(tmp_path / "2.npy"), sequences=4, **alike)
    return Source(path=str(tmp_path / "1.npy"), sequences=2, not_memorized=other, **alike)


def test_what_is_memorized_comes_first_and_all_are_cut_alike(arrays, tokenizer):
    found = load_forget(arrays, tokenizer, VOCABULARY)
    assert found.tokens_NT[:, :2].tolist() == [[1, 0], [1, 1], [2, 0], [2, 1], [2, 2], [2, 3]]
    assert (found.tokens_NT.shape, found.prefix_tokens) == ((6, 12), 5)
    assert load_forget(replace(arrays, digest=found.digest), tokenizer, VOCABULARY).digest == found.digest
    fewer = replace(arrays, digest=found.digest, not_memorized=replace(arrays.not_memorized, sequences=3))
    with pytest.raises(DataError, match="is not what it was when the sweep was planned"):
        load_forget(fewer, tokenizer, VOCABULARY)


def test_a_sample_is_drawn_with_its_seed(arrays, tokenizer):
    def numbers(**changes):
        other = replace(arrays.not_memorized, **changes)
        return load_forget(replace(arrays, not_memorized=other), tokenizer, VOCABULARY).tokens_NT[2:, 1].tolist()

    assert numbers() == [0, 1, 2, 3]
    first = numbers(sample_seed=0)
    assert first == numbers(sample_seed=0) == sorted(first)
    assert len({*first}) == 4
    assert first != numbers(sample_seed=1)
    assert min(numbers(sample_seed=0, start=25)) >= 25
    assert numbers(sample_seed=7, sequences=30) == list(range(30))


SPOILT = [
    (lambda folder: {"sequences": 31}, "30 sequences are there, and 31 are needed"),
    (lambda folder: {"path": str(folder / "1.npy")}, "not_memorized: 2 of its 4 sequences are among the forget"),
    (lambda folder: np.save(folder / "2.npy", np.ones((9, 5), int)), "has rows of 5 tokens, and at least 6 are"),
]


@pytest.mark.parametrize(("spoil", "reason"), SPOILT)
def test_faults_of_the_files(arrays, tokenizer, tmp_path, spoil, reason):
    other = replace(arrays.not_memorized, **(spoil(tmp_path) or {}))
    with pytest.raises(DataError) as caught:
        load_forget(replace(arrays, not_memorized=other), tokenizer, VOCABULARY)
    assert reason in str(caught.value)


@pytest.fixture
def planned(plan_text, sound):
    """Return a planner of the sound sweep with another forget set."""
    return lambda section: plan_text(sound, f"data.forget={section}")


def test_the_miniature_mixes_its_records_with_unseen_ones_and_keeps_others_as_its_holdout(planned, tokenizer):
    found = planned(MIXED)
    spec = found.trials[0]
    assert (spec.forget.rows, spec.forget.not_memorized.sequences) == (8, 5)
    assert Trial.model_validate_json(spec.model_dump_json()) == spec
    decoded = tokenizer.batch_decode(load_forget(spec.forget, tokenizer, VOCABULARY).tokens_NT)
    assert decoded == [text[:128] for text in [*texts("forget")[:3], *texts("holdout")[:5]]]
    [unseen] = [spec.forget for spec in found.trials if spec.method == HOLDOUT]
    assert (unseen.start, unseen.rows) == (5, 8)


@pytest.mark.parametrize("other", ["{source: miniature}", "{source: miniature, sequences: 9, sample_seed: 0}"])
def test_without_unseen_records_that_are_left_there_is_no_holdout(planned, other):
    found = planned(f"{{source: miniature, sequences: 3, not_memorized: {other}}}")
    assert HOLDOUT not in {spec.method for spec in found.trials}


def test_what_is_mixed_decides_the_trials_identity(planned):
    plain, mixed, more = (
        {spec.trial_id for spec in planned(section).trials if not spec.is_reference}
        for section in ("{source: miniature, sequences: 3}", MIXED, MIXED.replace("5", "6"))
    )
    assert not plain & mixed
    assert not mixed & more


def test_a_data_set_of_the_hub_is_prefetched(sound, tmp_path):
    file = tmp_path / "file.yaml"
    file.write_text(sound.lstrip())
    section = "{source: miniature, not_memorized: {source: hub, path: some/texts, sequences: 3}}"
    paths = {content.path: content.repository.id for content in hub_contents(file, [f"data.forget={section}"])}
    assert paths["data.forget.not_memorized"] == "some/texts"
