"""A sweep file to plain data, with `--set` applied and the line of every setting."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLWarning
from ruamel.yaml.scalarbool import ScalarBoolean

from harness.base.settings import WHOLE_FILE, quoted
from harness.errors import ConfigError, DataError, Fault, Faults, did_you_mean

NAMED_THINGS = ("models", "judges")
"""Blocks where a name is short for a mapping with that `id`, which overrides may extend."""
MAX_BYTES = 1_000_000
"""Limit of a file; the longest shipped sweep has 4,000."""
MAX_VALUES = 50_000
"""Limit of a file with its aliases written out."""


class SweepFile(NamedTuple):
    """The contents of a sweep file as plain data."""

    path: Path
    text: str
    settings: dict[str, Any]
    """Settings with the overrides."""
    origins: dict[str, str]
    """Origin of each setting by dotted path: `line 12`, or `--set`."""

    @property
    def question(self) -> str:
        """Return the comment in the file's first line, after one for editors; '' without."""
        line, _, rest = self.text.partition("\n")
        if line.startswith("# yaml-language-server:"):
            line = rest.partition("\n")[0]
        line = line.strip()
        return line.lstrip("#").strip() if line.startswith("#") else ""

    def refuse(self, faults: Sequence[Fault]) -> ConfigError:
        """Return the error with these faults and their lines, in the order of the file."""
        order = {name: number for number, name in enumerate(self.settings)}
        located = []
        for fault in dict.fromkeys(faults):
            path = fault.path
            while path and path not in self.origins:  # A missing setting has the line of its block.
                path = path.rpartition(".")[0]
            located.append(replace(fault, origin=self.origins[path] if path else ""))
        located.sort(key=lambda fault: order.get(fault.path.partition(".")[0], len(order)))
        return ConfigError(str(self.path), located)


def read_sweep_file(path: Path, overrides: Sequence[str] = ()) -> SweepFile:
    """Return the contents of a sweep file, with changes such as `data.forget.sequences=64`."""
    try:
        if path.expanduser().stat().st_size <= MAX_BYTES:
            return parse_sweep_file(path.expanduser().read_text(encoding="utf-8-sig"), path, overrides)
        reason = f"has more than {MAX_BYTES:,} bytes, which no sweep needs: texts are in files that it names."
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 (byte {error.start + 1}): save it as UTF-8."
    except OSError as error:
        hint = did_you_mean(str(path), sorted(map(str, path.parent.glob("*.yaml"))))
        reason = f"cannot be read: {error.strerror}.{hint}"
    raise ConfigError(str(path), [Fault(WHOLE_FILE, reason)])


def parse_sweep_file(text: str, path: Path, overrides: Sequence[str] = ()) -> SweepFile:
    """Return the contents of a sweep file from its text."""
    origins: dict[str, str] = {}
    try:
        settings = parse(text, origins)
    except DataError as error:
        raise ConfigError(str(path), [Fault(WHOLE_FILE, str(error))]) from None
    if not isinstance(settings, dict):
        reason = "is empty" if settings is None else f"must be a mapping (name: value); got {quoted(settings)}"
        raise ConfigError(str(path), [Fault(WHOLE_FILE, f"{reason}. The files in sweeps/ are examples.")])
    file, faults = SweepFile(path, text, settings, origins), Faults()
    for override in overrides:
        _override(settings, override, origins, faults)
    if faults:
        raise file.refuse(faults)
    return file


def parse(text: str, lines: dict[str, str] | None = None) -> Any:
    """Parse one YAML 1.2 document: `1e-3` is a number, and repeated keys are errors.

    `lines` is filled with the line of every value by dotted path: `line 12`.
    """
    try:
        with warnings.catch_warnings(action="ignore", category=YAMLWarning):
            return _plain(YAML().load(text), "", "line 1", {} if lines is None else lines)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise DataError(f"is not valid YAML{location}: {error.problem or error.context}.") from None
    except (YAMLError, ValueError) as error:
        raise DataError(f"is not valid YAML: {str(error).splitlines()[0]}.") from None


def _plain(value: Any, path: str, line: str, lines: dict[str, str]) -> Any:
    lines[path] = line
    if len(lines) > MAX_VALUES:
        raise DataError(f"has more than {MAX_VALUES:,} values, aliases written out.")
    if isinstance(value, dict | list):
        marks = value.lc.data or {}  # type: ignore[union-attr]
        inside = {}
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            origin = f"line {marks[key][0] + 1}" if key in marks else line  # A merge key's values have no line.
            inside[str(key)] = _plain(inner, f"{path}.{key}".removeprefix("."), origin, lines)
        return inside if isinstance(value, dict) else [*inside.values()]
    if isinstance(value, bool | ScalarBoolean):
        return bool(value)
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    return None if value is None else str(value)  # A date is a text: no setting is one.


def _override(settings: dict[str, Any], override: str, origins: dict[str, str], faults: Faults) -> None:
    path, equals, text = override.partition("=")
    name = path.strip()
    if not equals or not name:
        faults.add(f"--set {override}", "is not path=value. For example: --set data.forget.sequences=64.")
        return
    *above, last = name.split(".")
    inside: Any = settings
    try:
        value = parse(text)
        for depth, part in enumerate(above):
            key: Any = int(part) if isinstance(inside, list) else part
            inner = inside[key] if isinstance(inside, list) else inside.get(key)
            if inner is None:
                inside[key] = {}
            elif isinstance(inner, str) and depth == 1 and above[0] in NAMED_THINGS:
                inside[key] = {"id": inner}
            inside = inside[key]
        inside[int(last) if isinstance(inside, list) else last] = value
    except DataError as error:
        faults.add(f"--set {path}", str(error))
    except (AttributeError, IndexError, TypeError, ValueError):
        faults.add(f"--set {path}", "leads to nothing: the entries of a list are numbered from 0.")
    for inner_name in [other for other in origins if f"{other}.".startswith(f"{name}.")]:
        del origins[inner_name]
    origins[name] = "--set"
