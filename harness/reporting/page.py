"""Report of a sweep: one self-contained HTML page."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence

from markupsafe import Markup

from harness.analysis.analysis import Analysis
from harness.analysis.cells import NOTHING
from harness.reporting.figures.style import rendered
from harness.reporting.section import PageContext, Section, html_templates
from harness.reporting.sections import SECTIONS
from harness.reporting.sections.repeat import provenance


def page(analysis: Analysis, *, sections: Sequence[Section] | None = None, is_kept: bool = True) -> str:
    """Return the report of a sweep, finished or not.

    Args:
        analysis: The sweep's numbers.
        sections: Sections of this analysis whose figures are drawn already; None draws them all now.
        is_kept: Whether the journal stays, so that the report can be made again.
    """
    templates = html_templates()
    contents: list[tuple[str, str]] = []

    def section_heading(title: str, anchor: str = "") -> Markup:
        """Return a section's heading, and add it to the contents."""
        anchor = anchor or re.sub(r"[^a-z0-9]+", "-", title.lower())
        contents.append((anchor, title))
        return Markup('<h2 id="{}">{}</h2>\n').format(anchor, title)

    has_points = analysis.results.plan.erases and len(analysis.points) > 0
    shown = []
    for section in sections or [section(analysis) for section in SECTIONS]:
        if section.needs_points and not has_points:
            continue
        tall = {f"{name}_tall": figure for name, figure in section.tall_figures.items()}
        drawn = {**section.figures, **tall}.items()
        pictures = {name: b64encode(rendered(figure, "svg")).decode() for name, figure in drawn}
        text = section.html(PageContext(pictures, section_heading))
        if text.strip():
            shown.append(section_heading(section.title) + text if section.title else text)
    return templates.get_template("page.html.j2").render(
        sections=shown,
        contents=contents,
        plan=analysis.results.plan,
        results=analysis.results,
        definition=", ".join(sorted(set(analysis.points["definition"]) - {""})) or NOTHING,
        provenance=provenance(analysis.results),
        is_kept=is_kept,
    )
