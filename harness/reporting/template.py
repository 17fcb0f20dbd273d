"""How templates are filled: pages of HTML, and files of Markdown; every text stays a text in them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from harness.analysis.cells import number, split_title
from harness.analysis.metrics import arrow
from harness.reporting.render import markdown_escape


def content_policy(*, styles: Sequence[str], scripts: Sequence[str] = (), images: str) -> str:
    """Return the Content-Security-Policy under which a browser takes these styles, scripts and `images` alone.

    Inline styles and scripts are named by what they are.

    Example:
        >>> content_policy(styles=["p {}"], images="data:").partition("; img-src")[0]
        "default-src 'none'; style-src 'sha256-SNJDlN1Iy2mnt7DOjQIyDb2LQE6O5PQiSZomcdzawQ4='"
    """
    policy = "default-src 'none'"
    for directive, texts in (("style-src", styles), ("script-src", scripts)):
        if texts:
            digests = [b64encode(sha256(text.encode()).digest()).decode() for text in texts]
            policy += f"; {directive} " + " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"{policy}; img-src {images}; base-uri 'none'; form-action 'none'"


@cache
def html_templates() -> Environment:
    """Return the templates of pages, each compiled once in a process; they escape what they are filled with."""
    environment = _template_environment(autoescape=True)
    environment.globals["content_policy"] = content_policy
    return environment


@cache
def _text_templates() -> Environment:
    return _template_environment(keep_trailing_newline=True)


def text_file(template: str, **context: Any) -> str:
    """Return a file of Markdown; its template escapes each text with the filter of that name."""
    return _text_templates().get_template(template).render(context)


def _template_environment(**options: Any) -> Environment:
    loader = PackageLoader("harness.reporting", "templates")
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options)
    environment.globals.update(arrow=arrow, number=number, split_title=split_title)
    environment.filters.update(markdown=markdown_escape)
    return environment


def embedded(data: Mapping[str, Any]) -> Markup:
    r"""Return JSON that may stand in a page's script element, whatever its texts are.

    Example:
        >>> print(embedded({"label": "</script>&"}))
        {"label":"\u003c/script\u003e\u0026"}
    """
    return htmlsafe_json_dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
