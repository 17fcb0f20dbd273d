"""The command: its verbs, exit codes and sentences, and no import before it is needed."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import yaml

from harness import running
from harness.cli import main as lethe
from harness.contracts import NOISE
from harness.errors import ConfigError, DataError, ExecutorError, StorageError


@pytest.fixture
def file(world, sound, tmp_path):
    """A sweep file on checkpoints that can be resolved, and have no real weights."""
    path = tmp_path / "sound.yaml"
    path.write_text(sound.lstrip().replace("MODEL", str(world / "MODEL")).replace("OTHER", str(world / "OTHER")))
    return path


def test_the_help_lists_the_verbs_and_a_wrong_one_gets_the_nearest(capsys):
    for arguments in ([], ["--help"]):
        assert lethe(arguments) == 0
        usage = capsys.readouterr().out
        for verb in ("audit", "init", "sweep", "prefetch", "collate", "verify", "export", "diff", "power", "check"):
            assert re.search(rf"^  {verb} +\S.*\.$", usage, re.M), verb
        assert max(map(len, usage.splitlines())) <= 100
    assert lethe(["sweeep"]) == 2
    assert "Did you mean 'sweep'?" in capsys.readouterr().err
    assert lethe(["sweep", "x.yaml", "--plam"]) == 2
    assert "--plan" in capsys.readouterr().err


def test_the_module_is_the_verb_and_a_plan_does_nothing(file, tmp_path, monkeypatch, capsys):
    arguments = [str(file), "--plan", "--results", str(tmp_path / "results")]
    assert lethe(["sweep", *arguments]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("sound: What is right?")
    assert "15 trials: 15 missing." in printed
    monkeypatch.setattr(sys, "argv", ["sweep", *arguments])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_module("harness.sweep", run_name="__main__")
    assert capsys.readouterr().out == printed
    assert not (tmp_path / "results").exists()


KEPT = "What is measured is kept: run the same command again to continue."
ERRORS = [
    (ConfigError("f.yaml", []), 2, "f.yaml has 0 faults:\nA note.\n"),
    (DataError("another run is at work."), 1, "another run is at work.\nA note.\n"),
    (ExecutorError("Ray died."), 1, "Ray died.\nA note.\n"),
    (StorageError("a full disk."), 1, f"a full disk.\nA note.\n{KEPT}\n"),
    (KeyboardInterrupt(), 130, f"\nInterrupted. {KEPT}\nA note.\n"),
]


@pytest.mark.parametrize(("error", "code", "said"), ERRORS)
def test_an_error_is_a_sentence_with_its_notes_and_an_exit_code(file, error, code, said, monkeypatch, capsys):
    def run_planned(*arguments, **options):
        error.add_note("A note.")
        raise error

    monkeypatch.setattr(running, "run_planned", run_planned)
    assert lethe(["sweep", str(file)]) == code
    assert capsys.readouterr().err == said


# Collating a table: ranks and flags anew, what is written beside it, and which path is no table.

PUBLISHED = Path(__file__).parents[3] / "results/published/emso_main_table.csv"


def test_collate_notices_when_a_file_states_another_rank(tmp_path, capsys):
    text = PUBLISHED.read_text().replace("0.572,0.610,1,1,1,false", "0.572,0.610,2,1,1,true")
    (tmp_path / "other.csv").write_text(text)
    (tmp_path / "other.metrics.yaml").write_bytes(PUBLISHED.with_suffix(".metrics.yaml").read_bytes())
    assert lethe(["collate", str(tmp_path / "other.csv")]) == 0
    printed = capsys.readouterr().out
    assert "32 of the 33 ranks" in printed
    assert "20 of the 21 collapse flags" in printed
    assert "The intervals of ranks" not in printed, "none is printed"


def test_a_table_without_items_says_whose_error_is_in_no_rank(tmp_path, capsys):
    rows = ["emso,0.1,0.5", "gradient_ascent,0.2,0.7"]
    (tmp_path / "t.csv").write_text("\n".join(["model,method,ma,mauve", *(f"m,{row}" for row in rows)]))
    declared = yaml.safe_load(PUBLISHED.with_suffix(".metrics.yaml").read_text())
    own = [metric | {"source": next(iter(NOISE))} if metric["name"] == "mauve" else metric for metric in declared]
    (tmp_path / "t.metrics.yaml").write_text(yaml.safe_dump(own))
    assert lethe(["collate", str(tmp_path / "t.csv")]) == 0
    assert "The intervals of ranks on m leave out MA: without items" in capsys.readouterr().out


WRONG = [
    ("none", "does not exist. Give a sweep's results folder or a table.csv."),
    ("empty", "holds no results of a sweep (no journal/plan.json). Run the sweep first."),
    ("bare.csv", "there is no bare.metrics.yaml next to it"),
]


@pytest.mark.parametrize(("name", "message"), WRONG)
def test_collate_on_a_wrong_path_ends_with_2_and_says_why(tmp_path, capsys, name, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare.csv").write_text("model,method,ma\nm,emso,0.1\n")
    assert lethe(["collate", str(tmp_path / name)]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert str(tmp_path / name) in said.err
    assert said.out == ""
