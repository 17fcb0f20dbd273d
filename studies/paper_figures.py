"""The figures of the paper's appendix, from the formulas of the losses and from a head's attention.

    python -m studies.paper_figures losses --vocabulary 50257
    python -m studies.paper_figures attention --model miniature-m --block L1.W_q.H0 --text-file letter.txt

With `--patch results/artifacts/erased/POINT` the figure also has the attention after erasing, and the difference

`--out FILE.png` (.pdf, .svg) says where to. The attention's picture contains the text, and no log does.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

import numpy as np
import pandas as pd
import torch
from matplotlib import colormaps
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from numpy.typing import NDArray
from scipy.optimize import brentq

from harness.analysis.table import csv_text
from harness.base.files import write_whole
from harness.base.messages import tell
from harness.contracts import Model
from harness.errors import DataError, LetheError, ModelError
from harness.models.adapters import PATCH_FILE, apply_patch
from harness.models.blocks import block_place
from harness.models.loading import check_model, load_model, load_tokenizer, positions
from harness.models.resolving import resolve_model
from harness.models.tokenizing import decoded, token_lists
from harness.reporting.style import dress, panel_title, rendered, without_mathtext

PANELS = {
    "As the paper compares them: a loss's term in p": {"nll": "NLL: −log p", "entropy_term": "EM: p log p"},
    "As the paper compares them: the derivative in p": {
        "nll_derivative": "NLL: −1/p",
        "entropy_term_derivative": "EM: log p + 1",
    },
    "What erasing minimises, of a whole prediction": {
        "label_smoothing_mean": "label smoothing / V",
        "log_p": "gradient ascent: log p, without a minimum",
        "negative_entropy": "EM: Σ p log p",
    },
    "In the logits: L1 norm of the gradient": {
        "label_smoothing_gradient_l1": "label smoothing as printed: 2 |V p − 1|",
        "label_smoothing_mean_gradient_l1": "label smoothing / V: 2 |p − 1/V|",
        "nll_gradient_l1": "NLL, gradient ascent: 2 (1 − p)",
        "negative_entropy_gradient_l1": "EM: 2 p (1 − p) |log(p (V − 1) / (1 − p))|",
    },
}


def loss_curves(vocabulary: int) -> pd.DataFrame:
    """Return the losses and their gradients by p, the label's probability.

    The other V − 1 tokens share 1 − p evenly. The paper compares derivatives in p. What is trained are logits, and
    there ∂p_k/∂h_j = p_k (1[k = j] − p_j) cancels the 1/p. Label smoothing is at γ = 1: as printed (a sum of V terms)
    and as a mean.

    Source: EMSO paper, equation 1, section 3.3 and appendix "Difference in Minimizer".

    Example:
        >>> curves = loss_curves(4)
        >>> curves.loc[curves["negative_entropy"].idxmin(), "p"].round(1)
        np.float64(0.3)
    """
    if vocabulary < 2:
        raise DataError(f"a vocabulary of {vocabulary} leaves nothing to predict: give --vocabulary 2 or more.")
    end = np.log(100.0 * vocabulary)
    p = 1 / (1 + np.exp(-np.linspace(-end, end, 801)))
    other = (1 - p) / (vocabulary - 1)
    curves = {"p": p, "nll": -np.log(p), "nll_derivative": -1 / p, "log_p": np.log(p), "entropy_term": p * np.log(p)}
    curves |= {"entropy_term_derivative": np.log(p) + 1, "nll_gradient_l1": 2 * (1 - p)}
    curves["negative_entropy"] = p * np.log(p) + (1 - p) * np.log(other)
    curves["negative_entropy_gradient_l1"] = 2 * p * (1 - p) * np.abs(np.log(p / other))
    curves["label_smoothing"] = -(np.log(p) + (vocabulary - 1) * np.log(other))
    curves["label_smoothing_gradient_l1"] = 2 * np.abs(vocabulary * p - 1)
    for name in ("label_smoothing", "label_smoothing_gradient_l1"):
        curves[name.replace("smoothing", "smoothing_mean")] = curves[name] / vocabulary
    return pd.DataFrame(curves)


def entropy_exceeds_nll_from(vocabulary: int) -> float:
    """Return the p above which EM's gradient in the logits has the larger L1 norm, and below which NLL's has.

    Example:
        >>> round(entropy_exceeds_nll_from(50257), 3)
        0.114
    """
    return float(brentq(lambda p: p * np.log(p * (vocabulary - 1) / (1 - p)) - 1, 1 / vocabulary, 1 - 1e-12))


def loss_figure(curves: pd.DataFrame) -> Figure:
    """Return four panels: losses and derivatives in p, then whole losses and gradients in the logits."""
    figure = Figure(figsize=(11.0, 8.0), layout="constrained")
    axes = list(figure.subplots(2, 2).flat)
    for place, (ax, (title, lines)) in enumerate(zip(axes, PANELS.items(), strict=True)):
        for column, label in lines.items():
            ax.plot(curves["p"], curves[column], linewidth=1.8, label=label)
        panel_title(ax, title)
        dress(ax)
        ax.set_xlabel("p of the label token")
        ax.legend(frameon=False, fontsize=8.5)
        if place > 1:
            ax.set_xscale("logit")
            ax.minorticks_off()
    axes[0].set_ylim(-0.7, 6.0)
    axes[1].set_ylim(-30.0, 3.0)
    axes[3].set_yscale("log")
    return figure


def attention_weights(model: Model, tokens: Sequence[int], block: str) -> NDArray[np.float32]:
    """Return weights_QK of the head that a block (`L1.W_q.H0`) belongs to: softmax of q·k, as the model computes it.

    Raises:
        ModelError: The block is no single head's, or the model has none of this name.
    """
    place, layers, heads = block_place(block), model.config.num_hidden_layers, model.config.num_attention_heads
    if place is None or place.head is None or place.is_group or place.layer >= layers or place.head >= heads:
        names = f"L0.W_q.H0 to L{layers - 1}.W_q.H{heads - 1}"
        raise ModelError(f"no head of this model has a block '{block}': name one of {names}.")
    with torch.inference_mode():
        attentions = model(torch.tensor([list(tokens)]), output_attentions=True, use_cache=False).attentions
    weights_QK: NDArray[np.float32] = attentions[place.layer][0, place.head].float().numpy()
    return weights_QK


def attention_figure(
    title: str, tokens: Sequence[str], before_QK: NDArray[np.float32], after_QK: NDArray[np.float32] | None = None
) -> Figure:
    """Return a heat map of query tokens × key tokens; with `after_QK` also that one's, and their difference."""
    maps = {"original": before_QK}
    if after_QK is not None:
        maps |= {"after erasing": after_QK, "after − before": after_QK - before_QK}
    side = float(np.clip(0.25 * len(tokens), 2.4, 12.0))
    figure = Figure(figsize=(len(maps) * (side + 1.7), side + 1.5), layout="constrained")
    figure.suptitle(without_mathtext(title), fontsize=11)
    # What the font lacks is drawn as □: matplotlib's warning would name it, and the text may be private.
    glyphs = get_font(findfont("DejaVu Sans")).get_charmap()
    texts = [token.translate(str.maketrans({" ": "·", "\n": "↵", "\t": "⇥"})) for token in tokens]
    labels = ["".join(character if ord(character) in glyphs else "□" for character in token) for token in texts]
    for ax, (name, values_QK) in zip(figure.subplots(1, len(maps), squeeze=False).flat, maps.items(), strict=True):
        most = float(np.abs(values_QK).max()) or 1.0
        is_change = name == "after − before"
        # Most weights of a long text are small: on a linear scale only a few dark cells would be seen.
        scale = Normalize(-most, most) if is_change else PowerNorm(0.5, 0.0, 1.0)
        colours = colormaps["RdBu_r" if is_change else "Blues"].with_extremes(bad="#ececec")
        hidden_QK = np.ma.masked_where((before_QK == 0) & (values_QK == 0), values_QK)
        image = ax.imshow(hidden_QK, cmap=colours, norm=scale, interpolation="nearest")
        figure.colorbar(image, ax=ax, shrink=0.7)
        panel_title(ax, name)
        ax.set_xticks(range(len(tokens)), [*map(without_mathtext, labels)], rotation=90, fontsize=8)
        ax.set_yticks(range(len(tokens)), [*map(without_mathtext, labels)], fontsize=8)
        ax.set_xlabel("key token (grey: not seen by the query)")
        ax.set_ylabel("query token")
    return figure


def draw_losses(arguments: argparse.Namespace) -> Figure:
    """Return the losses' figure; write its numbers next to it, and print where EM's gradient is the larger one."""
    curves = loss_curves(arguments.vocabulary)
    tell(write_whole(arguments.out.with_suffix(".csv"), csv_text(curves), "the numbers of a figure"))
    from_p, highest = entropy_exceeds_nll_from(arguments.vocabulary), curves["negative_entropy_gradient_l1"].max()
    tell(f"EM's gradient in the logits is at most {highest:.3g}, and exceeds NLL's wherever p > {from_p:.2g}.")
    return loss_figure(curves)


def draw_attention(arguments: argparse.Namespace) -> Figure:
    """Return the figure of a head's attention, before and, if there is one, after an erasure."""
    original = resolve_model(arguments.model)
    check_model(original)
    text = arguments.text_file.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
    tokenizer = load_tokenizer(original)
    [tokens] = token_lists(tokenizer, [text])
    if not text or len(tokens) > positions(original):
        raise DataError(f"the text has {len(tokens)} tokens: give 1 to {positions(original)}.")
    strings = decoded(tokenizer, [[token] for token in tokens], special=True)
    before_QK, after_QK = attention_weights(load_model(original), tokens, arguments.block), None
    if arguments.patch:
        erased = apply_patch(load_model(original), original.digest, arguments.patch / PATCH_FILE)
        after_QK = attention_weights(erased, tokens, arguments.block)
        tell(f"Erasing changed an attention weight by at most {np.abs(after_QK - before_QK).max():.2g}.")
    return attention_figure(f"{Path(original.id).name}: attention at {arguments.block}", strings, before_QK, after_QK)


def main(argv: Sequence[str] | None = None) -> int:
    """Draw one figure; return 2 if it cannot be drawn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    figures = parser.add_subparsers(dest="figure", required=True)
    losses, attention = figures.add_parser("losses"), figures.add_parser("attention")
    losses.add_argument("--vocabulary", type=int, default=50257)
    attention.add_argument("--model", required=True)
    attention.add_argument("--block", required=True)
    attention.add_argument("--text-file", type=Path, required=True)
    attention.add_argument("--patch", type=Path, help="of this model: results/artifacts/erased/<point id>")
    for each in (losses, attention):
        each.add_argument("--out", type=Path, default=Path("results/figures") / f"{each.prog.split()[-1]}.png")
    arguments = parser.parse_args(argv)
    try:
        figure = draw_losses(arguments) if arguments.figure == "losses" else draw_attention(arguments)
        kind = cast("Literal['png', 'pdf', 'svg']", arguments.out.suffix[1:])
        tell(write_whole(arguments.out, rendered(figure, kind), "a figure"))
    except (LetheError, OSError) as error:
        tell(str(error), is_error=True)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
