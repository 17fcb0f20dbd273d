"""Arguments of the command line: what can name no file is refused in a sentence, with exit code 2 and no traceback."""

import json
import os
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest

from harness import cli

VERBS = {
    "audit": "MODEL FILE --unseen MORE --field text --tokenizer MODEL --report OUT --results NEW --sequences 0",
    "init": "MODEL FILE --unseen MORE --retain MORE --utility MORE --tokenizer MODEL --out OUT --prefix-tokens 0",
    "sweep": "SWEEP --plan --executor inline --results NEW --set seeds.0=1 --only method=emso",
    "prefetch": "SWEEP --check --set seeds.0=1",
    "collate": "NEW --out NEW",
    "verify": "NEW",
    "check": "no_such_plugin",
    "export": "point --out OUT --results NEW --model MODEL --tokenizer MODEL",
    "diff": "NEW NEW --csv OUT",
}
"""Of each verb a call that is cheap: it plans, or has one fault that is met last."""
UNUSABLE = ("LOOP", "LOOP/x", "a\0b", "~nosuchuser/x", "m" * 300, "/".join(["d" * 200] * 30), "")
PATHS = ("MODEL", "FILE", "MORE", "OUT", "NEW", "SWEEP")
ODD = (
    *(*UNUSABLE, *PATHS, "PIPE", "FOLDER", "BROKEN", "FILE/x", "/dev/null", "/dev/zero", "/", ".", "..", "-", "--"),
    *(" ", "~", "~nobody/x", "a\udcffb", "\x1b[2J", "a\nb", "0", "-1", "1e400", "9" * 30, "=", "=1", "@"),
)


@pytest.fixture
def call(world, sound, tmp_path, monkeypatch):
    """Return a caller of a verb with its usual arguments, some of them replaced: the exit code, and what it prints."""
    for name, kind in (("texts", "a text"), ("more", "another")):
        lines = [json.dumps({"text": f"{kind} of {number} that is long enough " * 4}) + "\n" for number in range(9)]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    text = sound.replace("MODEL", str(world / "MODEL")).replace("OTHER", str(world / "OTHER"))
    (tmp_path / "sweep.yaml").write_text(text.lstrip())
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    shutil.copytree(world / "MODEL", tmp_path / "broken")
    (tmp_path / "broken" / "added_tokens.json").mkdir()
    names = {"MODEL": world / "MODEL", "FILE": "texts.jsonl", "OUT": "out", "NEW": "new", "SWEEP": "sweep.yaml"}
    names |= {"LOOP": "loop", "LOOP/x": "loop/x", "PIPE": "pipe", "FOLDER": "folder", "BROKEN": "broken"}
    names |= {"MORE": "more.jsonl", "FILE/x": "texts.jsonl/x"}
    monkeypatch.chdir(tmp_path)

    def run(verb, replaced):
        given = [replaced.get(place, argument) for place, argument in enumerate(VERBS[verb].split())]
        given = [str(tmp_path / names[argument]) if argument in names else argument for argument in given]
        with redirect_stdout(StringIO()) as told, redirect_stderr(told):
            try:
                code = cli.main([verb, *given])
            except SystemExit as left:
                code = left.code
        return code, told.getvalue()

    return run


@pytest.mark.parametrize("verb", VERBS)
def test_a_path_that_can_name_nothing_is_refused_in_a_sentence(call, verb):
    paths = [place for place, argument in enumerate(VERBS[verb].split()) if argument in PATHS]
    for place in paths:
        for odd in UNUSABLE:
            code, told = call(verb, {place: odd})
            assert code == 2, (place, odd, told)
            assert "the path '" in told, (place, odd, told)
            assert "Traceback" not in told


@pytest.mark.parametrize("verb", ["audit", "init"])
@pytest.mark.parametrize("odd", ["PIPE", "FOLDER", "BROKEN"])
def test_a_pipe_a_folder_or_a_broken_checkpoint_is_no_model_and_no_text(call, verb, odd):
    places = [place for place, argument in enumerate(VERBS[verb].split()) if argument in ("MODEL", "FILE", "MORE")]
    last = len(VERBS[verb].split()) - 1
    for place in places:
        code, told = call(verb, {place: odd, last: "4"})
        assert code == 2, (place, told)
        assert told.strip().count("\n") <= 1, told


def test_unseen_texts_without_a_name_are_refused_and_not_left_out(call):
    code, told = call("audit", {VERBS["audit"].split().index("--unseen") + 1: ""})
    assert (code, "argument --unseen: the path '' is empty. Name another." in told) == (2, True)


@pytest.fixture
def attempt(call):
    for verb in VERBS:
        call(verb, {})  # What is imported once is imported.

    def try_one(choice, folder, named):
        verb = choice.choice(sorted(VERBS))
        values = [place for place, given in enumerate(VERBS[verb].split()) if not given.startswith("--")]
        code, told = call(verb, {choice.choice(values): choice.choice(ODD) for _ in range(choice.choice((1, 1, 2)))})
        assert code in (0, 1, 2), told
        assert "Traceback" not in told
        assert code == 0 or told.strip()

    return try_one


def test_a_hundred_calls(attempt, fuzz):
    fuzz(attempt, 100)


@pytest.mark.soak
def test_two_thousand_calls(attempt, fuzz):
    fuzz(attempt, 2000)
