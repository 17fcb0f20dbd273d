"""What plugins and errors say reaches journal and terminal in a form that they hold; what is no record is named."""

import json

import pytest

from harness.base.messages import printable, storable
from harness.errors import DataError
from harness.records import journal as journal_module
from harness.records.journal import Failed, Journal


def test_a_stored_text_is_encodable_short_and_says_how_much_it_lacks():
    for text in ("aé\ud800\udfff\n\U0001f600" * 500, "\udcff" * 50, "x" * 61):
        stored = storable(text, 60)
        stored.encode()
        assert len(stored) <= 60
        assert storable(stored, 60) == stored
        kept, _, count = stored.rpartition(" … (")
        assert kept == text.encode(errors="backslashreplace").decode()[: -int(count.split()[0].replace(",", ""))]


def test_what_would_steer_a_terminal_is_escaped():
    assert printable("a\x00\x1b]0;title\x07\r\x9b31m\u202e\ud800z") == r"a\x00\x1b]0;title\x07\r\x9b31m\u202e\ud800z"


@pytest.mark.parametrize(("change", "clause"), [({"colour": "red"}, "'colour'"), ({"kind": "banquet"}, "'banquet'")])
def test_a_sealed_line_that_is_no_record_is_named(tmp_path, change, clause):
    journal = Journal(tmp_path)
    journal.append(Failed(trial_id="t", error="E", log=()))
    path = tmp_path / "t.jsonl"
    body = json.loads(path.read_text()) | change
    del body["checksum"]
    text = json.dumps(body, separators=(",", ":")).encode()
    path.write_bytes(path.read_bytes() + text[:-1] + journal_module._tail(text) + b"\n")
    with pytest.raises(DataError, match=f"^{path}, line 2 is whole, but no record of this version of Lethe .*{clause}"):
        journal.read("t")
