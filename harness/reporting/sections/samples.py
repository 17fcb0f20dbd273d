"""Section with generated texts, side by side."""

from typing import Any

from markupsafe import Markup

from harness.records.results import measurements
from harness.reporting.section import PageContext, Section, details, paragraph

_ABOUT = "What the original, the retrained and the ranked models wrote."
_REDACTED = (
    "Texts of the forget set are redacted: ■ is a word as the forget set has it at that place, □ another word; report: "
    "{samples: plain} in the sweep file shows them."
)


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
        text = paragraph(_ABOUT, _REDACTED if self.analysis.results.plan.samples == "redacted" else "")
        for (kind, model, *_), samples in samples_by_prompt.items():
            first = samples[0][1]
            lines = [("prompt", first["prompt"]), ("truth" if kind == "forget" else "human", first["reference"])]
            lines += [(label, sample["generated"]) for label, sample in samples]
            pairs = map(Markup('<dt>{}</dt><dd><p class="text">{}</p></dd>\n').format, *zip(*lines, strict=True))
            texts = Markup('<dl class="texts">\n{}</dl>\n').format(Markup("").join(pairs))
            text += details(f"{kind} text · {model}: {first['prompt'][:90]}", texts)
        return text
