"""Sections of a report, and the filling of templates."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from matplotlib.figure import Figure

from harness.analysis.analysis import Analysis
from harness.analysis.metrics import arrow, number, split_title
from harness.reporting.render import markdown_escape


class PageContext(NamedTuple):
    """Parts of the page that its sections use."""

    pictures: Mapping[str, str]
    """The section's figures by name, as SVG in base 64."""
    section_heading: Callable[..., Markup]
    """Makes a heading of a title, and adds it to the page's contents."""

    def picture(self, name: str, alt: str, caption: str = "", classes: str = "") -> Markup:
        """Return a figure with its caption; empty where there is none of this name."""
        if name not in self.pictures:
            return Markup("")
        return Markup(
            '<figure class="{}"><img src="data:image/svg+xml;base64,{}" alt="{}">\n'
            "<figcaption>{}</figcaption></figure>\n"
        ).format(classes, self.pictures[name], alt, caption)


class Section:
    """One part of a sweep's report, with its figures and files.

    A new section is a subclass in a file of `reporting/sections`, and an entry of `SECTIONS` there.
    """

    title: ClassVar[str] = ""
    """Heading, also in the page's contents; '' where its text contains headings."""
    stems: ClassVar[tuple[str, ...]] = ()
    """Names, without endings, of all files that it may write."""
    needs_points: ClassVar[bool] = False
    """Whether it is left out of a report without erased points."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis

    @cached_property
    def figures(self) -> Mapping[str, Figure]:
        """Figures by name, for the report and as files."""
        return {}

    @cached_property
    def tall_figures(self) -> Mapping[str, Figure]:
        """Replacements of figures on narrow screens."""
        return {}

    def files(self) -> Mapping[str, str]:
        """Return the contents of its text files by name."""
        return {}

    def html(self, page: PageContext) -> Markup:
        """Return its text, by default the module's template filled with `context()`; an empty section is left out."""
        template = html_templates().get_template(f"{type(self).__module__.rpartition('.')[2]}.html.j2")
        variables = {"pictures": page.pictures, "section_heading": page.section_heading, **self.context()}
        return Markup(template.render(analysis=self.analysis, **variables))  # The template has escaped its texts.

    def context(self) -> dict[str, Any]:
        """Return the variables of its template, next to `analysis` and `pictures`."""
        return {}


def paragraph(*sentences: str, is_soft: bool = True) -> Markup:
    """Return sentences as a paragraph; empty where all are empty."""
    text = " ".join(filter(None, sentences))
    return Markup('<p class="{}">{}</p>\n').format("soft" if is_soft else "", text) if text else Markup("")


def content_policy(*, styles: Sequence[str], scripts: Sequence[str] = (), images: str) -> str:
    """Return a Content-Security-Policy that allows only these styles, scripts (by their hashes) and `images`.

    Example:
        >>> content_policy(styles=["p {}"], images="data:").partition("; img-src")[0]
        "default-src 'none'; style-src 'sha256-SNJDlN1Iy2mnt7DOjQIyDb2LQE6O5PQiSZomcdzawQ4='"
    """
    policy = "default-src 'none'"
    for directive, texts in (("style-src", styles), ("script-src", scripts)):
        if texts:
            digests = [b64encode(sha256(text.encode()).digest()).decode() for text in texts]
            policy += f"; {directive} " + " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"{policy}; img-src {images}; base-uri 'none'; form-action 'none'"


@cache
def html_templates() -> Environment:
    """Return the environment of HTML templates, with autoescaping."""
    environment = _template_environment(autoescape=True)
    environment.globals["content_policy"] = content_policy
    return environment


@cache
def _text_templates() -> Environment:
    return _template_environment(keep_trailing_newline=True)


def text_file(template: str, **context: Any) -> str:
    """Return a Markdown file from a template."""
    return _text_templates().get_template(template).render(context)


def _template_environment(**options: Any) -> Environment:
    loader = PackageLoader("harness.reporting", "templates")
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options)
    environment.globals.update(arrow=arrow, number=number, split_title=split_title)
    environment.filters.update(markdown=markdown_escape)
    return environment


def embedded(data: Mapping[str, Any]) -> Markup:
    r"""Return JSON that is safe in a page's script element.

    Example:
        >>> print(embedded({"label": "</script>&"}))
        {"label":"\u003c/script\u003e\u0026"}
    """
    return htmlsafe_json_dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
