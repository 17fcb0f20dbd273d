"""Sweep files that commands write: templates beside this file, and what is put into them as YAML."""

from __future__ import annotations

import math
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined


def filled(template: str, **parts: object) -> str:
    """Return a template with its parts put in."""
    environment = Environment(
        loader=PackageLoader("harness.drafting", ""),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**parts)


def flow(value: Any) -> str:
    """Return a value as YAML on one line.

    Example:
        >>> flow({"source": "jsonl", "path": "my: letters.jsonl"}), flow([0.05, 0.1]), flow("a model")
        ("{source: jsonl, path: 'my: letters.jsonl'}", '[0.05, 0.1]', 'a model')
    """
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf, allow_unicode=True)
    return text.removesuffix("...\n").strip()
