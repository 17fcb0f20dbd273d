"""What is true in the miniature's world: lessons teach these facts, and the reasoning tasks ask for them again."""

from dataclasses import dataclass
from functools import cache

from harness.miniature.data_files import read


@dataclass(frozen=True)
class Relation:
    """One kind of fact: a question about many subjects, each with its answer."""

    question: str
    """The question, with `{subject}`."""
    statement: str
    """The same as a sentence, with `{subject}` and `{answer}`."""
    answers: dict[str, str]
    """The answer for every subject; no two are the same."""


@dataclass(frozen=True)
class WinogradSchema:
    """A sentence about two things, of which the reason tells the one that is to blame."""

    sentence: str
    """The sentence with `{first}` and `{second}`, ending before the reason."""
    first_nouns: tuple[str, ...]
    """What `{first}` may be."""
    first_reason: str
    """What is said of the first thing if it is to blame."""
    second_nouns: tuple[str, ...]
    """What `{second}` may be."""
    second_reason: str
    """What is said of the second thing if it is to blame."""


@dataclass(frozen=True)
class Study:
    """A question that a small study answers."""

    people: str
    """Who took part."""
    treatment: str
    """What one half did."""
    control: str
    """What the other half did."""
    outcome: str
    """What was counted in both halves."""
    question: str
    """The question that the study asks."""


@dataclass(frozen=True)
class Facts:
    """Everything that `templates/facts.yaml` holds."""

    goals: dict[str, str]
    """What somebody wants to do, and the sensible way to do it."""
    causes: dict[str, str]
    """A cause, and the effect that follows from it."""
    routines: dict[str, tuple[str, ...]]
    """Everyday activities, each with its five steps in the one sensible order."""
    relations: tuple[Relation, ...]
    winograd_schemas: tuple[WinogradSchema, ...]
    studies: tuple[Study, ...]


@cache
def facts() -> Facts:
    """Return all facts, in the order of the file."""
    return read("facts.yaml", Facts)
