"""`lethe figure`: the paper's appendix figures, from the formulas of the losses and from a head's attention.

    lethe figure losses
    lethe figure attention --model miniature-m --block L0.W_v.H3 --text "The form was signed by"
    lethe figure attention --model miniature-m --block L0.W_v.H3 --text-file letter.txt --patch ERASED

Exit codes: 0 drawn, 1 it cannot be written, 2 the arguments are wrong or the input cannot be drawn.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from harness.base.files import read_regular, write_whole
from harness.base.paths import named_argument, path_argument
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.errors import DataError, ModelError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from harness.contracts import Checkpoint
    from harness.models.attention import Head

Kind = Literal["png", "pdf", "svg"]

FOLDER = Path("results/figures")
"""Where a picture goes unless --out says otherwise: `results` is not under version control."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    figures = parser.add_subparsers(dest="figure", required=True, metavar="FIGURE")
    _add_losses(figures.add_parser("losses", help="minimiser and gradient of EM, label smoothing and NLL"))
    _add_attention(figures.add_parser("attention", help="the key-query pattern of a head over a text"))


def _run(arguments: argparse.Namespace) -> int:
    return losses(arguments) if arguments.figure == "losses" else attention(arguments)


def _add_losses(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Draw the losses of erasing and their gradients, as the paper compares them and in the logits, and say which "
        "is larger where. The numbers go beside the picture, as CSV."
    )
    parser.add_argument(
        "--out", type=path_argument, default=FOLDER / "losses.png", help="FILE.png, .pdf or .svg (%(default)s)"
    )
    parser.add_argument(
        "--vocabulary", type=int, default=50257, help="how many tokens there are (GPT-Neo's %(default)s)"
    )


def _add_attention(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Draw which earlier tokens a head attends to: the softmax of q·k over the keys that each token may see, as the "
        "model itself computes it. With an erased model: before, after, and the difference. The picture holds the "
        "text, and no log does; --text-file keeps it out of the shell's history too."
    )
    parser.add_argument("--model", type=named_argument, required=True, help="a miniature's name, a folder or a hub id")
    parser.add_argument(
        "--tokenizer", type=named_argument, help="the model's tokenizer folder, if it is not with the model"
    )
    parser.add_argument("--block", required=True, help="W_q, W_k, W_v or W_o of the head: L0.W_v.H3, counted from 0")
    text = parser.add_mutually_exclusive_group(required=True)
    text.add_argument("--text", help="drawn token by token in the picture")
    text.add_argument("--text-file", type=path_argument, help="the same from a UTF-8 file, without its last line end")
    erased = parser.add_mutually_exclusive_group()
    erased.add_argument("--patch", type=path_argument, help="of this model: results/artifacts/erased/<point id>")
    erased.add_argument("--erased", type=path_argument, help="the erased model whole, as a checkpoint folder")
    parser.add_argument(
        "--out", type=path_argument, help=f"FILE.png, .pdf or .svg ({FOLDER}/attention_<model>_<block>.png)"
    )


def losses(arguments: argparse.Namespace) -> int:
    """Draw the losses, write their numbers beside the picture, and print what is larger where."""
    kind = _picture_kind(arguments.out)
    from harness.base.csv_text import csv_text
    from harness.reporting.figures import loss_curves
    from harness.reporting.figures import losses as loss_figure

    curves = loss_curves.loss_curves(arguments.vocabulary)
    statements = loss_curves.statements(arguments.vocabulary)
    _write(loss_figure.loss_figure(curves, arguments.vocabulary, statements), arguments.out, kind)
    numbers = arguments.out.with_suffix(".csv")
    write_whole(numbers, csv_text(curves), "the numbers of a figure")
    tell(*statements, arguments.out, numbers)
    return 0


def attention(arguments: argparse.Namespace) -> int:
    """Draw the attention of the head that a block belongs to, before and, if there is one, after an erasure."""
    default = FOLDER / f"attention_{Path(arguments.model).name}_{arguments.block}.png"
    out: Path = arguments.out or default
    kind = _picture_kind(out)
    from harness.models.attention import attention_weights, head_of_block, visible_keys
    from harness.models.loading import architecture, check_model, load_model
    from harness.models.resolving import resolve_model
    from harness.reporting.figures import attention as attention_figure

    original = resolve_model(arguments.model, arguments.tokenizer)
    check_model(original)
    head = head_of_block(architecture(original), arguments.block)
    tokens, strings = _tokens(original, _text(arguments))
    model = load_model(original)
    before_QK, visible_QK = attention_weights(model, tokens, head), visible_keys(len(tokens), head)
    reach = "global" if head.window is None else f"local, the last {head.window} tokens"
    del model  # An erased model may be as large.
    after_QK = _after(arguments, original, tokens, head)
    title = f"{Path(original.id).name}: attention weights of layer {head.layer}, head {head.index} ({reach})"
    after = None if after_QK is None else after_QK.numpy()
    _write(attention_figure.attention_figure(title, strings, visible_QK.numpy(), before_QK.numpy(), after), out, kind)
    if after_QK is not None:
        tell(_change(before_QK, after_QK, head))
    tell(out)
    return 0


def _text(arguments: argparse.Namespace) -> str:
    if arguments.text is not None:
        return str(arguments.text)
    file: Path = arguments.text_file
    try:
        return read_regular(file, "the text").decode().removesuffix("\n")
    except FileNotFoundError as error:
        raise DataError(f"the text file {file} cannot be read: No such file.") from error
    except UnicodeDecodeError:
        # Without its cause, which holds the bytes.
        raise DataError(f"the text file {file} is not UTF-8: save it as UTF-8.") from None


def _tokens(model: Checkpoint, text: str) -> tuple[list[int], list[str]]:
    """Return the text's token ids as the model reads them, and each token as text."""
    from harness.models.loading import load_tokenizer, positions, vocabulary
    from harness.models.tokenizing import token_lists
    from harness.toolkit.texts import decoded

    tokenizer = load_tokenizer(model)
    [tokens] = token_lists(tokenizer, [text])
    if not text:
        raise DataError("the text is empty: give one of at least a token.")
    if len(tokens) > positions(model):
        raise DataError(f"the text is {len(tokens)} tokens long, and '{model.id}' reads {positions(model)} at most.")
    if max(tokens) >= vocabulary(model):
        raise DataError(
            f"the text has the token id {max(tokens)}, and '{model.id}' knows 0 to {vocabulary(model) - 1}: "
            "the tokenizer is another model's."
        )
    return tokens, decoded(tokenizer, [[token] for token in tokens], special=True)


def _after(arguments: argparse.Namespace, original: Checkpoint, tokens: list[int], head: Head) -> Tensor | None:
    """Return the head's attention in the erased model that the arguments name; None if they name none."""
    from harness.models.attention import attention_weights
    from harness.models.loading import ARCHITECTURE, architecture, load_model
    from harness.models.patch import load_patched
    from harness.models.resolving import resolve_model
    from harness.records.artifacts import check_intact

    folder: Path | None = arguments.patch or arguments.erased
    if folder is None:
        return None
    check_intact(folder)
    if arguments.patch:
        return attention_weights(load_patched(original, folder), tokens, head)
    if not folder.is_dir():
        raise ModelError(f"no erased model at {folder}: name its checkpoint folder, as `lethe export` writes it.")
    if (folder / "patch.safetensors").is_file():
        raise ModelError(f"{folder} holds a patch: name it with --patch.")
    erased = resolve_model(str(folder), original.tokenizer)
    ours, theirs = architecture(original), architecture(erased)
    if other := [name for name in ARCHITECTURE if ours[name] != theirs[name]]:
        differing = ", ".join(f"{name} ({theirs[name]} there, {ours[name]} here)" for name in other)
        raise ModelError(f"{folder} is not an erased '{original.id}': its architecture differs in {differing}.")
    return attention_weights(load_model(erased), tokens, head)


def _change(before_QK: Tensor, after_QK: Tensor, head: Head) -> str:
    """Return a sentence on how far the erasure moved the head's attention."""
    most = float((after_QK - before_QK).abs().max())
    if most:
        return f"Erasing moved an attention weight by {most:.2g} at most."
    return (
        "Erasing changed no attention weight here. They depend on this head's W_q and W_k and on what is below layer "
        f"{head.layer}; W_v and W_o of the same layer, its MLP and all that is above come after them."
    )


def _picture_kind(out: Path) -> Kind:
    kind = out.suffix.removeprefix(".").lower()
    if kind not in get_args(Kind):
        raise DataError(f"a picture cannot be written as '{out.name}': name it FILE.png, FILE.pdf or FILE.svg.")
    return cast("Kind", kind)


def _write(figure: Figure, out: Path, kind: Kind) -> None:
    from harness.reporting.figures.style import rendered

    write_whole(out, rendered(figure, kind), "a figure")


main = Command("figure", __doc__, _add_arguments, _run)
