"""Sections of the report: one file each, listed here."""

from harness.reporting.section import Section
from harness.reporting.sections import (
    answer,
    attacks,
    blocks,
    exact_match,
    main_table,
    published,
    reasoning,
    repeat,
    samples,
    tradeoff,
)

SECTIONS: tuple[type[Section], ...] = (
    answer.TheAnswer,
    tradeoff.Tradeoff,
    main_table.MainTable,
    attacks.Attacks,
    published.Published,
    exact_match.ExactMatch,
    reasoning.ReasoningTasks,
    blocks.SelectedBlocks,
    samples.Samples,
    repeat.Repeat,
)
"""Sections in the order of the page."""
