"""Sections of a report."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import ClassVar, NamedTuple

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from harness.analysis.analysis import Analysis


class PageContext(NamedTuple):
    """Parts of the page that its sections use."""

    pictures: Mapping[str, str]
    """The section's figures by name, as SVG in base 64."""
    section_heading: Callable[[str], Markup]
    """Makes a heading of a title, and adds it to the page's contents."""

    def picture(self, name: str, alt: str, caption: str = "", classes: str = "") -> Markup:
        """Return a figure with its caption; empty where there is none of this name."""
        if name not in self.pictures:
            return Markup("")
        image = Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(self.pictures[name], alt)
        figure = Markup('<figure class="{}">{}\n<figcaption>{}</figcaption></figure>\n')
        return figure.format(classes, image, caption)


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

    def frames(self) -> Mapping[str, pd.DataFrame]:
        """Return its CSV files by name; an empty one is left out."""
        return {}

    def html(self, page: PageContext) -> Markup:
        """Return its text; an empty section is left out."""
        raise NotImplementedError


def paragraph(*sentences: str) -> Markup:
    """Return sentences as a paragraph; empty where all are empty."""
    text = " ".join(filter(None, sentences))
    return Markup('<p class="soft">{}</p>\n').format(text) if text else Markup("")


def bullets(sentences: list[str]) -> Markup:
    """Return sentences as a list."""
    return Markup("<ul>{}</ul>\n").format(Markup("\n").join(map(Markup("<li>{}</li>").format, sentences)))


def details(summary: str, *texts: Markup, classes: str = "") -> Markup:
    """Return texts that a click on their summary unfolds."""
    frame = Markup('<details class="{}">\n<summary>{}</summary>\n{}</details>\n')
    return frame.format(classes, summary, Markup("").join(texts))
