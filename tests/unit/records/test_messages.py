"""What plugins and errors say reaches journal and terminal in a form that they hold; what is no record is named."""

import json

import pytest

from harness.base.messages import printable, storable
from harness.errors import DataError
from harness.library import load_results
from harness.records import journal as journal_module
from harness.records.journal import Journal


def test_a_stored_text_is_encodable_short_and_says_how_much_it_lacks():
    for text in ("aé\ud800\udfff\n\U0001f600" * 500, "\udcff" * 50, "x" * 61):
        stored = storable(text, 60)
        stored.encode()
        assert len(stored) <= 60
        assert storable(stored, 60) == stored
        kept, _, count = stored.rpartition(" … (")
        escaped = text.encode(errors="backslashreplace").decode()
        assert kept == escaped[: -int(count.split()[0].replace(",", ""))]


def test_what_would_steer_a_terminal_is_escaped():
    assert printable("a\x00\x1b]0;title\x07\r\x9b31m\u202e\ud800z") == r"a\x00\x1b]0;title\x07\r\x9b31m\u202e\ud800z"


@pytest.fixture
def row(make_row):
    return make_row("emso", (1,))


def sweep(folder, make_plan, row, make_measurement):
    journal = Journal(folder / "journal")
    journal.write_plan(make_plan(row))
    journal.append(make_measurement(row, 1, numbers={"ma": 0.5}))
    return journal


SEALED = {
    "other field": (lambda body: body | {"colour": "red"}, "unexpected keyword argument 'colour'"),
    "unknown kind": (lambda body: body | {"kind": "banquet"}, "'banquet'"),
}


def sealed(body):
    text = json.dumps(body, separators=(",", ":")).encode()
    return text[:-1] + journal_module._tail(text) + b"\n"


@pytest.mark.parametrize("harm", SEALED)
def test_a_sealed_line_that_is_no_record_is_named(tmp_path, make_plan, row, make_measurement, capsys, harm):
    change, clause = SEALED[harm]
    journal = sweep(tmp_path, make_plan, row, make_measurement)
    path = journal.folder / f"{row.trial_id}.jsonl"
    body = json.loads(path.read_text())
    del body["checksum"]
    with path.open("ab") as file:
        file.write(sealed(change(body)))
    with pytest.raises(DataError) as caught:
        load_results(tmp_path)
    said = str(caught.value)
    assert said.startswith(f"{path}, line 2 is whole, but no record of this version of Lethe (")
    assert clause in said
    assert said.endswith("or remove that line: what it recorded is done again.")
