"""Texts that a command was given: their source, lengths and cuts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median_low
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.base.files import in_quotes, path_of
from harness.base.messages import tell
from harness.contracts import Checkpoint
from harness.data.rows import read_rows
from harness.data.sections import DEFAULT_TOKENS, MINIATURE_TOKENS
from harness.data.sources import CHALLENGE_FILES, TOKEN_SOURCES, Role
from harness.errors import ConfigError, DataError, ModelError
from harness.miniature import read_manifest
from harness.models.loading import check_model, check_tokenizer, load_tokenizer, positions, vocabulary
from harness.models.resolving import knows_only_the_miniature, resolve_original
from harness.settings import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def filled(template: str, **parts: object) -> str:
    """Return a template with its parts filled in."""
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


MINIATURE = "miniature"
"""Names the embedded corpus instead of a path."""
MIN_TOKENS = 16
"""A prefix and a continuation of 8 tokens each."""
SAMPLED_TEXTS = 64
"""Texts that show how a tokenizer reads them."""
MAX_UNKNOWN = 0.05
MIN_BYTES_PER_TOKEN = 2.0
"""Bytes a token below which the tokenizer does not fit the language; usual are four."""
MIN_VOCABULARY = 10_000
"""Tokens of a vocabulary below which few whole words fit in any language."""


class TextLengths(NamedTuple):
    """Lengths of texts by a model's tokenizer."""

    label: str
    """The texts' name in messages."""
    tokens_N: tuple[int, ...]
    """Tokens of each text, counted up to a maximum."""
    bytes_per_token: float
    """Bytes of UTF-8 per token."""

    @property
    def description(self) -> str:
        """Return the number of texts and their lengths."""
        shortest, longest = min(self.tokens_N), max(self.tokens_N)
        length = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
        return f"{len(self.tokens_N):,} text{'s' * (len(self.tokens_N) > 1)} of {length} tokens"

    def warning(self, vocabulary: int) -> str:
        """Return a warning about an unsuitable tokenizer, or ''."""
        if vocabulary < MIN_VOCABULARY or self.bytes_per_token >= MIN_BYTES_PER_TOKEN:
            return ""
        return (
            f"{self.label}: a token holds {self.bytes_per_token:.1f} bytes of these texts, and about 4 of a text in a "
            "language that its tokenizer knows. If they are in another language, what the model recites of them says "
            "little; if the tokenizer is another model's, name the right one with --tokenizer."
        )


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


class ReadTexts(NamedTuple):
    """The given texts as the forget set of the given model."""

    given: Given
    model: Checkpoint
    forget: Mapping[str, Any]
    """Settings of the sweep file."""
    lengths: TextLengths | None
    """Lengths of the texts; None for the embedded corpus, whose lengths are known."""
    sampled_of: int
    """Number of all texts, where not all are used; else 0."""

    def settings(self) -> dict[str, Any]:
        """Return parts of a sweep file: `model`, `forget` and `holdout` as YAML, and `continuation_tokens`."""
        given, (prefix, length) = self.given, MINIATURE_TOKENS
        cut = {"prefix_tokens": prefix, "sequence_tokens": length, **self.forget}
        return {
            "model": flow({"id": given.model, "tokenizer": given.tokenizer} if given.tokenizer else given.model),
            "forget": flow(dict(self.forget)),
            "continuation_tokens": cut["sequence_tokens"] - cut["prefix_tokens"],
            "holdout": flow(named_source(given.unseen, given.field)) if given.unseen else "",
        }


def read_given(given: Given, most_texts: int) -> ReadTexts:
    """Read the given texts, at most so many unless the user gave a number; open settings follow from their lengths.

    Raises:
        DataError: The texts cannot be read, or are too short.
        ModelError: The model or its tokenizer cannot be loaded, or the tokenizer is another model's.
    """
    model = resolve_original(given.model, given.tokenizer)
    check_model(model)
    check_tokenizer(model)
    block = named_source(given.texts, given.field)
    names = ("prefix_tokens", "sequence_tokens", "sequences")
    settings = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    if block["source"] == MINIATURE:
        return ReadTexts(given, model, {**block, **settings}, None, 0)
    most = min(given.sequence_tokens or usual_length(model), positions(model))
    lengths = read_lengths(block, "forget", load_tokenizer(model), vocabulary(model), most)
    if warning := lengths.warning(vocabulary(model)):
        tell(warning, is_error=True)
    total, count = len(lengths.tokens_N), given.sequences or most_texts
    cut = {
        "prefix_tokens": given.prefix_tokens or chosen_prefix(lengths),
        "sequence_tokens": given.sequence_tokens or max(lengths.tokens_N),
    }
    sample = {"sequences": count, "sample_seed": 0} if given.sequences or total > count else {}
    return ReadTexts(given, model, {**block, **cut, **sample}, lengths, total if count < total else 0)


def usual_length(model: Checkpoint) -> int:
    """Return the default length of texts: the Extraction Challenge's, or less for miniatures."""
    return (MINIATURE_TOKENS if is_miniature(model.id) else DEFAULT_TOKENS)[1]


def is_miniature(model_id: str) -> bool:
    """Return whether a model is one of the shipped miniatures or a replicate."""
    return (
        knows_only_the_miniature("perplexity", model_id)
        or read_manifest(path_of(model_id, ModelError).resolve()) is not None
    )


def named_source(text: str, field: str = "text") -> dict[str, Any]:
    """Return the settings of a sweep file's source for a user's argument.

    Args:
        text: A file of JSON lines or an array of token ids, by its ending; a folder of the Extraction Challenge; or
            `miniature`, the embedded corpus.
        field: Of the JSON lines.

    Raises:
        DataError: It is nothing of that.

    Example:
        >>> named_source("miniature"), named_source("ids.npy")
        ({'source': 'miniature'}, {'source': 'npy', 'path': 'ids.npy'})
    """
    if text == MINIATURE:
        return {"source": MINIATURE}
    path = path_of(text)
    if path.suffix == ".npy":
        return {"source": "npy", "path": text}
    if path.is_dir():
        if any((path / name).is_file() for name in CHALLENGE_FILES):
            return {"source": "extraction_challenge", "path": text}
        raise DataError(f"{text} is a folder without {', '.join(CHALLENGE_FILES)}: give one file of texts.")
    if path.suffixes[-1:] in ([".jsonl"], [".json"]) or path.name.endswith(".jsonl.gz"):
        return {"source": "jsonl", "path": text, **({} if field == "text" else {"field": field})}
    missing = "" if path.exists() else " (and there is no such file)"
    raise DataError(
        f'{in_quotes(text)} has no ending that says what it is{missing}: give texts as .jsonl, one {{"{field}": ...}} '
        "a line, or .jsonl.gz, or token ids as .npy."
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
            name = {"forget": given.texts, "holdout": given.unseen, "0": given.model}.get(section)
            reasons.append(fault.reason if not name or name in fault.reason else f"{name}: {fault.reason}")
        raise DataError("\n".join(reasons)) from error


def read_lengths(
    block: Mapping[str, Any], role: Role, tokenizer: PreTrainedTokenizerBase, vocabulary: int, most: int
) -> TextLengths:
    """Return the lengths of a source's texts, each counted up to `most` tokens.

    Raises:
        DataError: There is no text, one cannot be used, or the tokenizer does not know their language.
    """
    source = Source(**block, sequence_tokens=most, prefix_tokens=1)
    label = source.path or f"the miniature's {role} texts"
    if source.path and path_of(source.path).is_file() and not path_of(source.path).stat().st_size:
        raise DataError(f"{label} is empty: put at least one text into it.")
    rows = read_rows(source, role, tokenizer, vocabulary, 1)
    read = [row.tolist() for row in rows[:SAMPLED_TEXTS]]
    count = sum(map(len, read))
    size = sum(len(text.encode(errors="replace")) for text in tokenizer.batch_decode(read))
    unknown = tokenizer.unk_token_id
    share = sum(row.count(unknown) for row in read) / count if unknown is not None else 0.0
    if share > MAX_UNKNOWN:
        raise DataError(
            f"{label}: {share:.0%} of the tokens are '{tokenizer.unk_token}', which the tokenizer says of what it does "
            "not know. Give texts in a language of the model, or name its own tokenizer with --tokenizer."
        )
    is_text = source.source not in TOKEN_SOURCES
    return TextLengths(label, tuple(len(row) for row in rows), size / count if is_text else float("inf"))


def chosen_prefix(lengths: TextLengths) -> int:
    """Return half of the shortest length, so that every continuation is at least as long.

    Raises:
        DataError: A text is too short to be continued.

    Example:
        >>> chosen_prefix(TextLengths("a.jsonl", (60, 200, 190), 4.0))
        30
    """
    short = [tokens for tokens in lengths.tokens_N if tokens < MIN_TOKENS]
    if short:
        count, median = len(lengths.tokens_N), median_low(lengths.tokens_N)
        raise DataError(
            f"{lengths.label}: {len(short)} of {count} texts have fewer than {MIN_TOKENS} tokens (the shortest has "
            f"{min(short)}, the median {median}), too few for a beginning that identifies a text. Remove or "
            "join such texts, or say how long a beginning is with --prefix-tokens."
        )
    return min(lengths.tokens_N) // 2
