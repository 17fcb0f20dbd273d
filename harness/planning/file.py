"""The sweep file itself: found, read, and one table of settings."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from harness.errors import ConfigError, Fault
from harness.planning.document import parse
from harness.planning.faults import Faults
from harness.planning.words import shown


def text_of(file: Path) -> str:
    """Return a sweep file's text.

    Raises:
        ConfigError: There is no such file, or it is no text.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        fault = Fault("(file)", f"is not UTF-8 (byte {error.start + 1}): save it as UTF-8.")
    except IsADirectoryError:
        fault = Fault("(file)", "is a folder: give one of the files in it.")
    except OSError:
        beside = [str(each) for each in file.parent.glob("*.yaml")]
        near = get_close_matches(str(file), beside, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else f" In that folder: {', '.join(beside) or 'no sweep file'}."
        fault = Fault("(file)", f"cannot be read: there is no such file.{hint}")
    raise ConfigError(str(file), [fault])


def settings_in(text: str, file: Path) -> tuple[dict[str, Any], Faults]:
    """Return what a sweep file's text says, and what is wrong with it as YAML.

    Raises:
        ConfigError: It says nothing, or no settings.
    """
    raw, faults = parse(text)
    if isinstance(raw, dict):
        return raw, Faults(faults)
    what = "is empty" if raw is None else f"must be settings (name: value); got {shown(raw)}"
    raise ConfigError(str(file), faults or [Fault("(file)", f"{what}. The files in sweeps/ show what one says.")])
