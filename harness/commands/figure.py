"""Draw the paper's appendix figures, from the formulas of the losses and from a head's attention.

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

    from harness.contracts import Checkpoint, Model

Kind = Literal["png", "pdf", "svg"]

FOLDER = Path("results/figures")
"""Where a picture goes unless --out says otherwise: `results` is not under version control."""


class FigureCommand(Command):
    """`lethe figure`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add a parser for each figure."""
        figures = parser.add_subparsers(dest="figure", required=True, metavar="FIGURE")
        losses = figures.add_parser("losses", help="minimiser and gradient of EM, label smoothing and NLL")
        losses.description = (
            "Draw the erasing losses and their gradients, as the paper compares them and in the logits, and print "
            "which is larger where. The numbers are written beside the picture, as CSV."
        )
        about = "FILE.png, .pdf or .svg (%(default)s)"
        losses.add_argument("--out", type=path_argument, default=FOLDER / "losses.png", help=about)
        losses.add_argument("--vocabulary", type=int, default=50257, help="number of tokens (%(default)s, GPT-Neo's)")
        attention = figures.add_parser("attention", help="the key-query pattern of a head over a text")
        attention.description = (
            "Draw which earlier tokens a head attends to: the softmax of q·k over the keys that each token may see, as "
            "the model itself computes it. With an erased model: before, after, and the difference. The picture "
            "contains the text, and no log does; --text-file keeps the text out of the shell's history too."
        )
        about = "a miniature's name, a folder or a hub id"
        attention.add_argument("--model", type=named_argument, required=True, help=about)
        about = "the folder of the model's tokenizer, if it is not with the model"
        attention.add_argument("--tokenizer", type=named_argument, help=about)
        about = "W_q, W_k, W_v or W_o of the head: L0.W_v.H3, counted from 0"
        attention.add_argument("--block", required=True, help=about)
        text = attention.add_mutually_exclusive_group(required=True)
        text.add_argument("--text", help="a text, drawn token by token in the picture")
        about = "a UTF-8 file with the text; one line end at its end is ignored"
        text.add_argument("--text-file", type=path_argument, help=about)
        erased = attention.add_mutually_exclusive_group()
        erased.add_argument("--patch", type=path_argument, help="of this model: results/artifacts/erased/<point id>")
        erased.add_argument("--erased", type=path_argument, help="the whole erased model, as a checkpoint folder")
        about = f"FILE.png, .pdf or .svg ({FOLDER}/attention_<model>_<block>.png)"
        attention.add_argument("--out", type=path_argument, help=about)

    def run(self, arguments: argparse.Namespace) -> int:
        """Draw one figure."""
        return draw_losses(arguments) if arguments.figure == "losses" else draw_attention(arguments)


def draw_losses(arguments: argparse.Namespace) -> int:
    """Draw the losses, write their numbers beside the picture, and print what is larger where."""
    kind = _picture_kind(arguments.out)
    from harness.base.csv_text import csv_text
    from harness.reporting.figures import loss_curves
    from harness.reporting.figures.losses import loss_figure

    curves = loss_curves.loss_curves(arguments.vocabulary)
    statements = loss_curves.statements(arguments.vocabulary)
    _write_picture(loss_figure(curves, arguments.vocabulary, statements), arguments.out, kind)
    numbers = arguments.out.with_suffix(".csv")
    write_whole(numbers, csv_text(curves), "the numbers of a figure")
    tell(*statements, arguments.out, numbers)
    return 0


def draw_attention(arguments: argparse.Namespace) -> int:
    """Draw the attention of the head that a block belongs to, before and, if there is one, after an erasure."""
    out: Path = arguments.out or FOLDER / f"attention_{Path(arguments.model).name}_{arguments.block}.png"
    kind = _picture_kind(out)
    from harness.models.attention import attention_weights, head_of_block, visible_keys
    from harness.models.loading import architecture, check_model, load_model
    from harness.models.resolving import resolve_model
    from harness.reporting.figures.attention import attention_figure

    original = resolve_model(arguments.model, arguments.tokenizer)
    check_model(original)
    head = head_of_block(architecture(original), arguments.block)
    text = _read_text(arguments.text_file) if arguments.text is None else arguments.text
    tokens, strings = read_tokens(original, text)
    before_QK = attention_weights(load_model(original), tokens, head)
    visible_QK = visible_keys(len(tokens), head)
    reach = "global" if head.window is None else f"local, the last {head.window} tokens"
    title = f"{Path(original.id).name}: attention weights of layer {head.layer}, head {head.index} ({reach})"
    after = most = None
    if folder := arguments.patch or arguments.erased:
        erased = _load_erased(original, folder, is_patch=arguments.patch is not None)
        after_QK = attention_weights(erased, tokens, head)
        after, most = after_QK.numpy(), float((after_QK - before_QK).abs().max())
    _write_picture(attention_figure(title, strings, visible_QK.numpy(), before_QK.numpy(), after), out, kind)
    if most:
        tell(f"Erasing changed an attention weight by at most {most:.2g}.")
    elif most is not None:
        tell(
            "Erasing changed no attention weight here. They depend on this head's W_q and W_k and on what is below "
            f"layer {head.layer}; W_v and W_o of the same layer, its MLP and everything above come after them."
        )
    tell(out)
    return 0


def _read_text(file: Path) -> str:
    try:
        return read_regular(file, "the text").decode().removesuffix("\n")
    except FileNotFoundError as error:
        raise DataError(f"the text file {file} cannot be read: there is no such file.") from error
    except UnicodeDecodeError:
        # Without its cause, which holds the bytes.
        raise DataError(f"the text file {file} is not UTF-8: save it as UTF-8.") from None


def read_tokens(model: Checkpoint, text: str) -> tuple[list[int], list[str]]:
    """Return the text's token ids as the model reads them, and each token as text.

    Raises:
        DataError: The text is empty or too long, or the tokenizer is another model's.
    """
    from harness.models.loading import load_tokenizer, positions, vocabulary
    from harness.models.tokenizing import token_lists
    from harness.toolkit.texts import decoded

    tokenizer = load_tokenizer(model)
    [tokens] = token_lists(tokenizer, [text])
    if not text:
        raise DataError("the text is empty: give at least one token.")
    if len(tokens) > positions(model):
        raise DataError(f"the text is {len(tokens)} tokens long, and '{model.id}' reads at most {positions(model)}.")
    if max(tokens) >= vocabulary(model):
        raise DataError(
            f"the text has the token id {max(tokens)}, and '{model.id}' knows 0 to {vocabulary(model) - 1}: "
            "the tokenizer is another model's."
        )
    return tokens, decoded(tokenizer, [[token] for token in tokens], special=True)


def _load_erased(original: Checkpoint, folder: Path, *, is_patch: bool) -> Model:
    """Return the erased model that a folder holds: whole, or as a patch of the original."""
    from harness.models.loading import ARCHITECTURE, architecture, load_model
    from harness.models.patch import PATCH_FILE, load_patched
    from harness.models.resolving import resolve_model
    from harness.records.artifacts import check_intact

    check_intact(folder)
    if is_patch:
        return load_patched(original, folder)
    if not folder.is_dir():
        raise ModelError(f"no erased model at {folder}: name its checkpoint folder, as `lethe export` writes it.")
    if (folder / PATCH_FILE).is_file():
        raise ModelError(f"{folder} holds a patch: name it with --patch.")
    erased = resolve_model(str(folder), original.tokenizer)
    ours, theirs = architecture(original), architecture(erased)
    if other := [name for name in ARCHITECTURE if ours[name] != theirs[name]]:
        differing = ", ".join(f"{name} ({theirs[name]} there, {ours[name]} here)" for name in other)
        raise ModelError(f"{folder} is not an erased '{original.id}': its architecture differs in {differing}.")
    return load_model(erased)


def _picture_kind(out: Path) -> Kind:
    kind = out.suffix.removeprefix(".").lower()
    if kind not in get_args(Kind):
        raise DataError(f"a picture cannot be written as '{out.name}': name it FILE.png, FILE.pdf or FILE.svg.")
    return cast("Kind", kind)


def _write_picture(figure: Figure, out: Path, kind: Kind) -> None:
    from harness.reporting.figures.style import rendered

    write_whole(out, rendered(figure, kind), "a figure")


main = FigureCommand()
