"""Mutants of forget files: read as a naive reader does, or refused by file and row, and no refusal shows a text."""

import gzip
import io
import json

import numpy as np
import pytest

from harness.data.sequences import load_forget
from harness.specs import Source

VOCABULARY = 256
CUT = {"prefix_tokens": 3, "sequence_tokens": 8}


def rows(choice):
    """Return rows with the name in them that no refusal may show."""
    long = "long " * choice.choice((1, 1, 40))
    return [{"text": f"Okonjo-Vandermeer {number} wrote {long}", "n": number} for number in range(5)]


def naive(lines, tokenizer):
    texts = [json.loads(line.decode("utf-8-sig"))["text"] for line in lines if line]
    return [tokenizer(text)["input_ids"][: CUT["sequence_tokens"]] for text in texts]


@pytest.fixture
def lines(tokenizer, change):
    """JSON lines, plain."""

    def attempt(choice, folder, named):
        if choice.random() < 0.5:
            changed = [change.tree(row, choice) if choice.random() < 0.3 else row for row in rows(choice)]
            content = b"\n".join(change.json(row, choice).replace(b"\n", b" ") for row in changed)
        else:
            content = change.content(b"\n".join(json.dumps(row).encode() for row in rows(choice)), choice)
        file = folder / "texts.jsonl"
        file.write_bytes(content)
        named.append(str(file))
        start = choice.choice((0, 0, 2))
        found = read(Source(source="jsonl", path=str(file), start=start, **CUT), tokenizer)
        assert found == naive(content.split(b"\n")[start:], tokenizer)

    return attempt


@pytest.fixture
def arrays(tokenizer, change):
    """Arrays of token ids."""

    def attempt(choice, folder, named):
        kind = choice.choice(("<u2", ">i4", "<i8", "u1", "<u8", "<f4", "?", "O", "S3"))
        array = np.arange(60).reshape(choice.choice(((5, 12), (12, 5), (60, 1), (60,), (3, 4, 5)))).astype(kind)
        stream = io.BytesIO()
        np.save(stream, array, allow_pickle=True)
        content = stream.getvalue()
        if choice.random() < 0.5:
            head, _, numbers = content.partition(b"\n")
            shape = str(array.shape).encode()
            other = choice.choice(
                (b"(5,)", b"(0, 4)", b"(-1, 4)", b"(1000000000000, 0)", b"(99999999999, 9)", b"(1e3, 2)")
            )
            content = head.replace(shape, other)[: len(head)].ljust(len(head)) + b"\n" + numbers
        if choice.random() < 0.8:
            content = change.content(content, choice)
        file = folder / "ids.npy"
        file.write_bytes(content)
        named.append(str(file))
        found = read(Source(source="npy", path=str(file), **CUT), tokenizer)
        assert found == np.load(file)[:, : CUT["sequence_tokens"]].tolist()

    return attempt


@pytest.fixture
def data_sets(tokenizer, change, tmp_path_factory):
    """Folders of a data set: JSON lines plain and compressed, one JSON value, parquet, and what is not read at all."""
    import pyarrow
    from pyarrow import parquet

    def attempt(choice, folder, named):
        place = tmp_path_factory.mktemp("set")
        whole = "\n".join(json.dumps(row) for row in rows(choice)).encode()
        name = choice.choice(("train.jsonl", "train.jsonl.gz", "train.json", "train.txt", "train.csv", "train.parquet"))
        if name.endswith(".gz"):
            inside = change.content(whole, choice) if choice.random() < 0.5 else whole
            content = gzip.compress(inside)
        elif name.endswith(".parquet"):
            stream = io.BytesIO()
            parquet.write_table(pyarrow.Table.from_pylist(rows(choice)), stream)
            content = stream.getvalue()
        else:
            content = json.dumps(rows(choice)).encode() if name == "train.json" and choice.random() < 0.5 else whole
        (place / name).write_bytes(change.content(content, choice))
        named.append(str(place))
        read(Source(source="hub", path=str(place), **CUT), tokenizer)

    return attempt


def read(source, tokenizer):
    """Return the rows of a forget set, each without its padding."""
    found = load_forget(source, tokenizer, VOCABULARY)
    assert int(found.tokens_NT.min()) >= 0
    assert int(found.tokens_NT.max()) < VOCABULARY
    assert int(found.lengths_N.min()) > CUT["prefix_tokens"]
    return [row[:length] for row, length in zip(found.tokens_NT.tolist(), found.lengths_N, strict=True)]


def test_mutants_of_lines_and_arrays(lines, arrays, fuzz):
    fuzz(lines, 60)
    fuzz(arrays, 60)


@pytest.mark.soak
def test_ten_thousand_mutants(lines, arrays, data_sets, fuzz):
    fuzz(lines, 4500, is_apart=True)
    fuzz(arrays, 4500, is_apart=True)
    fuzz(data_sets, 1000, is_apart=True)
