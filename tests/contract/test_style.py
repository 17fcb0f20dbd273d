"""The house stays readable: how dense code may be, how many helpers have one caller, and one name for one thing."""

import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("harness", "methods", "evaluators")
SOURCES = sorted(
    path for room in ROOMS for path in (ROOT / room).rglob("*.py") if "miniature" not in path.relative_to(ROOT).parts
)
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in SOURCES}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def density(sources):
    """Comprehensions per 100 lines that are not blank."""
    comprehensions = lines = 0
    for source in sources:
        comprehensions += sum(isinstance(node, COMPREHENSIONS) for node in ast.walk(ast.parse(source)))
        lines += sum(bool(line.strip()) for line in source.splitlines())
    return 100 * comprehensions / lines


def test_density_counts_every_kind_of_comprehension():
    assert density(["a = [x for x in y]\n\nb = {x for x in y}\n", "c = {x: (z for z in x) for x in y}\nd = 1\n"]) == 100
    assert density(["for x in y:\n    print(x)\n"]) == 0


def test_no_room_has_more_than_4_5_comprehensions_per_100_lines():
    """A loop with a name reads better than a nest; a room that needs another one makes room for it."""
    rooms = defaultdict(list)
    for path in SOURCES:
        rooms[path.parent.relative_to(ROOT).as_posix()].append(path.read_text())
    densities = {room: round(density(sources), 2) for room, sources in rooms.items()}
    assert {room: figure for room, figure in densities.items() if figure > 4.5} == {}


def test_at_most_a_fifth_of_the_functions_are_helpers_with_one_caller():
    functions, called_once = 0, []
    for name, tree in TREES.items():
        uses = Counter(getattr(node, "id", getattr(node, "attr", None)) for node in ast.walk(tree))
        names = [node.name for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
        functions += len(names)
        called_once += [
            f"{name}: {it}" for it in names if it.startswith("_") and not it.startswith("__") and uses[it] == 1
        ]
    assert len(called_once) <= 0.2 * functions, f"{len(called_once)} of {functions}"


def test_fewer_than_2_percent_of_the_names_stand_for_several_things_and_no_public_one():
    files = defaultdict(list)
    for name, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node.name != "main":
                files[node.name].append(name)
    several = {name: places for name, places in files.items() if len(places) > 1}
    assert {name: places for name, places in several.items() if not name.startswith("_")} == {}
    assert len(several) < 0.02 * len(files), several


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
