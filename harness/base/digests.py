"""Digests of plain values and of files."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Digest = Callable[[Path], str]

SETTLED_NS = 2_000_000_000
"""A file younger than this may change without changing its times: it is read each time."""
_READ_BEFORE: dict[Path, tuple[tuple[int, ...], str]] = {}


def digest_of(value: Any) -> str:
    """Return 16 hex digits that name `value`, in any order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(file: Path) -> str:
    """Return the sha256 of a file, 64 hex digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def known_digest(file: Path) -> str:
    """Return the sha256 of a file, cached while its times and size do not change."""
    status = file.stat()
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    known_state, digest = _READ_BEFORE.get(file, ((), ""))
    if known_state != state:
        digest = file_digest(file)
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLED_NS:
            _READ_BEFORE[file] = state, digest
    return digest


def folder_digests(folder: Path, besides: str = "", digest: Digest = file_digest) -> dict[str, str]:
    """Return the sha256 of every file below a folder by relative name, without `besides`."""
    files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if file.is_file()}
    return {name: digest(file) for name, file in files.items() if name != besides}


def difference(folder: Path, written: Mapping[str, str], besides: str = "", digest: Digest = file_digest) -> str:
    """Describe how a folder's files differ from these sha256s by relative name; '' if they do not."""
    try:
        present = folder_digests(folder, besides, digest)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    clauses = [f"{name} is missing" for name in sorted(written.keys() - present.keys())]
    clauses += [f"{name} was added" for name in sorted(present.keys() - written.keys())]
    for name in sorted(written.keys() & present.keys()):
        if present[name] != written[name]:
            clauses.append(f"{name} is not what was written")
    return ", ".join(clauses)
