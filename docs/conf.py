"""The site of `make docs`: README.md, and the pages that docs/README.md lists, in its order."""

import re

from sphinx.application import Sphinx

project = html_title = "Lethe"
root_doc = "README"
include_patterns = ["README.md", "CONTRIBUTING.md", "docs/**.md"]
exclude_patterns = [".venv", "results", "docs/build"]
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
API = "\n```{raw} html\n<p><a href='../api/index.html'>The API: contracts, toolkit and every setting</a></p>\n```\n"


def setup(app: Sphinx) -> None:
    """Register what is added to a page's Markdown."""
    app.connect("source-read", add_contents)


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the order of the pages to the first page and to that of the results, and pdoc's pages to the index."""
    index = (app.srcdir / "docs" / "README.md").read_text()
    if name == "docs/README":
        source[0] += API
    elif name == "docs/results/README":
        source[0] += toctree("Results", source[0], "")
    elif name == root_doc:
        source[0] += "\n```{toctree}\n:hidden:\ndocs/README\n```\n"
        for part in re.split("^## ", index, flags=re.MULTILINE)[1:]:
            source[0] += toctree(part.partition("\n")[0], part, "docs/")


def toctree(caption: str, text: str, folder: str) -> str:
    """Return a hidden table of contents of the pages that a text links to, in its order."""
    pages = [folder + page for page in re.findall(r"\]\((?!\.\./[a-z])([^)#]+\.md)\)", text)]
    return "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```\n"])
