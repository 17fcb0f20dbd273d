"""Texts and token arrays: what is read, what is refused, and that no refusal shows a text."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

from harness.data.sequences import first_unread, load_forget, load_retain, load_utility, load_validation, text_places
from harness.data.sources import token_ids
from harness.errors import DataError
from harness.settings import Source, replace

VOCABULARY = 256
SECRET = "Marguerite Okonjo-Vandermeer"


@pytest.fixture
def jsonl(tmp_path):
    """Write lines (texts, or raw bytes) to a file and return a source that reads it."""

    def write(lines, **settings):
        file = tmp_path / "texts.jsonl"
        rows = [line if isinstance(line, bytes) else json.dumps({"text": line}).encode() for line in lines]
        file.write_bytes(b"\n".join(rows) + b"\n")
        return Source(source="jsonl", path=str(file), **{"prefix_tokens": 3, "sequence_tokens": 8, **settings})

    return write


@pytest.fixture
def refusal(tokenizer):
    """Return a reader of texts that are refused: the message, which has no text."""

    def read(source, load=load_forget):
        with pytest.raises(DataError) as caught:
            load(source, tokenizer, VOCABULARY)
        assert SECRET not in str(caught.value)
        return str(caught.value)

    return read


def test_forget_texts_are_cut_padded_and_counted(tokenizer, jsonl):
    found = load_forget(jsonl([b'\xef\xbb\xbf{"text": "abcdef"}\r', "abcdefghijkl"]), tokenizer, VOCABULARY)
    assert (found.tokens_NT.shape, found.prefix_tokens) == ((2, 8), 3)
    assert found.tokens_NT.dtype == found.lengths_N.dtype == torch.int64
    assert found.lengths_N.tolist() == [6, 8]
    assert found.tokens_NT[0, 6:].tolist() == [0, 0]
    assert tokenizer.decode(found.tokens_NT[1]) == "abcdefgh"


def test_every_unusable_line_is_named_at_once(refusal, jsonl):
    secret = SECRET.encode()
    lines = [f"{SECRET} is fine", b"", b"\xff\xfe{}", b'{"text": "' + secret, b'{"body": "' + secret + b'"}']
    source = jsonl([*lines, b'{"text": 7}', "abc", "long enough"])
    message = refusal(source)
    assert message.startswith(f"{source.path} has 6 unusable rows: line 2 is empty; line 3 is not an object ")
    for told in ("line 4 is not an object", "line 5 has no field 'text' (it has body)", "line 6 has a 'text' that is"):
        assert told in message
    assert "and 1 more. Each line must be" in message


def test_too_few_rows_says_how_many(refusal, jsonl):
    source = jsonl(["text one", "text two"], sequences=5)
    assert refusal(source).startswith(f"{source.path}: 2 sequences are there, and 5 are needed.")
    assert "0 sequences are there from row 1 on, and 1 are needed" in refusal(jsonl(["text one"], start=1))


@pytest.fixture
def npy(tmp_path):
    """Save an array and return a source that reads it."""

    def write(array, **settings):
        file = tmp_path / "ids.npy"
        np.save(file, array)
        return Source(source="npy", path=str(file), **{"prefix_tokens": 2, "sequence_tokens": 4, **settings})

    return write


def test_arrays_are_read_as_they_are(tokenizer, npy):
    array = np.arange(24, dtype=np.uint16).reshape(4, 6)
    found = load_forget(npy(array, start=1, sequences=2), tokenizer, VOCABULARY)
    assert found.tokens_NT.tolist() == array[1:3, :4].tolist()
    assert found.lengths_N.tolist() == [4, 4]


NO_TOKEN_IDS = [
    (np.array([[1.0, np.nan, 3.0]]), "holds float64 of shape (1, 3); an array of token ids has two dimensions"),
    (np.array([[1, 2, 3], [1, 256, 300], [1, 2, -5]]), "2 rows with token ids outside the model's vocabulary (0 to 2"),
    (np.ones((3, 2), dtype=int), "has rows of 2 tokens, and at least 3 are needed."),
    (np.array([[{}]], dtype=object), "is not a .npy array that can be read"),
]


@pytest.mark.parametrize(("array", "reason"), NO_TOKEN_IDS)
def test_arrays_that_are_no_token_ids(refusal, npy, array, reason):
    assert reason in refusal(npy(array))


def test_the_challenge_needs_its_three_files(refusal, tmp_path):
    source = Source(source="extraction_challenge", path=str(tmp_path))
    np.save(tmp_path / "train_prefix.npy", np.ones((2, 3), dtype=np.uint16))
    assert refusal(source).startswith(f"{tmp_path} lacks train_preprefix.npy, train_suffix.npy. Looked for")
    np.save(tmp_path / "train_preprefix.npy", np.zeros((2, 3), dtype=np.uint16))
    np.save(tmp_path / "train_suffix.npy", np.full((3, 3), 2, dtype=np.uint16))
    assert "different numbers of rows (2, 3)" in refusal(source)
    np.save(tmp_path / "train_suffix.npy", np.full((2, 3), 2, dtype=np.uint16))
    assert token_ids(source).tolist() == [[0, 0, 0, 1, 1, 1, 2, 2, 2]] * 2


def test_held_texts_skip_what_is_too_short_and_have_no_prefix(tokenizer, refusal, jsonl):
    lines = ["= Heading =", "a" * 50, "b" * 40, "short", "c" * 60]
    source = jsonl(lines, sequences=3, sequence_tokens=45)
    for load in (load_retain, load_validation):
        found = load(source, tokenizer, VOCABULARY)
        assert (found.lengths_N.tolist(), found.prefix_tokens) == ([45, 40, 45], 1)
    assert load_retain(source, tokenizer, VOCABULARY, 40).tokens_NT.shape == (3, 40)
    fourth = jsonl(lines, sequences=4, sequence_tokens=45)
    assert "3 texts of at least 32 tokens are there, and 4 are needed" in refusal(fourth, load_retain)


def test_utility_texts_are_a_prompt_and_a_whole_reference(tokenizer, jsonl):
    source = jsonl(["too short", "0123456789abcdef", "x" * 12], sequences=2, prefix_tokens=4, sequence_tokens=12)
    found = load_utility(source, tokenizer, VOCABULARY)
    assert (found.prompts_NT.shape, found.references_NT.shape) == ((2, 4), (2, 8))
    assert (found.prompt_texts, found.reference_texts) == (("0123", "xxxx"), ("456789ab", "x" * 8))


def test_digests_name_contents_and_prefix_only(tokenizer, jsonl, npy):
    one = load_forget(jsonl(["abcdef", "ghijkl"]), tokenizer, VOCABULARY)
    assert len(one.digest) == 64
    assert load_forget(jsonl(["abcdef", "ghijkl"], sequence_tokens=100), tokenizer, VOCABULARY).digest == one.digest
    same = npy(one.tokens_NT.numpy().astype(np.uint16), prefix_tokens=3, sequence_tokens=6)
    assert load_forget(same, tokenizer, VOCABULARY).digest == one.digest
    for other in (jsonl(["abcdef", "ghijkm"]), jsonl(["abcdef", "ghijkl"], prefix_tokens=2), jsonl(["abcdef"])):
        assert load_forget(other, tokenizer, VOCABULARY).digest != one.digest


def test_texts_that_changed_since_the_plan_are_refused(tokenizer, refusal, jsonl):
    digest = load_forget(jsonl(["abcdef"]), tokenizer, VOCABULARY).digest
    assert load_forget(jsonl(["abcdef"], digest=digest), tokenizer, VOCABULARY).digest == digest
    assert "is not what it was when the sweep was planned" in refusal(jsonl(["abcdeg"], digest=digest))


def test_every_kind_of_file_gives_the_same_texts(tokenizer, tmp_path):
    rows = [f"article\nnumber {number}" for number in range(10)]
    table = pandas.DataFrame({"title": "t", "text": rows, "ids": tokenizer(rows)["input_ids"]})
    for folder in ("lines", "columns/plain", "folder"):
        (tmp_path / folder).mkdir(parents=True)
    table.to_json(tmp_path / "lines" / "train.jsonl", orient="records", lines=True)
    table.to_parquet(tmp_path / "columns" / "plain" / "train-00000-of-00001.parquet")
    table.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "one.txt").write_text("\n\n \n".join(rows) + "\n")
    for number, row in enumerate(rows):
        (tmp_path / "folder" / f"{number}.txt").write_text(row)
    of_text = dict.fromkeys(["hub lines", "hub columns", "csv table.csv", "text one.txt", "text folder"], "text")
    found = []
    for place, field in [*of_text.items(), ("hub columns", "ids")]:
        kind, name = place.split()
        where = {"path": str(tmp_path / name), "name": "plain" if name == "columns" else None, "field": field}
        source = Source(source=kind, start=5, sequences=2, prefix_tokens=3, **where)
        found.append(load_forget(source, tokenizer, VOCABULARY))
    assert {each.digest for each in found} == {found[0].digest}
    assert tokenizer.decode(found[0].tokens_NT[0, : found[0].lengths_N[0]]) == rows[5]


def test_a_configuration_of_the_card_is_no_folder_of_its_name(tokenizer, refusal, tmp_path):
    (tmp_path / "raw").mkdir()
    for split in ("forget", "holdout"):
        pandas.DataFrame({"text": [f"{split} text"]}).to_parquet(tmp_path / "raw" / f"{split}-00000-of-00001.parquet")
    files = [f"{{split: {split}, path: raw/{split}-*}}" for split in ("forget", "holdout")]
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n- config_name: raw\n  data_files: [{', '.join(files)}]\n---\n")
    source = Source(source="hub", path=str(tmp_path), name="raw", split="holdout", prefix_tokens=3)
    rows = load_forget(source, tokenizer, VOCABULARY)
    assert tokenizer.decode(rows.tokens_NT[0, : rows.lengths_N[0]]) == "holdout text"
    assert "has no split 'train'. It has forget, holdout." in refusal(replace(source, split="train"))


def test_a_start_counts_only_rows_that_are_named(tokenizer, tmp_path):
    rows = [{"text": f"text number {number}", "lang": ("en", "de")[number % 2]} for number in range(12)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    english = {"path": str(tmp_path / "rows.jsonl"), "where": (("lang", "en"),), "sequences": 3, "sequence_tokens": 4}
    source = Source(source="jsonl", prefix_tokens=3, **english)
    after = replace(source, start=first_unread(source, "utility", tokenizer))
    assert text_places(after, "forget") == ["line 7", "line 9", "line 11"]


UNUSABLE = [
    ("csv", f'text\n"one\ntwo three"\n"{SECRET}",more\nx\n'.encode(), "line 5 has 1 of at least 4 tokens"),
    ("csv", b'text,"of\ntwo"\nabcdef\n\nab\n', "line 5 has 2 of at least 4 tokens"),
    ("csv", b"text\n" + b"word " * 30_000 + b"\nab\n", "has 1 unusable row: line 3 has 2 of at least 4 tokens"),
    ("text", b"abcdef\n\nab\n", "line 3 has 2 of at least 4 tokens"),
    ("text", b"abc\x0cdef\n\nab\n", "line 3 has 2 of at least 4 tokens"),
    ("text", b"\xff\xfe", "is not a readable text file in UTF-8"),
    ("jsonl", b'{"text": "a cut emoji: \\ud83d"}', "line 1 has a 'text' that is not text in Unicode"),
    ("jsonl", b'{"text": [1, 2, 3, 256]}', "line 1 has the token id 256, and the model knows 0 to 255"),
]


@pytest.mark.parametrize(("kind", "content", "told"), UNUSABLE)
def test_unusable_texts_are_named_by_their_line(refusal, tmp_path, kind, content, told):
    (tmp_path / "texts").write_bytes(content)
    assert told in refusal(Source(source=kind, path=str(tmp_path / "texts"), prefix_tokens=3))


def test_the_real_extraction_challenge(tokenizer):
    """LETHE_SHARED, or the folder `shared` beside the repository, has the real inputs."""
    shared = Path(os.environ.get("LETHE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
    source = Source(source="extraction_challenge", path=str(shared / "data" / "extraction_challenge"))
    if not Path(source.path).is_dir():
        pytest.skip(f"the real Extraction Challenge is not in {source.path}; LETHE_SHARED says where")
    array = token_ids(source)
    assert array.shape == (15_000, 200)
    assert hashlib.md5(array.astype(np.uint16).tobytes()).hexdigest() == "6d85d7f2b48e34e6f96541a546a699bf"
    first = load_forget(replace(source, sequences=512), tokenizer, 50_257)
    assert torch.equal(first.tokens_NT, load_forget(source, tokenizer, 50_257).tokens_NT[:512])
