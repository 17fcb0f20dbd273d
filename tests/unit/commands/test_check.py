"""`lethe check`: one plugin, tested; only the file that is named is executed."""

import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import MappingProxyType

import pytest

from harness import testing
from harness.cli import main as lethe
from harness.errors import PluginError
from harness.plugins import EVALUATORS, METHODS

METHOD = (Path(__file__).parents[3] / "methods" / "gradient_ascent.py").read_text()
METHOD = METHOD.replace("import TrainedMethod, ascent", "import TrainedMethod, mean_nll")
METHOD = METHOD.replace(
    "    loss = staticmethod(ascent)", "\n    def loss(self, model, forget):\n        return -mean_nll(model, forget)"
)


class Suite:
    """A quick one: a test of each outcome."""

    plugin = ""
    settings = MappingProxyType({})

    def test_it_loads(self):
        METHODS.configure(self.plugin, dict(self.settings))

    def test_it_raises(self):
        METHODS.configure(self.plugin, {}).loss(None, None)


@pytest.fixture
def quick(monkeypatch):
    """Put the quick suite in the place of the real one."""
    monkeypatch.setattr(testing, "MethodConformance", Suite)


@pytest.fixture(autouse=True)
def _forget_plugins():
    """Take away what a check adds to this process."""
    modules = set(sys.modules)
    yield
    for registry in (METHODS, EVALUATORS):
        vars(registry).pop("_entry_points", None)
    for name in set(sys.modules) - modules:
        if name.startswith("checked_"):
            del sys.modules[name]


def test_two_packages_with_one_name_stop_only_those_who_ask_for_it(monkeypatch):
    found = [EntryPoint("mine", f"{package}.mine", METHODS.group) for package in ("one", "two")]
    monkeypatch.setattr("harness.plugins.entry_points", lambda group: found)
    registry = replace(METHODS, _clashes={})
    assert "mine" in registry.names()
    assert registry.load("emso").label == "EMSO"
    with pytest.raises(PluginError, match=r"'mine' is defined in one.mine and in two.mine. Uninstall or rename one."):
        registry.load("mine")


def test_a_failed_requirement_is_located_in_the_plugin(quick, tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(METHOD)
    (tmp_path / "conftest.py").write_text("raise SystemExit('nobody named this file')")
    assert lethe(["check", str(file)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"The method 'mine' ({file}), checked on the smallest miniature.")
    line = 1 + METHOD.splitlines().index(next(line for line in METHOD.splitlines() if "return -mean_nll" in line))
    assert f"mine.py:{line}: in loss" in out
    assert "AttributeError: 'NoneType' object has no attribute 'mean'" in out
    assert "1 failed, 1 passed" in out
    assert out.endswith("docs/add-a-method.md explains each requirement.\n")


def test_nothing_to_check_is_bad_input(quick, tmp_path, capsys):
    for name, text in (("broken.py", "1/0\n"), ("nothing.py", "x = 1\n"), ("emso.py", METHOD)):
        (tmp_path / name).write_text(text)
    for arguments, words in (
        ("none.py", "there is no Python file"),
        ("broken.py", "broken.py cannot be imported (broken.py, line 1): ZeroDivisionError: division by zero"),
        ("nothing.py", "nothing.py holds no concrete Method or Evaluator of harness.contracts"),
        ("emso.py", "the method 'emso' is there already: rename"),
        ("emsoo", "no method or evaluator is called 'emsoo'. Did you mean 'emso'?"),
        ("emso --set bet=3", "emso.bet  no setting is called 'bet'."),
    ):
        name, *rest = arguments.split()
        assert lethe(["check", str(tmp_path / name) if name.endswith(".py") else name, *rest]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.soak
def test_a_new_method_passes_its_check(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("methods").mkdir()
    for name, code in (("emso", 2), ("My", 2), ("mine", 0), ("mine", 2)):
        assert lethe(["check", "--new", name]) == code
    assert lethe(["check", "methods/mine.py"]) == lethe(["plugins"]) == 0
    assert "mine  mine: Minimises" in capfd.readouterr().out
