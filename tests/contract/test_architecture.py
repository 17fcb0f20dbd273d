"""Names of files and rooms, what may be imported, and a page that shows the real tree."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from harness.plugins import EVALUATORS, METHODS
from harness.reporting.sections import SECTIONS

ROOT = Path(__file__).parents[2]
ROOMS = ("harness", "methods", "evaluators")
SOURCES = [path for folder in ROOMS for path in (ROOT / folder).rglob("*.py")]


def test_every_section_of_the_report_is_in_its_list():
    folder = ROOT / "harness" / "reporting" / "sections"
    declared = re.findall(
        r"^class (\w+)\((?:section\.)?Section\)", "".join(map(Path.read_text, folder.glob("*.py"))), re.MULTILINE
    )
    assert sorted(declared) == sorted(section.__name__ for section in SECTIONS)


def test_no_utils_and_no_packages_among_the_tests():
    assert [path for path in SOURCES if path.stem in ("utils", "helpers", "common", "misc")] == []
    assert [path for path in (ROOT / "tests").rglob("__init__.py") if "plugin_package" not in path.parts] == []


def test_no_path_is_edited():
    assert [path for path in SOURCES if re.search(r"sys\.path\.(insert|append)", path.read_text())] == []


def test_csv_is_written_in_one_place():
    assert [path.name for path in (ROOT / "harness").rglob("*.py") if ".to_csv(" in path.read_text()] == ["table.py"]


def test_the_architecture_page_shows_every_folder_and_files_that_are_there():
    page = (ROOT / "docs" / "architecture.md").read_text()
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    folders += [path for path in (ROOT / "harness").iterdir() if path.is_dir()]
    assert [path.name for path in folders if path.name != "__pycache__" and f"{path.name}/" not in page] == []
    files = set(re.findall(r"`([\w/]+\.py)`", page))
    assert len(files) > 40
    assert [file for file in sorted(files) if not any((ROOT / room / file).is_file() for room in ("", "harness"))] == []


def test_every_room_is_either_open_to_plugins_or_closed():
    """A new room of the harness must be put on one of the two lists before anything else works."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [closed] = [contract["forbidden_modules"] for contract in contracts if contract["name"].startswith("Plugins see")]
    inside = (ROOT / "harness").iterdir()
    rooms = {path.stem for path in inside if path.suffix == ".py" or (path / "__init__.py").is_file()}
    models = {f"models.{path.stem}" for path in (ROOT / "harness" / "models").glob("*.py")}
    every = {f"harness.{room}" for room in (rooms - {"__init__", "models", "toolkit"}) | (models - {"models.__init__"})}
    assert every - set(closed) == {"harness.contracts", "harness.errors", "harness.models.blocks"}
    assert set(closed) - every == {"harness.toolkit.*"}, "plugins take its names from harness.toolkit itself"


def test_planning_needs_no_transformers_for_a_plugins_settings():
    """Importing it takes seconds: plugins and `harness.toolkit` do without until they erase and measure."""
    plugins = [*(f"methods.{name}" for name in METHODS.names()), *(f"evaluators.{name}" for name in EVALUATORS.names())]
    code = f"import sys, {', '.join(plugins)}; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_package_that_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["mauve"], *extras["real"], "pytest"]
    declared = {re.split(r"[\[<>=~! ]", line)[0].lower().replace("_", "-") for line in requirements}
    imported = set()
    for node in (node for path in SOURCES for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.Import):
            imported.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.split(".")[0])
    distributions = packages_distributions()
    missing = {}
    for package in imported - set(sys.stdlib_module_names) - set(ROOMS):
        providers = {name.lower().replace("_", "-") for name in distributions[package]}
        if not providers & declared:
            missing[package] = providers
    assert missing == {}, "import what pyproject.toml names, or name it there"
