"""First section: cards, tables of prices, their figure and their limits."""

from __future__ import annotations

from functools import cached_property

from markupsafe import Markup
from matplotlib.figure import Figure

from harness.analysis.curves import styles
from harness.analysis.main_table import recited_frame
from harness.base.csv_text import csv_text
from harness.reporting.figures.answer import answer_figure
from harness.reporting.render import Column, render
from harness.reporting.section import PageContext, Section, paragraph
from harness.reporting.sections.main_table import recited_columns
from harness.reporting.summary import WORDS, caption, cards, further_notes, head_text, level_tables

_FIGURE = Markup(
    '<figure class="natural"><picture><source media="(max-width: 40rem)" '
    'srcset="data:image/svg+xml;base64,{}"><img src="data:image/svg+xml;base64,{}" alt="What each method pays at the '
    'level, and how near to the level each is; the table above has the numbers."></picture></figure>\n'
)


class TheAnswer(Section):
    """Prices of methods at each level, or recitation where nothing was erased."""

    stems = ("answer",)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        return self._drawn(is_tall=False)

    @cached_property
    def tall_figures(self) -> dict[str, Figure]:
        return self._drawn(is_tall=True)

    def _drawn(self, *, is_tall: bool) -> dict[str, Figure]:
        analysis = self.analysis
        figure = answer_figure(analysis.answer, analysis.results.plan, styles(analysis.points), is_tall=is_tall)
        return {"answer": figure} if figure else {}

    def files(self) -> dict[str, str]:
        frame = self.analysis.answer.frame
        return {"answer.csv": csv_text(frame.assign(points=frame["points"].map(" ".join)))} if len(frame) else {}

    def html(self, page: PageContext) -> Markup:
        parts = self._answered(page) if self.analysis.results.plan.erases else self._recited(page)
        if limits := [sentence for sentence in (self.analysis.head.note, *self.analysis.caveats) if sentence]:
            items = Markup("\n").join(Markup("<li>{}</li>").format(sentence) for sentence in limits)
            summary = f"What limits these numbers ({len(limits)})"
            parts += Markup('<details class="warnings"><summary>{}</summary>\n<ul>{}</ul></details>\n').format(
                summary, items
            )
        return parts

    def _answered(self, page: PageContext) -> Markup:
        analysis, parts = self.analysis, Markup("")
        of_models = cards(analysis)
        for model, card in of_models or [("", [("Seen", "No point has been measured yet.", "")])]:
            lines = Markup("")
            for heading, text, command in card:
                code = Markup(" <code>{}</code>").format(command) if command else ""
                lines += Markup("<dt>{}</dt><dd>{}{}</dd>\n").format(heading, text, code)
            name = paragraph(model) if len(of_models) > 1 else ""
            parts += Markup('<section class="outcome card" aria-label="Answer">{}<dl>\n{}</dl></section>\n').format(
                name, lines
            )
        parts += Markup("").join(map(paragraph, further_notes(analysis)))
        for model, _ in of_models:
            tables = level_tables(model, analysis)
            for place, (level, frame, columns) in enumerate(tables):
                table = render(frame, columns, "html")
                if place == 0:
                    parts += page.section_heading(f"Who pays what{f' on {model}' if len(of_models) > 1 else ''}")
                    parts += paragraph(f"{level}. {head_text(model, analysis)}") + table
                else:
                    parts += Markup("<details><summary>{}, without verdicts</summary>\n{}</details>\n").format(
                        level, table
                    )
        if "answer" in page.pictures:
            parts += _FIGURE.format(page.pictures["answer_tall"], page.pictures["answer"])
        if any(level_tables(model, analysis) for model, _ in of_models):
            words = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>\n").format(*word) for word in WORDS.items())
            parts += Markup('<dl class="glossary">\n{}</dl>\n').format(words)
        return parts

    def _recited(self, page: PageContext) -> Markup:
        analysis = self.analysis
        said = analysis.ranked.said_first or ["No evaluator of this sweep measures what is recited."]
        items = Markup("\n").join(Markup("<li>{}</li>").format(sentence) for sentence in said)
        parts = Markup(
            '<section class="outcome" aria-label="Answer">\n<p><strong>Does it recite the forget set?</strong></p>\n'
            "<ul>{}</ul></section>\n"
        ).format(items)
        if not len(analysis.points):
            return parts
        frame = recited_frame(analysis.ranked)
        columns = [*recited_columns(frame), Column("unit", "Unit", "note"), Column("source", "Source", "note")]
        about = "Nothing was erased: these are the models as they are. Each number is a mean over the texts."
        heading = page.section_heading("What is recited")
        return parts + heading + paragraph(about, caption(analysis.points)) + render(frame, columns, "html")
