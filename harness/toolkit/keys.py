"""Keys of what trials share: digests of texts, and of judges with all that decides what they make of a text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.contracts import Checkpoint
from harness.hub import DESCRIPTION


def texts_key(*groups: Sequence[str]) -> str:
    """Return a sha256 that names these texts, in their order and grouping.

    Token ids do not name a text: two tokenizers read them differently.

    Example:
        >>> texts_key(["a", "b"]) == texts_key(["a", "b"]), texts_key(["ab"]) == texts_key(["a", "b"])
        (True, False)
        >>> texts_key(["a"], ["b"]) == texts_key(["a", "b"])
        False
    """
    return hashlib.sha256(json.dumps([list(group) for group in groups]).encode()).hexdigest()


def judge_key(judge: Checkpoint, *facts: str) -> str:
    """Return a sha256 that names a local judge: its weights, tokenizer and configuration, and these facts.

    A checkpoint's digest names its weights alone. The same weights with another tokenizer, or with another
    pooling (a file in a folder of its own, in sentence-transformers' format), are another judge.

    Args:
        judge: Its places are folders here.
        facts: What else decides its numbers, such as the precision that it computes in.
    """
    digest = hashlib.sha256(json.dumps([judge.digest, *facts]).encode())
    for role, name, file in _described(Path(judge.location), Path(judge.tokenizer)):
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(json.dumps([role, name, content]).encode())
    return digest.hexdigest()


def _described(location: Path, tokenizer: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield the role, the name within its folder and the path of every file that counts."""
    for role, folder in (("model", location), ("tokenizer", tokenizer)):
        for file in sorted({file for pattern in DESCRIPTION for file in folder.glob(pattern)}):
            yield role, file.name, file
    modules = location / "modules.json"
    for module in json.loads(modules.read_text(encoding="utf-8")) if modules.is_file() else []:
        if module["path"]:
            for file in sorted(file for file in (location / module["path"]).rglob("*") if file.is_file()):
                yield module["path"], str(file.relative_to(location)), file
