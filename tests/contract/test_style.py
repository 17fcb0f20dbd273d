"""Imports are declared, and links between pages lead somewhere."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pdoc
import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("harness", "methods", "evaluators")
SOURCES = sorted(
    path for room in ROOMS for path in (ROOT / room).rglob("*.py") if "miniature" not in path.relative_to(ROOT).parts
)
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in SOURCES}


def test_every_package_that_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["mauve"], "pytest"]
    declared = {re.split(r"[\[<>=~! ]", line)[0].lower().replace("_", "-") for line in requirements}
    imported = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
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


def test_links_between_pages_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    broken = []
    links = 0
    for page in pages:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
            links += 1
            linked = (page.parent / target) if target else page
            if not linked.exists():
                broken.append(f"{page.name}: {target}")
            elif anchor and anchor not in headings(linked.read_text()):
                broken.append(f"{page.name}: {target}#{anchor}")
    assert links > 50
    assert broken == []


def headings(markdown):
    """The anchors that a page's headings make: lower case, without punctuation, with hyphens for spaces."""
    titles = re.findall(r"^#+ (.*)$", markdown, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.filterwarnings("ignore:Cannot determine where")  # Pydantic's fields that a base class declares.
def test_the_pages_of_make_docs_have_the_keys_of_a_sweep_file_with_their_meaning():
    page = pdoc.pdoc("harness.settings")
    assert re.search(r"zero_stage.{,2000}<p>1: optimiser state is partitioned;", page, flags=re.DOTALL)
