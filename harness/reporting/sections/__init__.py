"""Sections of the report, listed here."""

from harness.reporting.section import Section
from harness.reporting.sections import answer, attacks, blocks, exact_match, main_table, repeat, samples, tradeoff

SECTIONS: tuple[type[Section], ...] = (
    *(answer.TheAnswer, answer.Recited, tradeoff.Tradeoff, main_table.MainTable, attacks.Attacks, main_table.Published),
    *(exact_match.ExactMatch, main_table.ReasoningTasks, blocks.SelectedBlocks, samples.Samples, repeat.Repeat),
)
"""Sections in the order of the page, of which ten at most are shown: methods pay, or nothing was erased."""
