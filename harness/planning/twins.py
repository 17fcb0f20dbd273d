"""Retrained models: whether each reads the sweep's texts as the model does that it is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from harness.base.digests import digest_of
from harness.contracts import Checkpoint, Sequences
from harness.data.paths import TOKEN_SOURCES
from harness.data.sequences import Utility, token_rows
from harness.errors import DataError, Fault, ModelError
from harness.models.loading import load_tokenizer, positions, vocabulary
from harness.models.resolving import with_own_tokenizer
from harness.planning.resolve import ResolvedModel
from harness.planning.texts import ROLES, Texts, load_texts, overlong


def twin_faults(models: Sequence[ResolvedModel], texts: Mapping[str, Texts]) -> Iterator[Fault]:
    """Yield why a retrained model cannot be measured on the token ids of the model that it is compared with.

    Args:
        models: The sweep's.
        texts: Each model's sources, by the model's path in the file.
    """
    for model in models:
        if model.retrained is None or model.path not in texts:
            continue
        path, sources = f"{model.path}.retrained", texts[model.path]
        try:
            twin = with_own_tokenizer(model.retrained)
            if positions(twin) < positions(model.checkpoint):
                yield from overlong(sources, twin)
            difference = _difference(model.checkpoint, twin, sources)
        except (DataError, ModelError) as error:
            yield Fault(path, f"cannot read the sweep's texts: {error}")
            continue
        if difference:
            yield Fault(
                path,
                f"has another tokenizer (in {twin.tokenizer}) than '{model.checkpoint.id}' (in "
                f"{model.checkpoint.tokenizer}): {difference}. It would be measured on token ids that are other texts "
                "to it. Name a model that was retrained with the same tokenizer, or leave retrained out.",
            )


def _difference(model: Checkpoint, twin: Checkpoint, sources: Texts) -> str:
    """Return where two models first read a text differently, without its words; '' where they never do."""
    if (twin.tokenizer, vocabulary(twin)) == (model.tokenizer, vocabulary(model)):
        return ""
    for role in (role for role in ROLES if role in sources):
        source = sources[role]
        theirs = load_texts(replace(source, digest=""), role, twin)
        if theirs.digest != source.digest:
            ours = load_texts(source, role, model)
            rows = token_rows(ours), token_rows(theirs)
            number = _first(*rows)
            at = _first(*(dict(enumerate(of_one)).get(number, []) for of_one in rows))
            return f"{_item(role, ours, number)} becomes other tokens, from the {at + 1}. on"
        # Ids that are given are the same to every tokenizer; what they spell may not be.
        spelt = [_decoded(each, theirs) for each in (model, twin)] if source.source in TOKEN_SOURCES else [[], []]
        if spelt[0] != spelt[1]:
            return f"the tokens of {_item(role, theirs, _first(*spelt))} spell another text"
    return ""


def _first(ours: Sequence[object], theirs: Sequence[object]) -> int:
    return next(number for number, pair in enumerate(zip_longest(ours, theirs)) if pair[0] != pair[1])


def _item(role: str, texts: Sequences | Utility, number: int) -> str:
    """Return what names a text: its number, and the id that its values have in the files of items."""
    rows = token_rows(texts) if isinstance(texts, Sequences) else texts.prompts_NT.tolist()
    return f"text {number + 1} of data.{role}" + (f" (item {digest_of(rows[number])})" if number < len(rows) else "")


def _decoded(model: Checkpoint, texts: Sequences | Utility) -> list[str]:
    decode = load_tokenizer(model).batch_decode
    return list(decode(token_rows(texts), skip_special_tokens=True, clean_up_tokenization_spaces=False))
