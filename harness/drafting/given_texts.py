"""Texts that a command was given: their source, lengths and cuts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median_low
from typing import Any, NamedTuple

import yaml

from harness.base.files import parse_path, quote_text
from harness.contracts import Checkpoint, Number
from harness.data import sequences, sources
from harness.errors import ConfigError, DataError, ModelError
from harness.miniature import read_manifest
from harness.models import loading, resolving
from harness.settings import Source


def flow(value: Any) -> str:
    """Return a value as YAML on one line.

    Example:
        >>> flow({"source": "jsonl", "path": "my: letters.jsonl"}), flow([0.05, 0.1]), flow("a model")
        ("{source: jsonl, path: 'my: letters.jsonl'}", '[0.05, 0.1]', 'a model')
    """
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf, allow_unicode=True)
    return text.removesuffix("...\n").strip()


MINIATURE = "miniature"
"""Names the embedded corpus instead of a path."""
ENDINGS = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".txt": "text", ".npy": "npy"}
LENGTHS = ("prefix_tokens", "sequence_tokens", "sequences")
"""Settings that are options too."""
MIN_TOKENS = 16
"""A prefix and a continuation of 8 tokens each."""


class Given(NamedTuple):
    """A model and texts, as named on the command line."""

    model: str
    texts: str
    unseen: str | None = None
    field: str = "text"
    tokenizer: str | None = None
    prefix_tokens: int | None = None
    sequence_tokens: int | None = None
    sequences: int | None = None
    models: tuple[Mapping[str, str], ...] = ()
    """Entries of a sweep file in place of `model`."""
    levels: tuple[Number | str, ...] = ()


class ReadTexts(NamedTuple):
    """The given texts as the forget set of the given model."""

    given: Given
    model: Checkpoint
    forget: Mapping[str, Any]
    """Settings of the sweep file."""
    lengths: Sequence[int]
    """Tokens of each text, cut; none for the embedded corpus, whose lengths are known."""

    def settings(self) -> dict[str, Any]:
        """Return parts of a sweep file: `models`, `forget` and `holdout` as YAML, and the tokens of both parts."""
        given, (prefix, length) = self.given, sources.MINIATURE_TOKENS
        prefix, length = self.forget.get("prefix_tokens", prefix), self.forget.get("sequence_tokens", length)
        model = {"id": given.model, "tokenizer": given.tokenizer} if given.tokenizer else given.model
        holdout = flow(named_source(given.unseen, given.field)) if given.unseen else ""
        models = ", ".join(flow(dict(entry)) for entry in given.models) or flow(model)
        parts = {"models": models, "forget": flow(dict(self.forget)), "holdout": holdout}
        return parts | {"prefix_tokens": prefix, "continuation_tokens": length - prefix}


def read_given(given: Given, most_texts: int) -> ReadTexts:
    """Read the given texts, at most so many unless the user gave a number; open settings follow from their lengths."""
    model = resolving.resolve_original(given.model, given.tokenizer)
    loading.check_model(model)
    loading.check_tokenizer(model)
    block = named_source(given.texts, given.field)
    settings = {name: getattr(given, name) for name in LENGTHS if getattr(given, name) is not None}
    if block["source"] == MINIATURE:
        return ReadTexts(given, model, {**block, **settings}, ())
    usual = (sources.MINIATURE_TOKENS if is_miniature(model.id) else sources.DEFAULT_TOKENS)[1]
    if not given.prefix_tokens and (given.sequence_tokens or MIN_TOKENS) < MIN_TOKENS:
        raise DataError(f"--sequence-tokens is below {MIN_TOKENS}: say how long a beginning is with --prefix-tokens.")
    lengths = read_lengths(block, "forget", model, min(given.sequence_tokens or usual, loading.positions(model)))
    count, prefix = given.sequences or min(most_texts, len(lengths)), given.prefix_tokens
    prefix = prefix or choose_prefix(given.texts, lengths)
    cut = {"prefix_tokens": prefix, "sequence_tokens": given.sequence_tokens or max(lengths)}
    sample = {"sequences": count, "sample_seed": 0} if len(lengths) != count else {}
    return ReadTexts(given, model, {**block, **cut, **sample}, lengths)


def is_miniature(model_id: str) -> bool:
    """Return whether a model is one of the shipped miniatures or a replicate."""
    manifest = read_manifest(parse_path(model_id, ModelError).resolve())
    return manifest is not None or resolving.is_trained_on_miniature("perplexity", model_id)


def named_source(text: str, field: str = "text") -> dict[str, Any]:
    """Return the settings of a sweep file's source for a user's argument.

    Args:
        text: A file of texts or an array of token ids, by its ending; a folder of text files or of the Extraction
            Challenge; or `miniature`, the embedded corpus.
        field: Of JSON lines, or a table's column.

    Example:
        >>> named_source("miniature"), named_source("ids.npy")
        ({'source': 'miniature'}, {'source': 'npy', 'path': 'ids.npy'})
    """
    if text == MINIATURE:
        return {"source": MINIATURE}
    path = parse_path(text)
    if path.is_dir():
        is_challenge = any((path / name).is_file() for name in sources.CHALLENGE_FILES)
        if is_challenge or any(path.glob("*.txt")):
            return {"source": "extraction_challenge" if is_challenge else "text", "path": text}
        lacks = f"*.txt or {', '.join(sources.CHALLENGE_FILES)}"
        raise DataError(f"{text} is a folder without {lacks}: give a file of texts.")
    if kind := ENDINGS.get(path.suffix):
        field_setting = {"field": field} if field != "text" and kind in ("jsonl", "csv") else {}
        return {"source": kind, "path": text, **field_setting}
    missing = "" if path.exists() else " (and there is no such file)"
    raise DataError(
        f'{quote_text(text)} has no ending that says what it is{missing}: give texts as .jsonl, one {{"{field}": ...}} '
        f"a line, as .csv with a column '{field}', as .txt with an empty line between two, or token ids as .npy."
    )


@contextmanager
def faults_of_given(given: Given) -> Iterator[None]:
    """Turn the faults of a drafted sweep file into a DataError about the user's arguments."""
    try:
        yield
    except ConfigError as error:
        reasons = []
        for fault in error.faults:
            section = fault.path.partition(".")[2].partition(".")[0]
            name = {"forget": given.texts, "holdout": given.unseen, "0": given.model}.get(section, fault.path)
            if section == "forget" and (option := fault.path.rpartition(".")[2]) in LENGTHS:
                name = f"--{option.replace('_', '-')}"
            reasons.append(fault.reason if not name or name in fault.reason else f"{name}: {fault.reason}")
        raise DataError("\n".join(reasons)) from error


def read_lengths(block: Mapping[str, Any], role: sources.Role, model: Checkpoint, most: int) -> list[int]:
    """Return the number of tokens of a source's texts, each counted up to `most`."""
    source = Source(**block, sequence_tokens=most, prefix_tokens=1)
    tokenizer, vocabulary = loading.load_tokenizer(model), loading.vocabulary(model)
    return [len(row) for row in sequences.read_rows(source, role, tokenizer, vocabulary, 1)]


def choose_prefix(name: str, lengths: Sequence[int]) -> int:
    """Return half of the shortest length, so that every continuation is at least as long.

    Example:
        >>> choose_prefix("a.jsonl", (60, 200, 190))
        30
    """
    if short := [tokens for tokens in lengths if tokens < MIN_TOKENS]:
        raise DataError(
            f"{name}: {len(short)} of {len(lengths)} texts have fewer than {MIN_TOKENS} tokens (the shortest has "
            f"{min(short)}, the median {median_low(lengths)}), too few for a beginning that identifies a text. Remove "
            "or join such texts, or say how long a beginning is with --prefix-tokens."
        )
    return min(lengths) // 2
