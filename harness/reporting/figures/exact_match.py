"""The figure of what is left of memorised and of other sequences: over the epochs, and one against the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.analysis.exact_match import (
    GROUP_NAMES,
    GROUPS,
    AgreementCurve,
    Group,
    ModelAgreement,
    group_text,
)
from harness.reporting.figures import style
from harness.specs import ORIGINAL, RETRAINED


def agreement_figure(of_models: Sequence[ModelAgreement], of_variant: style.Styles) -> Figure | None:
    """Return a row of panels for each model: each group over the strength that trials pass through, and both together.

    Without a trial that passes through several strengths the last panel stands alone. None without any curve.

    Source: EMSO paper, figure 5.
    """
    drawn = [agreement for agreement in of_models if agreement.curves]
    if not drawn:
        return None
    has_trajectories = any(_trajectories(agreement) for agreement in drawn)
    columns = len(GROUPS) + 1 if has_trajectories else 1
    figure = Figure(figsize=(3.9 * columns, 3.5 * len(drawn) + 0.8), layout="constrained")
    axes = figure.subplots(len(drawn), columns, squeeze=False)
    for of_model, agreement in zip(axes, drawn, strict=True):
        for ax, group in zip(of_model[:-1], GROUPS, strict=False):
            _draw_group(ax, agreement, group, of_variant)
        _draw_both(of_model[-1], agreement, of_variant)
        if len(drawn) > 1:
            of_model[0].set_ylabel(
                f"{style.without_mathtext(agreement.model)}\n{of_model[0].get_ylabel()}", fontsize=9.5
            )
    _add_legend(figure, drawn, of_variant)
    return figure


def _trajectories(agreement: ModelAgreement) -> list[AgreementCurve]:
    """Return the curves over the strength that trials pass through; one of a single epoch is among them."""
    dial = next((curve.strength_name for curve in agreement.curves if curve.is_cumulative), None)
    return [curve for curve in agreement.curves if curve.strength_name == dial]


def _draw_group(ax: Axes, agreement: ModelAgreement, group: Group, of_variant: style.Styles) -> None:
    lengths, curves = agreement.lengths[group], _trajectories(agreement)
    for curve in curves:
        strengths, tokens, lows, highs = [], [], [], []
        for point in curve.points:
            left = point.by_group[group]
            strengths.append(point.strength)
            tokens.append(left.tokens)
            lows.append(left.tokens if math.isnan(left.low) else left.low)
            highs.append(left.tokens if math.isnan(left.low) else left.high)
        colour = of_variant[curve.variant][0]
        ax.fill_between(strengths, lows, highs, color=colour, alpha=0.13, linewidth=0, zorder=2)
        _draw_line(ax, curve, strengths, tokens, of_variant)
    if agreement.retrained:
        tokens_of_retrained = agreement.retrained.by_group[group].tokens
        colour = style.REFERENCE_STYLES[RETRAINED][2]
        ax.axhline(tokens_of_retrained, zorder=1, color=colour, linewidth=1.0, linestyle=style.DOTTED)
    ax.set_xlabel(curves[0].strength_name if curves else "", fontsize=10, color=style.INK)
    ax.set_ylabel("tokens as the original says them", fontsize=9, color=style.INK)
    style.panel_title(ax, f"{GROUP_NAMES[group]}: {group_text(lengths)}")
    style.dress(ax)
    ax.set_ylim(0, 1.05 * lengths.tokens)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_both(ax: Axes, agreement: ModelAgreement, of_variant: style.Styles) -> None:
    memorized, other = GROUPS
    for curve in agreement.curves:
        forgotten, kept = [], []
        for point in curve.points:
            forgotten.append(point.by_group[memorized].tokens)
            kept.append(point.by_group[other].tokens)
        _draw_line(ax, curve, forgotten, kept, of_variant)
    lengths = agreement.lengths
    references = {ORIGINAL: (lengths[memorized].tokens, lengths[other].tokens)}
    if agreement.retrained:
        by_group = agreement.retrained.by_group
        references[RETRAINED] = by_group[memorized].tokens, by_group[other].tokens
    for method, (x, y) in references.items():
        marker, size, colour = style.REFERENCE_STYLES[method]
        ax.plot(x, y, marker, markersize=size * 0.8, color=colour, markeredgecolor="white", zorder=6)
    ax.set_xlabel("memorised: tokens left (← more is forgotten)", fontsize=9, color=style.INK)
    ax.set_ylabel("not memorised: tokens left (↑ more is kept)", fontsize=9, color=style.INK)
    style.panel_title(ax, "What is kept, where as much is forgotten")
    style.dress(ax)
    ax.set_xlim(-0.03 * lengths[memorized].tokens, 1.05 * lengths[memorized].tokens)
    ax.set_ylim(0, 1.05 * lengths[other].tokens)


def _draw_line(
    ax: Axes, curve: AgreementCurve, xs: Sequence[float], ys: Sequence[float], of_variant: style.Styles
) -> None:
    colour, marker = of_variant[curve.variant]
    ax.plot(xs, ys, color=colour, linewidth=1.5, alpha=0.8, zorder=3)
    for point, x, y in zip(curve.points[1:], xs[1:], ys[1:], strict=True):
        ax.plot(x, y, marker, markersize=6, zorder=4, **style.point_style(colour, is_collapsed=point.collapsed))


def _add_legend(figure: Figure, drawn: Sequence[ModelAgreement], of_variant: style.Styles) -> None:
    note, handles = (
        "Bands: 95 % interval over the sequences (and seeds).",
        [style.reference_handle(ORIGINAL, "Original")],
    )
    if any(agreement.retrained for agreement in drawn):
        note += " Dotted: the retrained model."
        handles.append(style.reference_handle(RETRAINED, "Retrained"))
    curves = [curve for agreement in drawn for curve in agreement.curves]
    for variant, label in {curve.variant: curve.label for curve in curves}.items():
        handles.append(style.variant_handle(label, *of_variant[variant]))
    if any(point.collapsed for curve in curves for point in curve.points):
        handles.append(style.collapsed_handle())
    style.legend_below(figure, handles, note, columns=8)
