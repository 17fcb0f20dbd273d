"""Sections of the report: one file each, listed here."""

from harness.reporting.section import Section
from harness.reporting.sections.answer import TheAnswer
from harness.reporting.sections.attacks import Attacks
from harness.reporting.sections.blocks import SelectedBlocks
from harness.reporting.sections.exact_match import ExactMatch
from harness.reporting.sections.main_table import MainTable
from harness.reporting.sections.published import Published
from harness.reporting.sections.reasoning import ReasoningTasks
from harness.reporting.sections.repeat import Repeat
from harness.reporting.sections.samples import Samples
from harness.reporting.sections.tradeoff import Tradeoff

SECTIONS: tuple[type[Section], ...] = (
    TheAnswer,
    Tradeoff,
    MainTable,
    Attacks,
    Published,
    ExactMatch,
    ReasoningTasks,
    SelectedBlocks,
    Samples,
    Repeat,
)
"""Sections in the order of the page."""
