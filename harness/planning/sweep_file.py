"""A sweep file to plain data, with `--set` applied, and with the line of every setting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.base.paths import in_quotes, path_of
from harness.base.settings import quoted
from harness.base.yaml_text import MOST_LEVELS, WHOLE_FILE, parse
from harness.errors import ConfigError, DataError, Fault, did_you_mean

NAMED_THINGS = ("models", "judges")
"""Where a name stands for a mapping with that `id`, which an override may add to."""
MOST_BYTES = 1_000_000
"""The longest sweep that is shipped has 4,000."""
MOST_NAMED = 10


@dataclass(frozen=True)
class SweepFile:
    """What a sweep file says, as plain data."""

    path: Path
    text: str
    settings: dict[str, Any]
    """With the overrides made."""
    origins: dict[str, str]
    """Where a setting was written, by its dotted path: `line 12`, or `--set` if an override wrote it."""

    @property
    def question(self) -> str:
        """Return what the file asks: its first line, if that is a comment."""
        first = self.text.partition("\n")[0].strip()
        return first.lstrip("#").strip() if first.startswith("#") else ""

    def refuse(self, faults: Sequence[Fault]) -> ConfigError:
        """Return the error that lists these faults, each with its line, in the order of the file."""
        order = {name: number for number, name in enumerate(self.settings)}
        located = []
        for fault in dict.fromkeys(faults):
            path = fault.path
            while path and path not in self.origins:  # What was left out would be part of the nearest one above it.
                path = path.rpartition(".")[0]
            located.append(replace(fault, origin=self.origins.get(path, "")))
        located.sort(key=lambda fault: order.get(fault.path.partition(".")[0], len(order)))
        return ConfigError(str(self.path), located)


def read_sweep_file(path: Path, overrides: Sequence[str] = ()) -> SweepFile:
    """Return what a sweep file says.

    Args:
        path: The file.
        overrides: Changes to it, `data.forget.sequences=64`. A path may go through list indices and may name
            settings that the file leaves out; whether they exist is checked with the file's own.

    Raises:
        ConfigError: There is no such file, or it is not a mapping in sound YAML, or an override is wrong.
    """
    try:
        file = path_of(path)
        if file.is_file():
            with file.open("rb") as stream:
                content = stream.read(MOST_BYTES + 1)
            if len(content) <= MOST_BYTES:
                text = "\n".join(re.split("\r\n?|\n", content.decode("utf-8-sig")))
                return sweep_file_of(text, path, overrides)
            reason = f"has more than {MOST_BYTES:,} bytes, which no sweep needs: texts are in files that it names."
        elif file.is_dir():
            reason = "is a folder: give one of the files in it."
        elif file.exists():
            reason = "is neither a file nor a folder but a pipe or a device: save the sweep in a file."
        else:
            others = sorted(str(other) for other in file.parent.glob("*.yaml"))
            more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
            there = f"{', '.join(others[:MOST_NAMED])}{more}" if others else "no sweep file"
            hint = did_you_mean(str(file), others) or f" In that folder: {there}."
            reason = f"cannot be read: there is no such file.{hint}"
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 (byte {error.start + 1}): save it as UTF-8."
    except (DataError, OSError) as error:
        reason = f"cannot be read: {error}"
    raise ConfigError(str(path), [Fault(WHOLE_FILE, reason)])


def sweep_file_of(text: str, path: Path, overrides: Sequence[str] = ()) -> SweepFile:
    """Return what a text says that is, or is to be, the sweep file at a path.

    Raises:
        ConfigError: It is not a mapping in sound YAML, or an override is wrong.
    """
    origins: dict[str, str] = {}
    settings, faults = parse(text, origins=origins)
    if not isinstance(settings, dict):
        what = "is empty" if settings is None else f"must be a mapping (name: value); got {quoted(settings)}"
        hint = f"{what}. The files in sweeps/ show what one says."
        raise ConfigError(str(path), faults or [Fault(WHOLE_FILE, hint)])
    file = SweepFile(path, text, settings, origins)
    faults = [fault for override in overrides for fault in _override(settings, override, origins)]
    if faults:
        raise file.refuse(faults)
    return file


def _override(settings: dict[str, Any], override: str, origins: dict[str, str]) -> list[Fault]:
    path, equals, text = override.partition("=")
    parts = path.strip().split(".")
    if not equals or not all(parts):
        return [Fault(f"--set {override}", "is not path=value. For example: --set data.forget.sequences=64.")]
    if len(parts) > MOST_LEVELS:
        return [Fault("--set", f"{in_quotes(path)} goes through more than {MOST_LEVELS} levels, which no setting has.")]
    value, faults = parse(text, f"--set {path}")
    if faults:
        return faults
    inside: Any = settings
    for depth, part in enumerate(parts):
        above = ".".join(parts[:depth])
        if not isinstance(inside, list | dict):
            return [Fault(f"--set {path}", f"'{above}' is {quoted(inside)}, which has no '{part}'.")]
        if isinstance(inside, list) and part not in map(str, range(len(inside))):
            numbers = f"numbered 0 to {len(inside) - 1}" if inside else "an empty list"
            return [Fault(f"--set {path}", f"'{above}' has no entry '{part}': it is {numbers}.")]
        key: Any = int(part) if isinstance(inside, list) else part
        if depth == len(parts) - 1:
            inside[key] = value
            break
        inner = inside[key] if isinstance(inside, list) else inside.get(key)
        if inner is None:
            inside[key] = {}
        elif isinstance(inner, str) and depth == 1 and parts[0] in NAMED_THINGS:
            inside[key] = {"id": inner}
        inside = inside[key]
    name = ".".join(parts)
    for known in [known for known in origins if f"{known}.".startswith(f"{name}.")]:
        del origins[known]
    origins[name] = "--set"
    return []
