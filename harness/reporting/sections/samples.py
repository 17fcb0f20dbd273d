"""Section with generated texts, side by side."""

from typing import Any

from markupsafe import Markup

from harness.records.results import measurements
from harness.reporting.render import fill_html
from harness.reporting.section import PageContext, Section


class Samples(Section):
    """Texts of the original, the retrained and the ranked models, by prompt."""

    title = "Samples"

    def html(self, page: PageContext) -> Markup:
        samples_by_prompt: dict[tuple[str, str, str, int], list[tuple[str, Any]]] = {}
        for point, measurement in measurements(self.analysis.sampled):
            for index, sample in enumerate(measurement.samples):
                key = (sample["kind"], point.spec.model.id, measurement.evaluator, index)
                samples_by_prompt.setdefault(key, []).append((point.spec.label, sample))
        if not samples_by_prompt:
            return Markup("")
        is_redacted = self.analysis.results.plan.samples == "redacted"
        return fill_html("samples", samples_by_prompt=samples_by_prompt, is_redacted=is_redacted)
