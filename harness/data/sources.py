"""Sources: each role's section of the `data` block, and its rows, read no further than needed.

A faulty row is reported by its number, never by its text: it may be the forget set.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from harness import miniature
from harness.base.files import parse_path
from harness.base.hub import Repository, fetch_data_set
from harness.errors import DataError, did_you_mean
from harness.settings import Data, ForgetSource, HeldSource, HoldoutSource, Source, TextSource, replace

Role = Literal["forget", "holdout", "retain", "utility", "validation"]
ROLES: tuple[Role, ...] = ("forget", "holdout", "retain", "utility", "validation")
WHOLE_ROLES: tuple[Role, ...] = ("forget", "holdout")
"""Roles that use every row."""


def source_label(source: Source, role: Role) -> str:
    """Return the name of these texts in messages."""
    return source.path or f"the miniature's {role} texts"


def texts(source: Source, role: Role) -> Iterator[TextRow]:
    """Yield the rows from `source.start` on, unusable ones with their fault."""
    if source.source == "miniature":
        used = miniature.texts(role)[source.start :]
        return (TextRow(f"row {number}", text) for number, text in enumerate(used, source.start))
    folder = parse_path(source.path or "")
    if source.source in TEXT_FILES:
        is_folder = source.source == "text" and folder.is_dir()
        return _file_rows(folder if is_folder else existing_file(source.path, TEXT_FILES[source.source]), source)
    if not folder.is_dir():
        folder = fetch_data_set(Repository(source.path or "", "dataset"), source.name)
    return _data_set_rows(folder, source)


def token_ids(source: Source) -> np.ndarray:
    """Return the token ids of the used rows, rows by tokens, on disk if possible."""
    is_whole = source.sequences is None or source.sample_seed is not None
    stop = None if is_whole else source.start + (source.sequences or 0)
    is_challenge, array = source.source == "extraction_challenge", "an array of token ids (.npy)"
    files = challenge_files(source.path) if is_challenge else [existing_file(source.path, array)]
    parts = [_array_of_ids(file) for file in files]
    counts = {len(part) for part in parts}
    if len(counts) > 1:
        fault = f"the parts have different numbers of rows ({', '.join(map(str, sorted(counts)))})"
        raise DataError(f"{source.path}: {fault}. {', '.join(CHALLENGE_FILES)} must be of the same set.")
    rows = [part[source.start : stop] for part in parts]
    return rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)


def _array_of_ids(file: Path) -> np.ndarray:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # A header of nonsense makes numpy and its parser raise just about anything.
        kinds = "empty, cut short, another format, or Python objects"
        raise DataError(f"{file} is not a .npy array that can be read: {kinds}.") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{file} is an archive of arrays (.npz); save the one array of token ids with np.save.")
    if array.ndim != 2 or not array.size or not np.issubdtype(array.dtype, np.integer):
        rule = "an array of token ids has two dimensions, sequences by tokens, and integers (.astype(np.uint16))."
        raise DataError(f"{file} holds {array.dtype} of shape {array.shape}; {rule}")
    return array


READERS = ("Json", "Parquet")
"""Builders of `datasets` that read texts; some others can run programs."""


def _data_set_rows(folder: Path, source: Source) -> Iterator[TextRow]:
    import datasets

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # Its errors are logged with what could not be parsed.
    try:
        try:
            builder = datasets.load_dataset_builder(str(folder), source.name)
        except (ValueError, FileNotFoundError):  # The card has no such configuration: a folder of files may.
            if source.name is None or not (inner := parse_path(folder / source.name)).is_dir():
                raise
            builder = datasets.load_dataset_builder(str(inner))
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:300]
        raise DataError(f"the data set '{source.path}' cannot be loaded: {type(error).__name__}: {reason}") from error
    if not any(parent.__name__ in READERS for parent in type(builder).__mro__):
        raise DataError(f"the data set '{source.path}' is neither JSON lines nor parquet: convert it.")
    splits = [str(split) for split in builder.config.data_files]
    if source.split not in splits:
        raise DataError(f"the data set '{source.path}' has no split '{source.split}'. It has {', '.join(splits)}.")
    try:
        # Streaming reads no more than is used, and leaves no copy in the cache.
        loaded: Any = builder.as_streaming_dataset(split=source.split)
        rows = (text_row(f"row {number}", values, source) for number, values in enumerate(loaded))
        yield from islice(filter(None, rows), source.start, None)
    except Exception as error:  # The reader's own message is withheld, since it may quote a line that it cannot parse.
        raise DataError(f"the data set '{source.path}' cannot be read: {type(error).__name__}.") from error


TEXT_FILES = {"jsonl": 'a file with one {"text": ...} a line', "csv": "a table with a column of texts (.csv)"}
TEXT_FILES |= {"text": "paragraphs of text (.txt), or a folder with a text a file"}
"""Sources of texts in files of one's own."""
TOKEN_SOURCES = ("extraction_challenge", "npy")
"""Sources of token ids instead of texts."""
CHALLENGE_FILES = ("train_preprefix.npy", "train_prefix.npy", "train_suffix.npy")


def challenge_files(path: str | None) -> list[Path]:
    """Return the challenge's three files in a folder, or the one joined file."""
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
    """Return an existing file."""
    file = Path(path or "")
    if file.is_file():
        return file
    hint = did_you_mean(file.name, [sibling.name for sibling in file.parent.glob("*")])
    raise DataError(f"no file {file}.{hint} Looked for {what}.")


@dataclass(frozen=True)
class TextRow:
    """One text, or its fault."""

    where: str
    """`line 12` in an editor, or `row 11` of an array or data set."""
    text: str = ""
    problem: str = ""
    ids: tuple[int, ...] = ()
    """Token ids in place of a text."""


def _file_rows(place: Path, source: Source) -> Iterator[TextRow]:
    readers = {"jsonl": _json_rows, "csv": _csv_rows, "text": _plain_rows}
    try:
        rows = (text_row(where, values, source) for where, values in readers[source.source](place))
        yield from islice(filter(None, rows), source.start, None)
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{place} is not a readable {source.source} file in UTF-8. Save it as one.") from error


def _csv_rows(file: Path) -> Iterator[tuple[str, Any]]:
    csv.field_size_limit(2**31 - 1)
    with file.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.DictReader(stream, restkey="")
        for row in rows:
            breaks = sum(str(cell).count("\n") for cell in row.values())
            yield f"line {rows.line_num - breaks}", row


def _plain_rows(place: Path) -> Iterator[tuple[str, Any]]:
    if place.is_dir():
        for file in sorted(place.glob("*.txt")):
            yield file.name, {"text": file.read_text(encoding="utf-8-sig")}
        return
    lines = enumerate(place.read_text(encoding="utf-8-sig").split("\n"), 1)
    for is_text, paragraph in groupby(lines, key=lambda line: bool(line[1].strip())):
        if is_text:
            numbered = list(paragraph)
            yield f"line {numbered[0][0]}", {"text": "\n".join(line for _, line in numbered)}


def _json_rows(file: Path) -> Iterator[tuple[str, Any]]:
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                # utf-8-sig: a file saved on Windows may begin with a byte order mark.
                yield f"line {number}", json.loads(line.decode("utf-8-sig")) if line.strip() else ""
            except ValueError:
                yield f"line {number}", None


def text_row(where: str, values: Any, source: Source) -> TextRow | None:
    """Return the text in a row's field, or its fault; None if the row is not among those that `source.where` names."""
    field = source.field
    if values == "":
        return TextRow(where, problem="is empty")
    if not isinstance(values, Mapping):
        return TextRow(where, problem=f'is not an object {{"{field}": ...}} of JSON in UTF-8')
    if lacking := [name for name in (*dict(source.where), field) if name not in values]:
        # Only keys that look like a field's name are shown: a mangled row may have text for keys.
        others = ", ".join([key for key in values if key.isidentifier() and len(key) <= 30][:10])
        return TextRow(where, problem=f"has no field '{lacking[0]}' (it has {others or 'no other plain name'})")
    if any(str(values[name]) != str(value) for name, value in source.where):
        return None
    text = values[field]
    if isinstance(text, list) and text and all(type(id) is int for id in text):
        return TextRow(where, ids=tuple(text))
    if not isinstance(text, str) or text.encode(errors="ignore").decode() != text:
        return TextRow(where, problem=f"has a '{field}' that is not text in Unicode")
    return TextRow(where, text)


MINIATURE_TOKENS = (64, 128)
"""Prefix and sequence of the miniature, whose models memorised only 128 tokens."""
DEFAULT_TOKENS = (100, 200)
"""Prefix and sequence of the Extraction Challenge."""
VALIDATION_TEXTS = 64


def default_section(data: Data, role: Role, texts: Mapping[str, Source]) -> TextSource | None:
    """Return the miniature's unseen texts for a role that the file leaves out, or None.

    Validation texts default to the utility's, or, where they steer, to the next ones of its source.
    """
    if role == "holdout" and data.forget.source == "miniature":
        other, start = data.forget.not_memorized, 0
        if other is not None and other.source == "miniature":  # It may be made of all unseen records.
            is_beginning = other.sequences is not None and other.sample_seed is None
            start = other.start + (other.sequences or 0) if is_beginning else miniature.UNSEEN_RECORDS
        return HoldoutSource(source="miniature", start=start) if start < miniature.UNSEEN_RECORDS else None
    if role != "validation" or "utility" not in texts:
        return None
    shared = data.utility.model_dump(include=set(TextSource.model_fields))
    # The miniature has enough texts: the number of prompts does not decide when training stops.
    count = VALIDATION_TEXTS if data.utility.source == "miniature" else min(VALIDATION_TEXTS, data.utility.prompts)
    return HeldSource(**shared, sequences=count)


def section_source(section: TextSource, role: Role, forget: Source | None = None) -> Source:
    """Return a section's source without a digest; only utility texts may be longer than the forget set's."""
    cut = (forget.longest or forget.sequence_tokens) if forget is not None else DEFAULT_TOKENS[1]
    settings = section.model_dump(exclude_none=True, exclude={"not_memorized"})
    if role == "forget":
        prefix, whole = MINIATURE_TOKENS if section.source == "miniature" else DEFAULT_TOKENS
        settings = {"prefix_tokens": prefix, "sequence_tokens": whole, **settings}
    elif role == "utility":
        prompt, prompts = settings.pop("prompt_tokens"), settings.pop("prompts")
        whole = prompt + settings.pop("reference_tokens")
        settings |= {"sequences": prompts, "prefix_tokens": prompt, "sequence_tokens": whole}
    else:
        prefix = 1 if role != "holdout" else forget.prefix_tokens if forget is not None else DEFAULT_TOKENS[0]
        whole = min(cut, settings.get("sequence_tokens", cut))
        settings = {"prefix_tokens": prefix, **settings, "sequence_tokens": whole}
    if section.where is not None:
        settings["where"] = tuple(sorted(section.where.items()))
    if section.path is not None:
        folder = parse_path(section.path)
        settings["path"] = section.path if section.source == "hub" and not folder.is_dir() else str(folder.resolve())
    source = Source(**settings)
    other = section.not_memorized if isinstance(section, ForgetSource) else None
    return source if other is None else replace(source, not_memorized=section_source(other, "holdout", source))
