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

Tables = Mapping[str, tuple[str, ...]]

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


def tables(text: str) -> dict[str, tuple[str, ...]]:
    """Return the tables written in `text`: a line `name:` and its alternatives, indented, one a line."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith(" "):
            found[name].append(line.strip())
        elif line:
            name = line.removesuffix(":")
            found[name] = []
    return {name: tuple(lines) for name, lines in found.items()}


def listed(text: str) -> tuple[str, ...]:
    """Return the entries of a list written with commas, over one or several lines."""
    return tuple(" ".join(entry.split()) for entry in text.split(",") if entry.strip())


def pick(choices: Sequence[str], random: Random) -> str:
    """Return one of the choices.

    `Random.random` is the one call whose values Python promises to keep from version to version.
    """
    return choices[int(random.random() * len(choices))]


def sample(size: int, count: int, random: Random) -> list[int]:
    """Return `count` different indices below `size`, in random order."""
    order = list(range(size))
    for index in range(count):
        other = index + int(random.random() * (size - index))
        order[index], order[other] = order[other], order[index]
    return order[:count]


@cache
def compiled(template: str) -> tuple[Slot, ...]:
    """Return the template as a row of slots."""
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

    def __init__(self, rules: Tables, roles: Mapping[str, str], random: Random, bound: Mapping[str, str]) -> None:
        """Begin a document.

        Args:
            rules: Every table that a template may name.
            roles: The table of every name that keeps its first value.
            random: The source of all choices.
            bound: Values that are there from the start.
        """
        self.rules = rules
        self.roles = roles
        self.random = random
        self.bound = dict(bound)
        self._said: set[str] = set()

    def write(self, name: str) -> str:
        """Return one alternative of the table `name`, with every slot filled."""
        return self.fill(self._choose(name))

    def fill(self, template: str) -> str:
        """Return the template with every slot filled."""
        parts = []
        for slot in compiled(template):
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

    def _choose(self, name: str) -> str:
        choices = self.rules[name]
        template = pick(choices, self.random)
        for _ in range(8):
            if template not in self._said:
                break
            template = pick(choices, self.random)
        self._said.add(template)
        return template


def finished(text: str) -> str:
    """Return the text with `a` turned into `an` in front of a vowel."""
    return _ARTICLE.sub(r"\1n ", text)
