"""Section on texts that survive, and with generated texts side by side."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from markupsafe import Markup

from harness.analysis import metrics, recitation, seeds
from harness.analysis.analysis import Analysis
from harness.base.messages import first_names
from harness.records.results import measurements
from harness.reporting.render import Column, fill_html, render
from harness.reporting.section import Pictures, Section
from harness.settings import ORIGINAL, RETRAINED


class Samples(Section):
    """Texts that each ranked model still recites, by their line, and the models' continuations."""

    title = "Which texts survive"
    lead = "A text survives where a model, but not the retrained one, still writes it on, to its end or for 50 tokens."

    def html(self, pictures: Pictures) -> Markup:
        samples_by_prompt: dict[tuple[str, str, str, int], list[tuple[str, Any, str]]] = {}
        exact, plan = metrics.exact_matches(self.analysis.info), self.analysis.results.plan
        for point, measurement in measurements(self.analysis.sampled):
            items = self.analysis.evidence.items(point.spec.point_id(point.strength), exact[0]) if exact else None
            for index, sample in enumerate(measurement.samples):
                name = plan.text_names.get(items.ids[index], "") if items and sample["kind"] == "forget" else ""
                key = (sample["kind"], point.spec.model.id, measurement.evaluator, index)
                samples_by_prompt.setdefault(key, []).append((point.spec.label, sample, name))
        frame = pd.DataFrame(_survivors(self.analysis))
        columns = [Column("model", "Model", "heading"), Column("label", "Method"), Column("at", "Strength")]
        columns += [Column("share", "Texts that survive"), Column("lines", "Which", "note")]
        text = render(frame, columns, "html") if len(frame) else Markup("")
        return text + fill_html("samples", samples_by_prompt=samples_by_prompt, is_redacted=plan.samples == "redacted")


def _survivors(analysis: Analysis) -> Iterator[dict[str, Any]]:
    text_names = analysis.results.plan.text_names
    for model, points in analysis.points.groupby("model", sort=False):
        shown_points = points[points["ranked"] | points["method"].isin((ORIGINAL, RETRAINED))]
        texts = recitation.recited_texts(shown_points, analysis.info, analysis.evidence, "variant", least=1)
        guessed = texts.pop(RETRAINED).ids if RETRAINED in texts else frozenset()
        for variant, recited in texts.items():
            own = shown_points[shown_points["variant"] == variant]
            unguessed = recited._replace(ids=recited.ids - guessed)
            row = {"model": model, "label": own["label"].iloc[0], "collapsed": bool(own["collapsed"].eq(True).any())}
            row |= {"at": seeds.strength_text(own["strength_name"].iloc[0], *own["strength"])}
            lines = first_names(unguessed.names(text_names), 40) if text_names else ""
            row |= {"lines": "all" if unguessed.recited == unguessed.texts else lines}
            yield row | {"share": f"{unguessed.recited} of {unguessed.texts}"}
