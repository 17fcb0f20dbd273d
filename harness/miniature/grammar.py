"""A small grammar that writes documents: templates with slots, filled from tables by a seeded generator.

A template is text with slots in braces:

    {season}        one alternative of the table `season`, expanded in turn
    {home}          the value bound to the name, if there is one; a role is bound to the first value chosen for it
    {Season}        any of these with a capital first letter
    {#2-9}          a whole number from 2 to 9
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

_SLOT = re.compile(r"\{([^{}]+)\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])")


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a template, and the literal text in front of it."""

    literal: str
    """Text between the slot before and this one."""
    name: str
    """The name of a value, role or table; empty for the text behind the last slot."""
    capital: bool
    """Whether the value gets a capital first letter."""
    low: int
    """The smallest number of a number slot."""
    span: int
    """How many numbers a number slot chooses from; 0 for every other slot."""


def choose(choices: Sequence[str], random: Random) -> str:
    """Return one of the choices.

    `Random.random` is the one call whose values Python promises to keep from version to version.
    """
    return choices[int(random.random() * len(choices))]


def sample_indices(size: int, count: int, random: Random) -> list[int]:
    """Return `count` different indices below `size`, in random order."""
    order = list(range(size))
    for index in range(count):
        other = index + int(random.random() * (size - index))
        order[index], order[other] = order[other], order[index]
    return order[:count]


@cache
def parse_template(template: str) -> tuple[Slot, ...]:
    """Return the slots of a template, in order; the last one holds the text behind them."""
    slots = []
    end = 0
    for match in _SLOT.finditer(template):
        literal, body = template[end : match.start()], match[1]
        end = match.end()
        if body.startswith("#"):
            low, high = (int(bound) for bound in body[1:].split("-"))
            slots.append(Slot(literal, "#", False, low, high - low + 1))
        else:
            slots.append(Slot(literal, body[0].lower() + body[1:], body[0].isupper(), 0, 0))
    slots.append(Slot(template[end:], "", False, 0, 0))
    return tuple(slots)


class Writer:
    """Writes one document: it keeps roles and avoids saying the same sentence twice."""

    def __init__(
        self,
        tables: Mapping[str, Sequence[str]],
        roles: Mapping[str, str],
        random: Random,
        bound: Mapping[str, str],
    ) -> None:
        """Begin a document.

        Args:
            tables: Every table that a template may name.
            roles: The table of every name that keeps its first value.
            random: The source of all choices.
            bound: Values that are there from the start.
        """
        self.tables = tables
        self.roles = roles
        self.random = random
        self.bound = dict(bound)
        self._used: set[str] = set()

    def write(self, name: str) -> str:
        """Return one alternative of the table `name`, with every slot filled; where possible, one not yet used."""
        choices = self.tables[name]
        template = choose(choices, self.random)
        for _ in range(8):
            if template not in self._used:
                break
            template = choose(choices, self.random)
        self._used.add(template)
        return self.fill(template)

    def fill(self, template: str) -> str:
        """Return the template with every slot filled."""
        parts = []
        for slot in parse_template(template):
            parts.append(slot.literal)
            if slot.span:
                parts.append(str(slot.low + int(self.random.random() * slot.span)))
            elif slot.name:
                value = self._value(slot.name)
                parts.append(value[0].upper() + value[1:] if slot.capital else value)
        return "".join(parts)

    def _value(self, name: str) -> str:
        value = self.bound.get(name)
        if value is None:
            role = self.roles.get(name)
            value = self.write(role or name)
            if role:
                self.bound[name] = value
        return value


def correct_articles(text: str) -> str:
    """Return the text with `a` turned into `an` in front of a vowel.

    Example:
        >>> correct_articles("a apple and a pear")
        'an apple and a pear'
    """
    return _ARTICLE.sub(r"\1n ", text)
