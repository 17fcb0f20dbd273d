"""What the folders promise: sizes, names, and a README that shows the real tree."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("harness", "methods", "evaluators") for path in (ROOT / folder).rglob("*.py")]


def test_no_source_file_is_longer_than_about_250_lines():
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > 280} == {}


def test_no_utils_and_no_packages_among_the_tests():
    assert [path for path in SOURCES if path.stem in ("utils", "helpers", "common", "misc")] == []
    packages = [path for path in (ROOT / "tests").rglob("__init__.py") if "plugin_package" not in path.parts]
    assert packages == []


def test_no_path_is_edited_and_nothing_is_unpickled():
    forbidden = re.compile(
        r"sys\.path\.(insert|append)|import pickle|pickle\.load|torch\.load\(|trust_remote_code=True|allow_pickle=True"
    )
    found = {path.name: path.read_text() for path in SOURCES if forbidden.search(path.read_text())}
    assert list(found) == ["conversion.py"], "the one place that converts what the hub has only as a pickle"
    loads = re.findall(r"torch\.load\((.*)\)", found["conversion.py"])
    assert len(loads) == 1
    assert "weights_only=True" in loads[0]
    assert "pickle.load" not in found["conversion.py"]


def test_the_readme_shows_every_folder():
    readme = (ROOT / "README.md").read_text()
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    folders += [path for path in (ROOT / "harness").iterdir() if path.is_dir()]
    missing = [path.name for path in folders if path.name != "__pycache__" and f"{path.name}/" not in readme]
    assert missing == []


def test_every_sweep_opens_with_its_question():
    first_lines = {path.name: path.read_text().splitlines()[0] for path in (ROOT / "sweeps").rglob("*.yaml")}
    assert first_lines
    assert [name for name, line in first_lines.items() if not (line.startswith("# ") and line.endswith("?"))] == []
