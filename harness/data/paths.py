"""The files of a source: where they should be, and errors that say what was looked for."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from harness.errors import DataError
from harness.specs import Source

SOURCE_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "miniature": (),
    "extraction_challenge": ("path",),
    "jsonl": ("path", "field"),
    "npy": ("path",),
    "hub": ("path", "name", "split", "field"),
}
"""Each source, and which of `path`, `name`, `split` and `field` it reads."""
TOKEN_SOURCES = ("extraction_challenge", "npy")
"""The sources of token ids; the others give texts."""
CHALLENGE_FILES = ("train_preprefix.npy", "train_prefix.npy", "train_suffix.npy")
TEXT_FILE = 'a file with one {"text": ...} a line'
ARRAY_FILE = "an array of token ids (.npy)"


def check_path(source: Source) -> None:
    """Check that what `source.path` names is there, without reading it.

    Raises:
        DataError: A file or folder is missing, or the one is where the other should be.
    """
    if source.source == "jsonl":
        existing_file(source.path, TEXT_FILE)
    elif source.source == "npy":
        existing_file(source.path, ARRAY_FILE)
    elif source.source == "extraction_challenge":
        challenge_files(source.path)


def challenge_files(path: str | None) -> list[Path]:
    """Return the challenge's three files in a folder, or the one file in which they are joined.

    Raises:
        DataError: One is missing.
    """
    if path is not None and path.endswith(".npy"):
        return [existing_file(path, "the joined array of the challenge (.npy)")]
    folder = Path(path or "")
    files = [folder / name for name in CHALLENGE_FILES]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        state = f"{folder} lacks {', '.join(missing)}" if folder.is_dir() else f"no folder {folder}"
        raise DataError(f"{state}. Looked for {', '.join(CHALLENGE_FILES)} (or give one joined .npy file).")
    return files


def existing_file(path: str | None, what: str) -> Path:
    """Return the file, sure to exist.

    Raises:
        DataError: There is none; the message names the nearest one beside it.
    """
    file = Path(path or "")
    if file.is_file():
        return file
    if file.is_dir():
        raise DataError(f"{file} is a folder, and {what} is needed.")
    if not file.parent.is_dir():
        raise DataError(f"neither the file {file} nor its folder {file.parent} exists. Looked for {what}.")
    near = get_close_matches(file.name, [sibling.name for sibling in file.parent.iterdir()], n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise DataError(f"no file {file}.{hint} Looked for {what}.")
