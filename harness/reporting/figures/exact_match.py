"""The figure of what is left of memorised and of other sequences: over the epochs, and one against the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from harness.analysis.sequences.exact_match import (
    GROUP_NAMES,
    GROUPS,
    AgreementCurve,
    Group,
    ModelAgreement,
    group_text,
)
from harness.reporting.figures.style import FAINT, HOLLOW, INK, REFERENCE_STYLES, Styles, without_mathtext
from harness.specs import ORIGINAL, RETRAINED


def agreement_figure(of_models: Sequence[ModelAgreement], of_variant: Styles) -> Figure | None:
    """Return a row of panels for each model: each group over the strength that trials walk through, and both together.

    Without a trial that walks through several strengths the last panel stands alone. None without any curve.

    Source: EMSO paper, figure 5.
    """
    drawn = [agreement for agreement in of_models if agreement.curves]
    if not drawn:
        return None
    is_walked = any(_walked(agreement) for agreement in drawn)
    columns = len(GROUPS) + 1 if is_walked else 1
    figure = Figure(figsize=(3.9 * columns, 3.5 * len(drawn) + 0.8), layout="constrained")
    axes = figure.subplots(len(drawn), columns, squeeze=False)
    for of_model, agreement in zip(axes, drawn, strict=True):
        for ax, group in zip(of_model[:-1], GROUPS, strict=False):
            _draw_group(ax, agreement, group, of_variant)
        _draw_both(of_model[-1], agreement, of_variant)
        if len(drawn) > 1:
            of_model[0].set_ylabel(f"{without_mathtext(agreement.model)}\n{of_model[0].get_ylabel()}", fontsize=9.5)
    _legend(figure, drawn, of_variant)
    return figure


def _walked(agreement: ModelAgreement) -> list[AgreementCurve]:
    """Return the curves over the dial that trials walk through; one of a single epoch is among them."""
    dial = next((curve.strength_name for curve in agreement.curves if curve.is_walked), None)
    return [curve for curve in agreement.curves if curve.strength_name == dial]


def _draw_group(ax: Axes, agreement: ModelAgreement, group: Group, of_variant: Styles) -> None:
    lengths = agreement.lengths[group]
    for curve in _walked(agreement):
        colour, marker = of_variant[curve.variant]
        xs, left = [at.strength for at in curve.points], [at.by_group[group] for at in curve.points]
        lows = [mean.tokens if math.isnan(mean.low) else mean.low for mean in left]
        highs = [mean.tokens if math.isnan(mean.low) else mean.high for mean in left]
        ax.fill_between(xs, lows, highs, color=colour, alpha=0.13, linewidth=0, zorder=2)
        _draw_line(ax, curve, xs, [mean.tokens for mean in left], colour, marker)
    if agreement.retrained:
        style: dict[str, Any] = {"color": REFERENCE_STYLES[RETRAINED][2], "linewidth": 1.0, "linestyle": (0, (1, 2))}
        ax.axhline(agreement.retrained.by_group[group].tokens, zorder=1, **style)
    walked = _walked(agreement)
    ax.set_xlabel(walked[0].strength_name if walked else "", fontsize=10, color=INK)
    ax.set_ylabel("tokens as the original says them", fontsize=9, color=INK)
    _dress(ax, f"{GROUP_NAMES[group]}: {group_text(lengths)}")
    ax.set_ylim(0, 1.05 * lengths.tokens)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_both(ax: Axes, agreement: ModelAgreement, of_variant: Styles) -> None:
    memorized, other = GROUPS
    for curve in agreement.curves:
        colour, marker = of_variant[curve.variant]
        xs, ys = ([at.by_group[group].tokens for at in curve.points] for group in GROUPS)
        _draw_line(ax, curve, xs, ys, colour, marker)
    for name, tokens in (
        (ORIGINAL, [agreement.lengths[group].tokens for group in GROUPS]),
        (RETRAINED, [agreement.retrained.by_group[group].tokens for group in GROUPS] if agreement.retrained else None),
    ):
        if tokens:
            marker, size, colour = REFERENCE_STYLES[name]
            ax.plot(*tokens, marker, markersize=size * 0.8, color=colour, markeredgecolor="white", zorder=6)
    ax.set_xlabel("memorised: tokens left (← more is forgotten)", fontsize=9, color=INK)
    ax.set_ylabel("not memorised: tokens left (↑ more is kept)", fontsize=9, color=INK)
    _dress(ax, "What is kept, where as much is forgotten")
    ax.set_xlim(-0.03 * agreement.lengths[memorized].tokens, 1.05 * agreement.lengths[memorized].tokens)
    ax.set_ylim(0, 1.05 * agreement.lengths[other].tokens)


def _draw_line(
    ax: Axes, curve: AgreementCurve, xs: Sequence[float], ys: Sequence[float], colour: str, marker: str
) -> None:
    ax.plot(xs, ys, color=colour, linewidth=1.5, alpha=0.8, zorder=3)
    for at, x, y in zip(curve.points[1:], xs[1:], ys[1:], strict=True):
        style = HOLLOW if at.collapsed else {"color": colour, "markeredgecolor": "white", "markeredgewidth": 0.7}
        ax.plot(x, y, marker, markersize=6, zorder=4, **style)


def _dress(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
    ax.grid(color="#eeeeee", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", labelsize=8.5, color=FAINT, labelcolor=INK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(FAINT)


def _legend(figure: Figure, drawn: Sequence[ModelAgreement], of_variant: Styles) -> None:
    labels = {curve.variant: curve.label for agreement in drawn for curve in agreement.curves}
    handles = []
    for name in (ORIGINAL, RETRAINED):
        if name == ORIGINAL or any(agreement.retrained for agreement in drawn):
            marker, size, colour = REFERENCE_STYLES[name]
            handles.append(
                Line2D(
                    [], [], marker=marker, markersize=size * 0.75, linestyle="", color=colour, label=name.capitalize()
                )
            )
    for variant, label in labels.items():
        colour, marker = of_variant[variant]
        style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 6, "linewidth": 1.5}
        handles.append(Line2D([], [], label=without_mathtext(label), **style))
    if any(at.collapsed for agreement in drawn for curve in agreement.curves for at in curve.points):
        handles.append(Line2D([], [], marker="o", linestyle="", markersize=6, label="collapsed", **HOLLOW))
    dotted = " Dotted: the retrained model." if any(agreement.retrained for agreement in drawn) else ""
    figure.legend(
        handles=handles,
        title=f"Bands: 95 % interval over the sequences (and seeds).{dotted}",
        title_fontsize=8,
        loc="outside lower center",
        ncols=min(len(handles), 8),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )
