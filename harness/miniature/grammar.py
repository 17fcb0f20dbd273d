"""A small grammar that writes documents: templates with slots, filled from tables by a seeded generator.

A template is text with slots in braces:

    {season}        one alternative of the table `season`, expanded in turn
    {home}          the value bound to the name, if there is one; a role is bound to the first value chosen for it
    {Season}        any of these with a capital first letter
    {#2-9}          a whole number from 2 to 9
"""

import re
from collections.abc import Mapping, Sequence
from random import Random

SLOT = re.compile(r"\{([^{}]+)\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])")


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
        return SLOT.sub(self._fill_slot, template) if "{" in template else template

    def _fill_slot(self, slot: re.Match[str]) -> str:
        name = slot[1]
        if name[0] == "#":
            low, high = name[1:].split("-")
            return str(int(low) + int(self.random.random() * (int(high) - int(low) + 1)))
        if name[0].isupper():
            value = self._value(name[0].lower() + name[1:])
            return value[0].upper() + value[1:]
        return self._value(name)

    def _value(self, name: str) -> str:
        if name in self.bound:
            return self.bound[name]
        if name in self.roles:
            self.bound[name] = self.write(self.roles[name])
            return self.bound[name]
        return self.write(name)


def correct_articles(text: str) -> str:
    """Return the text with `a` turned into `an` in front of a vowel.

    Example:
        >>> correct_articles("a apple and a pear")
        'an apple and a pear'
    """
    return _ARTICLE.sub(r"\1n ", text)
