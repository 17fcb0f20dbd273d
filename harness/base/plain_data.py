"""Dataclasses that JSON can hold, and values that are equal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from pydantic import TypeAdapter

_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
"""Of each class, made when it is first read: that takes milliseconds."""


@dataclass(frozen=True)
class PlainData:
    """A dataclass that JSON can hold; `to_json` and `from_json` are exact inverses."""

    def to_json(self) -> dict[str, Any]:
        """Return dictionaries, lists, strings and numbers."""
        return dict(json.loads(json.dumps(asdict(self))))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return what `to_json` wrote; what is left out has its default.

        Raises:
            ValueError: It is something else, or has a field that would be dropped, leaving a default in its place.
        """
        if cls not in _ADAPTERS:
            _ADAPTERS[cls] = TypeAdapter(cls)
        adapter: TypeAdapter[Self] = _ADAPTERS[cls]
        value = adapter.validate_python(data)
        if (dropped := _first_dropped(data, value.to_json())) is not None:
            raise ValueError(f"{cls.__name__} has no field '{dropped}'")
        return value


def _first_dropped(written: Any, read: Any) -> str | None:
    """Return the path of the first that was written and is not there after reading."""
    if isinstance(written, Mapping):
        items = list(written.items())
    elif isinstance(written, list | tuple):
        items = list(enumerate(written))
    else:
        return None
    for key, value in items:
        if isinstance(read, dict) and key not in read:
            return str(key)
        if (below := _first_dropped(value, read[key])) is not None:
            return f"{key}.{below}"
    return None


def repeated(values: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield each value that is equal to one before it, with its place.

    Example:
        >>> list(repeated([1, [2], 1.0, [2]]))
        [(2, 1.0), (3, [2])]
    """
    seen = set[str]()
    for index, value in enumerate(values):
        key = json.dumps(value, sort_keys=True, default=repr)
        key = repr(float(value)) if isinstance(value, int | float) else key
        if key in seen:
            yield index, value
        seen.add(key)
