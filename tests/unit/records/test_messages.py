"""What plugins and errors say reaches journal, report and terminal in a form that they hold; in old journals too."""

import json
import math

import pytest

from harness import collate
from harness.base.messages import MOST_CHARACTERS, printable, storable
from harness.errors import DataError
from harness.library import load_results
from harness.records import journal as journal_module
from harness.records.journal import Journal
from harness.records.record import Failed, Point

HOSTILE = ("half \ud800 a pair", "\udcff" * 50_000, "bell \a, red \x1b[31m, null \0, back \u202e")


def test_a_stored_text_is_encodable_short_and_says_how_much_it_lacks():
    for text in ("aé\ud800\udfff\n\U0001f600" * 500, "\udcff" * 50, "x" * 61):
        stored = storable(text, 60)
        stored.encode()
        assert len(stored) <= 60
        assert storable(stored, 60) == stored
        kept, _, count = stored.rpartition(" … (")
        assert kept == text[: -int(count.split()[0].replace(",", ""))].encode(errors="backslashreplace").decode()


def test_what_would_steer_a_terminal_is_escaped():
    assert printable("a\x00\x1b]0;title\x07\r\x9b31m\u202e\ud800z") == r"a\x00\x1b]0;title\x07\r\x9b31m\u202e\ud800z"


@pytest.fixture
def row(make_row):
    return make_row("emso", (1,))


def sweep(folder, make_plan, row, make_measurement, *records):
    journal = Journal(folder / "journal")
    journal.write_plan(make_plan(row))
    for record in (make_measurement(row, 1, numbers={"ma": 0.5}), *records):
        journal.append(record)
    return journal


@pytest.mark.parametrize("text", HOSTILE, ids=["surrogate", "long", "control"])
def test_no_message_keeps_a_report_from_being_made(tmp_path, make_plan, row, make_measurement, make_row, capsys, text):
    fails = make_row("gradient_ascent", (1,))
    journal = sweep(tmp_path, lambda row: make_plan(row, fails), row, make_measurement)
    failed = Failed(trial_id=fails.trial_id, error=text, log=(text, "last"))
    noted = Point(
        trial_id=row.trial_id,
        point_id=row.point_id(1),
        strength=1,
        erase_seconds=1.0,
        peak_memory_bytes=None,
        notes={"warnings": [text], text: text, "deep": [{"a": text}]},
    )
    for record in (failed, noted):
        journal.append(record)
    assert sum(file.stat().st_size for file in journal.folder.iterdir()) < 150_000
    [failed_read] = journal.read(fails.trial_id)
    assert len(failed_read.error) <= MOST_CHARACTERS
    assert failed_read.log[-1] == "last"
    assert collate.main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert len(page) < 1_000_000
    for shown_text in (page, printed, (tmp_path / "table.csv").read_text(), (tmp_path / "table.tex").read_text()):
        assert printable(shown_text) == shown_text


def test_numbers_in_notes_may_be_none(tmp_path, make_plan, row, make_measurement):
    notes = {
        "standard_errors": {"perplexity": float("nan")},
        "curves": [
            {"name": "c", "title": "C", "x_title": "x", "y_title": "y", "xs": [1, 2], "ys": [0.5, float("nan")]},
        ],
    }
    journal = sweep(tmp_path, make_plan, row, make_measurement)
    journal.append(make_measurement(row, 1, "generation", {"perplexity": 3.0}, notes=notes))
    read = journal.read(row.trial_id)[-1].notes
    assert "warnings" not in read
    assert math.isnan(read["standard_errors"]["perplexity"])
    assert read["curves"][0]["ys"][0] == 0.5
    assert math.isnan(read["curves"][0]["ys"][1])


SEALED = {
    "other field": (lambda body: body | {"colour": "red"}, "measurement.colour: extra inputs are not permitted"),
    "missing field": (lambda body: {n: v for n, v in body.items() if n != "seconds"}, "measurement.seconds: field req"),
    "number is text": (lambda body: body | {"numbers": {"ma": "high"}}, "measurement.numbers.ma: input should be"),
    "metric without a name": (lambda body: body | {"metrics": [{}]}, "measurement.metrics.0.name: field required"),
    "another is there": (
        lambda body: body | {"numbers": body["numbers"] | {"el": 0.5}},
        "measurement.numbers.el: its metrics do not declare it",
    ),
    "unknown kind": (lambda body: body | {"kind": "banquet"}, "its kind is 'banquet', and started, point"),
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
