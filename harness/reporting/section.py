"""What a part of the report is: the text, the figures and the files of one subject."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from matplotlib.figure import Figure

from harness.analysis.analysis import Analysis


class Section:
    """One part of a sweep's report, and what it leaves in the results folder besides.

    A new section is a subclass in a file of its own in `reporting/sections`, with a template of the same name, and a
    place in `reporting.sections.SECTIONS`.
    """

    stems: ClassVar[tuple[str, ...]] = ()
    """Names, without their endings, of all files that it may leave."""
    needs_points: ClassVar[bool] = False
    """Whether it is left out of a report without erased points."""
    has_many_figures: ClassVar[bool] = False
    """Whether its figures go to the folder `figures`, as PNG alone, and stay light on a dark page."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis

    @cached_property
    def figures(self) -> Mapping[str, Figure]:
        """Figures by their names; the report shows them, and each becomes files too."""
        return {}

    @cached_property
    def tall_figures(self) -> Mapping[str, Figure]:
        """What the report shows on a narrow screen instead of the figures of these names."""
        return {}

    @classmethod
    def template(cls) -> str:
        """Return the name of its template: that of its module."""
        return f"{cls.__module__.rpartition('.')[2]}.html.j2"

    def files(self) -> Mapping[str, str]:
        """Return the contents of its text files by their names."""
        return {}

    def context(self) -> dict[str, Any]:
        """Return what its template is filled with besides `analysis` and `pictures`.

        Where the template then prints nothing, the report leaves the section out.
        """
        return {}
