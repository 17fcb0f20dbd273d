"""Input that was made to do harm, or that nobody would think of: refused in a sentence, soon, with what it names."""

import gzip
import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from harness.base.messages import printable
from harness.base.paths import path_of
from harness.base.terminal import tell
from harness.cli import main as lethe
from harness.data.sequences import load_forget
from harness.data.sources import texts
from harness.errors import ConfigError, DataError, Fault, LetheError, ModelError
from harness.planning.grid import MOST_TRIALS
from harness.reporting.plan import trials_table
from harness.specs import Source

VOCABULARY = 256


@pytest.fixture
def loop(tmp_path):
    link = tmp_path / "loop"
    link.symlink_to(link)
    return str(link)


PATHS = {
    "": "is empty",
    "~nosuchuser/x": "begins with '~nosuchuser', and this machine knows no such user's home",
    "a" * 300: "is too long: a name has at most 255 bytes",
    "a\0b": "holds a NUL character",
    "\ud800": "holds half of a surrogate pair",
    "LOOP": "is a loop of links",
}


@pytest.mark.parametrize("text", PATHS)
def test_a_text_that_can_name_no_file(text, loop):
    with pytest.raises(ModelError, match=PATHS[text]):
        path_of(text.replace("LOOP", loop), ModelError)


def test_other_texts_are_paths_whether_or_not_something_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert path_of("~/x") == tmp_path / "x"
    assert path_of("owner/name").parts == ("owner", "name")
    (tmp_path / "file").write_text("")
    assert path_of(tmp_path / "file" / "below") == tmp_path / "file" / "below"


@pytest.mark.parametrize("text", [text for text in PATHS if "\0" not in text and "\ud800" not in text])
@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("data={forget: {source: jsonl, path: X}, utility: {source: miniature}}", "data.forget.path"),
        ("data={forget: {source: miniature}, utility: {source: hub, path: X}}", "data.utility.path"),
        ("models=[X]", "models.0"),
        ("models=[{id: miniature-s, tokenizer: X}]", "models.0.tokenizer"),
        ("models=[{id: miniature-s, retrained: X}]", "models.0.retrained"),
        ("judges={similarity: X}", "judges.similarity"),
    ],
)
def test_every_path_of_a_sweep_file_is_guarded(check, setting, place, text, loop):
    found = check(setting.replace("X", json.dumps(text.replace("LOOP", loop))))
    assert list(found) == [place]
    assert PATHS[text] in found[place] or "is missing" in found[place]


@pytest.mark.parametrize(
    ("methods", "path", "count"),
    [
        (f"{{emso: {{epochs: {list(range(400))}, k: {list(range(1, 400))}}}}}", "methods.emso", "159,600 combinations"),
        (
            f"{{emso: {{k: {list(range(1, 400))}, training: {{learning_rate: {[n / 1e4 for n in range(1, 400)]}}}}}}}",
            "methods.emso",
            "159,201 combinations",
        ),
    ],
)
def test_trials_are_counted_before_they_are_made(check, methods, path, count):
    found = check(methods=methods)
    assert count in found[path]
    assert f"at most {MOST_TRIALS:,}" in found[path]


def test_trials_of_all_models_and_seeds_are_counted(check):
    found = check(methods=f"{{emso: {{k: {list(range(1, 101))}}}}}", seeds=str(list(range(1001))), ranking="{}")
    assert "100 rows and variants × 1 models × 1,001 seeds ask for 100,100 trials" in found["methods"]


def test_a_search_has_bounds(check):
    tune = "tune: {budget: {trials: 4}, erasure: {ma: 0.9}, space: {emso: {epochs: {low: 1, high: 1000000000}}}}"
    replaced = {"methods": "{emso: }", "ranking": None, "training": "{precision: fp32}"}
    found = check(**{**replaced, "keep_erased": f"none\n{tune}"})
    assert "high may be 10,000 at most" in found["tune.space.emso.epochs"]


def test_many_faults_are_counted_and_a_hundred_of_them_listed(check):
    assert len(check(seeds=f"[{'a,' * 5000}]")) == 5000
    text = str(ConfigError("f", [Fault(f"p{n}", "no.") for n in range(150)]))
    assert text.splitlines()[0] == "f has 150 faults:"
    assert text.splitlines()[-1] == "  and 50 more."
    assert len(text.splitlines()) == 102


@pytest.mark.parametrize(
    ("replaced", "path", "reason"),
    [
        ({"methods": '{"emso\\n": {method: emso}}', "ranking": None}, "methods.emso\n", "cannot name a row"),
        ({"models": '["[/x]"]'}, "models.0", "is neither a folder nor an id on the hub (owner/name)"),
        (
            {"data": "{forget: {source: miniature, start: 1e30}, utility: {source: miniature}}"},
            "data.forget.start",
            "must be a whole number of at least 0; got 1e+30.",
        ),
    ],
)
def test_values_that_once_ended_in_tracebacks(check, replaced, path, reason):
    found = check(**replaced)
    assert list(found) == [path]
    assert reason in found[path]


def refused(call):
    with pytest.raises(LetheError) as caught:
        call()
    return str(caught.value)


def test_compressed_lines_are_read_and_damage_is_named(tokenizer, tmp_path):
    lines = "\n".join(json.dumps({"text": f"text number {number}"}) for number in range(9)).encode()
    file = tmp_path / "train.jsonl.gz"
    file.write_bytes(gzip.compress(lines))
    source = Source(source="hub", path=str(tmp_path), start=7, prefix_tokens=3, sequence_tokens=13)
    found = load_forget(source, tokenizer, VOCABULARY)
    assert tokenizer.batch_decode(found.tokens_NT) == ["text number 7", "text number 8"]
    file.write_bytes(gzip.compress(lines)[:-9])
    assert "cannot be read: EOFError" in refused(lambda: load_forget(source, tokenizer, VOCABULARY))


def test_other_formats_of_data_sets_are_refused(tmp_path):
    (tmp_path / "train.csv").write_text("text\na\n")
    reason = refused(lambda: list(texts(Source(source="hub", path=str(tmp_path)), "forget")))
    assert "is neither JSON lines nor parquet: convert it" in reason


CONTROLS = "a\x1b[31mb\rc\u202ed\x07\x9b\ud800\u2028e"


def test_nothing_that_a_terminal_acts_on_is_printed(capsys):
    shown = "a\\x1b[31mb\\rc\\u202ed\\x07\\x9b\\ud800\\u2028e"
    assert printable(CONTROLS) == shown
    assert printable("tab\tline\n naïve 你好 🙂") == "tab\tline\n naïve 你好 🙂"
    tell(CONTROLS)
    tell(DataError(CONTROLS), is_error=True)
    assert capsys.readouterr() == (f"{shown}\n", f"{shown}\n")


@pytest.mark.parametrize("arguments", [["sweep", "FILE"], ["sweep", "FILE", "--plan"], ["prefetch", "FILE"]])
def test_a_faulty_file_prints_no_control_characters(tmp_path, capsys, arguments):
    file = tmp_path / "sweep.yaml"
    file.write_text('"mod\\e[2Jels": ["\\e]0;title\\a", "\\u202e"]\nmethods: {"e\\rmso": {"\\e[31m": 1}}\n')
    assert lethe([str(file) if word == "FILE" else word for word in arguments]) == 2
    found = capsys.readouterr().err
    assert "mod\\x1b[2Jels" in found
    assert not set(found) & set("\x1b\r\a\u202e")


def test_names_that_are_markup_are_shown_as_they_are(make_plan, make_spec):
    model = replace(make_spec().model, id="[bold]")
    spec = make_spec(variant="[/x]", model=model, strength_name="[red]")
    console = Console(file=io.StringIO(), width=200)
    console.print(trials_table(make_plan(spec), {spec.trial_id: "missing"}, 0))
    shown = console.file.getvalue()
    assert "[/x]" in shown
    assert "[red] 1, 2*" in shown
    assert "[bold]" in shown
