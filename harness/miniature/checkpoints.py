"""The shipped models of the miniature: their names, sizes, folders and what was measured on them."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

VOCABULARY = 1024
POSITIONS = 256
WINDOW = 64
"""How many tokens a local attention layer looks back; short enough to matter within a sequence."""
SEQUENCE_TOKENS = 128
"""The length of a forget sequence: the first so many tokens of a record."""
END_OF_TEXT = "<|endoftext|>"
MAX_BYTES = 12_000_000
"""The most that all shipped weights may weigh together."""

WEIGHTS = Path(__file__).parent / "weights"
MANIFEST = "manifest.json"
"""In each folder that `lethe pretrain` writes."""


@dataclass(frozen=True)
class Size:
    """The architecture of one size and how long it is trained."""

    layers: int
    """Transformer layers."""
    hidden: int
    """Width of the residual stream."""
    heads: int
    """Attention heads in each layer."""
    attention: tuple[str, ...]
    """`global` or `local`, one for each layer."""
    seed: int
    """Seeds the first weights and the order of the texts."""
    steps: int
    """Steps of the optimiser."""


SIZES = {
    "s": Size(3, 80, 4, ("global", "local", "global"), seed=11, steps=2400),
    "m": Size(4, 128, 4, ("global", "local") * 2, seed=12, steps=1700),
    "l": Size(6, 128, 4, ("global", "local") * 3, seed=13, steps=2000),
    "judge": Size(3, 112, 4, ("global", "local", "global"), seed=14, steps=1800),
}
REPLICATED_SIZES = ("s", "m", "l")
"""Of which more models can be made from other seeds: the judge is one for all."""
ORIGINALS = tuple(f"miniature-{size}" for size in REPLICATED_SIZES)
RETRAINED = tuple(f"{name}-retrained" for name in ORIGINALS)
JUDGE = "miniature-judge"


def names() -> tuple[str, ...]:
    """Return the names of all shipped models: the originals, their retrained twins and the judge."""
    return (*ORIGINALS, *RETRAINED, JUDGE)


def size(name: str) -> Size:
    """Return the size of the named model; a retrained model has its original's, seed and all."""
    return SIZES[name.removeprefix("miniature-").removesuffix("-retrained")]


def knows_forget_set(name: str) -> bool:
    """Return whether the named model was trained on the forget set."""
    return name in ORIGINALS


def folder(name: str, weights: Path = WEIGHTS) -> Path:
    """Return the folder of the named model, as `from_pretrained` takes it.

    Raises:
        KeyError: There is no such model.
    """
    if name not in names():
        raise KeyError(f"no miniature model is called {name!r}; there are {', '.join(names())}")
    return weights / name


def tokenizer_folder(weights: Path = WEIGHTS) -> Path:
    """Return the folder of the tokenizer that all models share."""
    return weights / "tokenizer"


@cache
def manifest(weights: Path = WEIGHTS) -> dict[str, Any]:
    """Return what was written down when the models were made: digests, settings and measured quality."""
    content: dict[str, Any] = json.loads((weights / MANIFEST).read_text())
    return content
