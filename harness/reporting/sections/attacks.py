"""Section on attacks: text recovered beyond the retrained model's, and curves over training steps."""

from collections.abc import Iterator
from functools import cached_property

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import RenderableType
from rich.text import Text

from harness.analysis import attacks
from harness.analysis.curves import styles
from harness.analysis.metrics import MetricInfo
from harness.base.messages import printable
from harness.reporting import section, style
from harness.reporting.render import Column, render
from harness.settings import ORIGINAL

_BEYOND = (
    "Text that each attack recovers, less the text that it recovers from the retrained model, which never saw it. "
    "Above 0 something is left. In the report, small: the 95 % interval."
)
_AS_MEASURED = (
    "Text that each attack recovers, as measured. There is no retrained model to compare with. Name one "
    "(models: [{id: …, retrained: FOLDER}]), and the table shows the excess over it."
)
_NOTE = "Black: the original. Grey, dashed: the retrained model, which never saw the texts. Means over seeds."


class Attacks(section.Section):
    """Table and curves of attacks."""

    title = "Does it come back?"
    lead = "A model may have stopped reciting a text and still have it: each attack tries to get it out."
    stems = ("attacks", "attack_curves")

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Curves that attacks measured."""
        return attacks.attack_curves(self.analysis.results, self.analysis.points, self.analysis.info)

    def drawn(self, width: float, across: int) -> dict[str, Figure]:
        looks = styles(self.analysis.points)
        return {"attack_curves": curves_figure(self.curves, looks, width, across)} if len(self.curves) else {}

    def frames(self) -> dict[str, pd.DataFrame]:
        return {"attacks": self.analysis.attacks.drop(columns=attacks.NOT_IN_CSV)}

    def html(self, pictures: section.Pictures) -> Markup:
        text = Markup("")
        tables = list(attack_tables(self.analysis.attacks, self.analysis.info))
        for place, sentence, wide, columns in tables:
            text += Markup("<h3>{}</h3>\n").format(place) if len(tables) > 1 else ""
            text += section.paragraph(sentence) + render(wide, columns, "html")
        levels = [f", of methods at {target}" for target in self.curves["target"].unique() if target]
        caption = f"The attacks' numbers, step by step and layer by layer{''.join(levels)}."
        text += section.picture(pictures, "attack_curves", "Curves of the attacks' numbers, of each method.", caption)
        columns = [Column("model", "", "heading"), Column("title", "", "heading"), Column("label", "Method")]
        columns += [Column("x_title", "At"), Column("x", "", "count"), Column("y", "Measured", "number")]
        numbers = render(self.curves.sort_values(["model", "title"], kind="stable"), columns, "html")
        return text + (section.details("The numbers of the curves", numbers) if len(self.curves) else "")


def attack_tables(frame: pd.DataFrame, info: MetricInfo) -> Iterator[tuple[str, str, pd.DataFrame, list[Column]]]:
    """Yield for each model and level its title, a sentence, and its table: a row for each variant."""
    for (model, target), rows in frame.groupby(["model", "target"], sort=False):
        told = attacks.recovery_sentences(frame[frame["model"] == model], info, str(target))
        has_retrained = bool(rows["excess"].notna().any())
        value = "excess" if has_retrained else "value"
        wide = rows.groupby("variant", sort=False)[["label", "strength", "collapsed", "over_erased"]].first()
        columns = [Column("label", "Method"), Column("strength", "Strength")]
        for metric in attacks.attack_metrics(info):
            metric_rows = rows[rows["metric"] == metric.name].set_index("variant")
            for end in ("", "_low", "_high"):
                wide[f"{metric.name}{end}"] = metric_rows[f"{value}{end}"]
            columns.append(Column(metric.name, str(metric.attack), "change" if has_retrained else "number"))
        sentences = [_BEYOND if has_retrained else _AS_MEASURED, *told]
        if wide["collapsed"].any():
            sentences.append("† collapsed: a model that can no longer write has not erased the text.")
        yield f"{model}, {target}" if target else str(model), " ".join(sentences), wide, columns


def attacks_on_terminal(frame: pd.DataFrame, info: MetricInfo) -> Iterator[RenderableType]:
    """Yield each model's sentence and table for the terminal, without intervals."""
    for place, sentence, wide, columns in attack_tables(frame, info):
        bounds = [name for name in wide.columns if name.endswith(("_low", "_high"))]
        label = wide["label"].where(wide["strength"] == "", wide["label"] + ", " + wide["strength"])
        table_columns = [column for column in columns if column.name != "strength"]
        yield Text(printable(f"{place}: {sentence}"))
        yield render(wide.drop(columns=bounds).assign(label=label), table_columns, "terminal")


def curves_figure(curves: pd.DataFrame, styles_by_variant: style.Styles, width: float, across: int) -> Figure:
    """Return a panel for each model and curve."""
    panels = list(curves.groupby(["model", "title"], sort=False))
    handles = {}
    figure, axes = style.new_panels(len(panels), width, across, height=2.8)
    for ax, ((model, title), panel) in zip(axes, panels, strict=True):
        for variant, line in panel.groupby("variant", sort=False):
            if variant in styles_by_variant:
                colour, marker = styles_by_variant[str(variant)]
                label = str(line["label"].iloc[0])
                ax.plot(line["x"], line["y"], color=colour, marker=marker, markersize=4, label=label)
                handles[variant] = style.legend_handle(label, colour, marker, line="-")
            else:
                colour, dashes = ("black", "-") if line["method"].iloc[0] == ORIGINAL else ("grey", "--")
                ax.plot(line["x"], line["y"], zorder=1, color=colour, linestyle=dashes)
        style.panel_title(ax, f"{model}: {title}" if curves["model"].nunique() > 1 else str(title))
        ax.set(xlabel=panel["x_title"].iloc[0], ylabel=panel["y_title"].iloc[0])
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        style.dress(ax)
    target = curves["target"].iloc[0]
    style.legend_below(figure, list(handles.values()), f"{_NOTE} Methods at {target}." if target else _NOTE, width)
    return figure
