"""The Content-Security-Policy of a page: its own styles, scripts and pictures, by what they are, and nothing else."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256


def content_policy(*, styles: Sequence[str], scripts: Sequence[str] = (), images: str) -> str:
    """Return the policy under which a browser takes these inline styles and scripts, and `images`, alone.

    Example:
        >>> content_policy(styles=["p {}"], images="data:").partition("; img-src")[0]
        "default-src 'none'; style-src 'sha256-SNJDlN1Iy2mnt7DOjQIyDb2LQE6O5PQiSZomcdzawQ4='"
    """
    allowed = {"style-src": _hashes(styles), "script-src": _hashes(scripts), "img-src": images}
    directives = [f"{name} {sources}" for name, sources in allowed.items() if sources]
    return "; ".join(["default-src 'none'", *directives, "base-uri 'none'", "form-action 'none'"])


def _hashes(texts: Sequence[str]) -> str:
    return " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in texts)
