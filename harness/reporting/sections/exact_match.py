"""Section on memorised and other sequences: a figure and a table."""

from functools import partial

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from harness.analysis import curves, seeds
from harness.contracts import Metric
from harness.reporting import section
from harness.reporting.render import Column, render
from harness.reporting.sections.tradeoff import tradeoff

_MEANS = "Tokens up to the first that differs from the original's; small: the 95 % interval over the sequences."
_axis = partial(Metric, unit="tokens", low=0.0, high=1e6, source="EMSO paper, figure 5")
_PLANE = (
    _axis(name="other", better="higher", group="generation", title="Tokens left of other texts"),
    _axis(name="memorized", better="lower", group="erasure", title="Tokens left of memorised texts"),
)


class ExactMatch(section.Section):
    """Agreement with the original on memorised and on other sequences."""

    title = "Memorised and not memorised"
    lead = "How much of the original's text is left: low is good for memorised texts, high for the rest."
    stems = ("exact_match_groups",)

    def drawn(self, width: float, across: int) -> dict[str, Figure]:
        frame = self.analysis.agreements
        if frame.empty:
            return {}
        frame = frame.assign(method=frame["variant"], until="", over_erased=False)
        return tradeoff("exact_match_groups", frame, [_PLANE], curves.styles(self.analysis.points), width, across, "-")

    def frames(self) -> dict[str, pd.DataFrame]:
        return {"exact_match_groups": self.analysis.agreements}

    def html(self, pictures: section.Pictures) -> Markup:
        frame = self.analysis.agreements
        if frame.empty:
            return Markup("")
        counts = frame.groupby("model", sort=False)[["memorized_sequences", "other_sequences"]].first()
        counted = [f"{model}: {one} sequences are memorised, {two} are not." for model, one, two in counts.itertuples()]
        columns = [Column("model", "Model", "heading"), Column("label", "Method"), Column("strength_text", "Strength")]
        columns += [Column("memorized", "Memorised", "number"), Column("other", "Not memorised", "number")]
        strengths = [*map(seeds.strength_text, frame["strength_name"], frame["strength"])]
        table = render(frame.assign(strength_text=strengths), columns, "html")
        alt = "What is left of other texts across, of memorised ones upwards."
        return section.picture(pictures, "exact_match_groups", alt) + section.paragraph(_MEANS, *counted) + table
