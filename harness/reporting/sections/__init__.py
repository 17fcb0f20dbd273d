"""Sections of the report, listed here."""

from harness.reporting.section import Section
from harness.reporting.sections import answer, attacks, blocks, exact_match, main_table, repeat, samples, tradeoff

SECTIONS: tuple[type[Section], ...] = (
    *(answer.TheAnswer, tradeoff.Tradeoff, main_table.MainTable, attacks.Attacks, main_table.Published),
    *(exact_match.ExactMatch, main_table.ReasoningTasks, blocks.SelectedBlocks, samples.Samples, repeat.Repeat),
)
"""Sections in the order of the page."""
