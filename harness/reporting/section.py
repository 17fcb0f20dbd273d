"""Sections of a report."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from harness.analysis.analysis import Analysis
from harness.reporting.render import fill_html
from harness.reporting.style import PAGE


class Picture(NamedTuple):
    """A figure for a page."""

    svg: str
    """In base 64."""
    width: float
    height: float
    points: Sequence[tuple[float, float, str]]
    """Places, and words that a tap shows."""


Pictures = Mapping[str, Sequence[Picture]]
"""A section's figures by name: one for a wide page, one for a phone."""


class Section:
    """One part of a sweep's report, with its figures and files.

    A new section is a subclass in a file of `reporting/sections`, and an entry of `SECTIONS` there.
    """

    title: ClassVar[str]
    lead: ClassVar[str]
    """One sentence below the title."""
    stems: ClassVar[tuple[str, ...]] = ()
    """Names, without endings, of all files that it may write."""
    needs_points: ClassVar[bool] = False
    """Whether it is left out of a report without erased points."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis

    def drawn(self, width: float, across: int) -> dict[str, Figure]:
        """Return its figures by name, so many inches wide, with at most so many panels side by side."""
        return {}

    @cached_property
    def figures(self) -> Mapping[str, Figure]:
        """Figures for a wide page, and for files."""
        return self.drawn(*PAGE)

    def frames(self) -> Mapping[str, pd.DataFrame]:
        """Return its CSV files by name; an empty one is left out."""
        return {}

    def html(self, pictures: Pictures) -> Markup:
        """Return its text below the lead; an empty section is left out."""
        raise NotImplementedError


def picture(pictures: Pictures, name: str, alt: str, caption: str = "") -> Markup:
    """Return a figure with its caption; empty where there is none of this name."""
    return fill_html("figure", pictures=pictures[name], alt=alt, caption=caption) if name in pictures else Markup("")


def paragraph(*sentences: str) -> Markup:
    """Return sentences as a paragraph; empty where all are empty."""
    text = " ".join(filter(None, sentences))
    return Markup('<p class="soft">{}</p>\n').format(text) if text else Markup("")


def details(summary: str, *texts: Markup) -> Markup:
    """Return texts that a click on their summary unfolds."""
    return Markup("<details>\n<summary>{}</summary>\n{}</details>\n").format(summary, Markup("").join(texts))
