"""The pages: the site builds without a dead link, and every command parses and is run by a test, or listed here."""

import argparse
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from harness import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
TESTS = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
COMMAND = r"(?:lethe [a-z]|python -m |make [a-z])[^`\n]*"
NOT_RUN = {"benchmarks.full_size", "studies.error_rates"}
"""They take minutes. `make` is not run either: it installs, and runs other commands."""


def test_the_site_builds_and_its_links_lead_somewhere(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", tmp_path]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stderr == ""


def test_every_command_of_the_pages_parses_and_is_run_by_a_test(monkeypatch):
    parse = argparse.ArgumentParser.parse_known_args
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", lambda *given: sys.exit(len(parse(*given)[1])))
    verbs, makefile, names = typer.main.get_command(cli.app).commands, (ROOT / "Makefile").read_text(), set()
    text = "\n".join(page.read_text() for page in PAGES).replace("\\\n", " ").replace("python -m harness.", "lethe ")
    for line in re.findall(rf"^    (?:\$ )?({COMMAND})|`({COMMAND})`", text, flags=re.MULTILINE):
        program, *words = shlex.split("".join(line).partition(" > ")[0], comments=True)
        name = words[1] if program == "python" else f"{program} {words[0]}"
        names |= {name} if program != "make" else set()
        assert [word for word in words if re.match("(sweeps|docs)/", word) and not (ROOT / word).exists()] == [], line
        if program == "python":
            module = importlib.import_module(f"{name}.__main__" if name == "studies.miniature" else name)
            with pytest.raises(SystemExit, match=r"^0$"):
                module.main(words[2:])
        elif program == "make":
            assert f"\n{words[0]}:" in makefile, line
        elif line[0] or words[1:]:  # The bare name of a verb in a sentence is no command.
            verbs[words[0]].make_context(name, words[1:])
    runs = r'\b(lethe|main|run|command)\b.*"{0}"|\b{0}\.main\('
    assert {name for name in names if not re.search(runs.format(re.split("[ .]", name)[-1]), TESTS)} == NOT_RUN
