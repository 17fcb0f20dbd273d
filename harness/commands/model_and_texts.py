"""The model and the texts that `lethe audit` and `lethe init` are given, as settings of a sweep file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from harness.base.paths import named_argument
from harness.base.terminal import tell

if TYPE_CHECKING:
    from harness.contracts import Checkpoint
    from harness.drafting.given_texts import GivenTexts


def add_model_and_texts(parser: argparse.ArgumentParser) -> None:
    """Add the model, the texts and how they are read."""
    parser.add_argument("model", type=named_argument, help="a miniature's name, a folder or a hub id")
    about = 'JSON lines ({"text": ...}), token ids (.npy), or "miniature" for the embedded forget set'
    parser.add_argument("texts", type=named_argument, help=about)
    about = "texts of the same kind that the model never saw, for comparison"
    parser.add_argument("--unseen", type=named_argument, help=about)
    parser.add_argument(
        "--field", default="text", help="the field of each JSON line that has the text (default: %(default)s)"
    )
    about = "the folder of the model's tokenizer, if it is not with the model"
    parser.add_argument("--tokenizer", type=named_argument, help=about)
    about = "how many tokens of each text the model is given (default: half of the shortest text)"
    parser.add_argument("--prefix-tokens", type=int, help=about)


def read_model_and_texts(
    arguments: argparse.Namespace, most_texts: int, *, sequences: int | None = None, sequence_tokens: int | None = None
) -> tuple[Checkpoint, GivenTexts, dict[str, Any]]:
    """Read what the arguments name; print a warning if the texts look odd to the model's tokenizer.

    Args:
        arguments: As `add_model_and_texts` has them.
        most_texts: How many texts are used unless `sequences` says otherwise.
        sequences: How many texts; None: `most_texts`, or all there are.
        sequence_tokens: Where longer texts are cut.

    Returns:
        The model, the texts, and parts of a sweep file: `model`, `forget` and `holdout` as YAML, `continuation_tokens`.

    Raises:
        DataError: The texts cannot be used.
        ModelError: The model or its tokenizer cannot be loaded.
    """
    from harness.data.sections import MINIATURE_TOKENS
    from harness.drafting.file_templates import flow
    from harness.drafting.given_texts import given_texts, named_source
    from harness.models.loading import check_model
    from harness.models.resolving import resolve_original

    model = resolve_original(arguments.model, arguments.tokenizer or None)
    check_model(model)
    texts = given_texts(
        model,
        arguments.texts,
        field=arguments.field,
        most_texts=most_texts,
        sequences=sequences,
        prefix_tokens=arguments.prefix_tokens,
        sequence_tokens=sequence_tokens,
    )
    if texts.warning:
        tell(texts.warning, is_error=True)
    prefix, length = MINIATURE_TOKENS
    forget = {"prefix_tokens": prefix, "sequence_tokens": length, **texts.forget}
    with_tokenizer = {"id": arguments.model, "tokenizer": arguments.tokenizer}
    settings = {
        "model": flow(with_tokenizer if arguments.tokenizer else arguments.model),
        "forget": flow(dict(texts.forget)),
        "continuation_tokens": forget["sequence_tokens"] - forget["prefix_tokens"],
        "holdout": flow(named_source(arguments.unseen, arguments.field)) if arguments.unseen else "",
    }
    return model, texts, settings
