"""`lethe check`: one plugin, tried in sentences; only the file that is named is executed."""

import os
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import pytest

from harness import testing
from harness.commands.check import main
from harness.plugins import EVALUATORS, METHODS

ROOT = Path(__file__).parents[3]
VERSION = METHODS.load("gradient_ascent").version
METHOD = (ROOT / "methods" / "gradient_ascent.py").read_text()


class Suite:
    """A quick one: a test of each outcome."""

    plugin = ""
    settings = MappingProxyType({})

    def test_it_loads(self):
        """It can be loaded, with its settings.

        More is not said.
        """
        METHODS.configure(self.plugin, dict(self.settings))

    def test_it_fails(self):
        """It has a version of 99."""
        version = METHODS.load(self.plugin).version
        assert version == 99, f"its version is {version}"

    def test_it_raises(self):
        """It can lose nothing."""
        METHODS.configure(self.plugin, {}).loss(None, None, None)

    def test_it_is_silent(self):
        """It is 99."""
        assert METHODS.load(self.plugin).version == 99

    def test_it_does_not_apply(self):
        """It makes coffee."""
        print("printed by a test")
        pytest.skip("it has no beans")


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Put the quick suite in the place of the real one, and take away what a check adds to this process."""
    monkeypatch.setattr(testing, "MethodConformance", Suite)
    modules = set(sys.modules)
    yield
    for registry in (METHODS, EVALUATORS):
        vars(registry).pop("_entry_points", None)
    for name in set(sys.modules) - modules:
        if name.startswith("checked_"):
            del sys.modules[name]


def test_what_holds_and_what_does_not_is_said_in_sentences(quick, tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(METHOD)
    (tmp_path / "conftest.py").write_text("raise SystemExit('nobody named this file')")
    assert main([str(file)]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith(f"The method 'mine' ({file}), checked on the smallest miniature.")
    line = 1 + METHOD.splitlines().index(next(line for line in METHOD.splitlines() if "return -mean_nll" in line))
    assert out.splitlines()[2:] == [
        "holds     It can be loaded, with its settings.",
        "fails     It has a version of 99.",
        f"          Its version is {VERSION}",
        "fails     It can lose nothing.",
        "          AttributeError: 'NoneType' object has no attribute 'mean'",
        f"          At mine.py, line {line}.",
        "fails     It is 99.",
        "—         It makes coffee.",
        "          Does not apply: it has no beans.",
        "",
        "1 of 4 requirements hold for the method 'mine' (not applicable: 1).",
        "docs/add-a-method.md explains each requirement; --verbose shows the tracebacks.",
    ]


def test_all_that_pytest_says_is_there_on_request(quick, capsys):
    assert main(["gradient_ascent", "--set", "epochs=2", "--verbose"]) == 1
    out = capsys.readouterr().out
    assert "E       AttributeError: 'NoneType' object has no attribute 'mean'" in out
    assert "test_it_fails" in out
    assert out.count("fails     It has a version of 99.") == 1


def test_a_plugin_of_which_all_holds(quick, monkeypatch, capsys):
    for name in ("test_it_fails", "test_it_raises", "test_it_is_silent"):
        monkeypatch.delattr(Suite, name)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--an-option-of-another-suite")
    assert main([str(ROOT / "methods" / "emso.py")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "1 of 1 requirements hold for the method 'emso' (not applicable: 1)."
    )


def test_what_cannot_be_tried_is_bad_input(quick, tmp_path, capsys):
    files = {
        "quits.py": ("import sys\nsys.exit(3)\n", "quits.py (line 2) cannot be imported: SystemExit: 3"),
        "broken.py": ("1/0\n", "broken.py (line 1) cannot be imported: ZeroDivisionError: division by zero"),
        "nothing.py": ("x = 1\n", "nothing.py holds no concrete Method or Evaluator of harness.contracts"),
        "emso.py": (METHOD, "the method 'emso' is defined twice: in"),
    }
    for name, (text, words) in files.items():
        (tmp_path / name).write_text(text)
        assert main([str(tmp_path / name)]) == 2
        assert words in capsys.readouterr().err
    for arguments, words in (
        ([str(tmp_path / "none.py")], "there is no file"),
        (["emsoo"], "no method or evaluator is called 'emsoo'. Did you mean 'emso'?"),
        (["emso", "--set", "k"], "--set k is not NAME=VALUE"),
        (["emso", "--set", "bet=3"], "emso.bet  no setting is called 'bet'."),
    ):
        assert main(arguments) == 2
        assert words in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.parametrize(("turned", "code"), [(False, 0), (True, 1)])
def test_a_whole_check_as_a_user_runs_it(tmp_path, turned, code):
    file = tmp_path / "my_ascent.py"
    file.write_text(METHOD.replace("return -mean_nll", "return mean_nll") if turned else METHOD)
    command = [sys.executable, "-m", "harness.cli", "check", str(file)]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert ("It memorises: the forget set's mean NLL was" in done.stdout) == turned
    assert "holds     At the off strength the logits are the original's, to the last bit." in done.stdout
