"""What measuring in a lower precision changed: greedy choices that are another token than in fp32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.records.point_names import point_name
from harness.records.results import PointResults
from harness.specs import ORIGINAL


def changed_choices(points: Sequence[PointResults]) -> Iterator[str]:
    """Yield for each model how many greedy choices its precision changed: the original's, and the most of any point."""
    by_model: dict[tuple[str, str], list[tuple[PointResults, Mapping[str, Any]]]] = {}
    for point in points:
        noted = [found for measurement in point.measurements if (found := measurement.notes.get("changed_choices"))]
        if noted:
            by_model.setdefault((point.spec.model.short_name, noted[0]["precision"]), []).append((point, noted[0]))
    for (model, precision), counted in by_model.items():
        most, of_most = max(counted, key=lambda pair: pair[1]["changed"] / pair[1]["choices"])
        originals = [_share(noted) for point, noted in counted if point.spec.method == ORIGINAL]
        of_original = f"{originals[0]} of the original's, and " if originals else ""
        yield (
            f"{model} is measured in {precision}. Of its greedy choices on the texts, that makes others than fp32 of "
            f"{of_original}at most {_share(of_most)} ({point_name(most)})."
        )


def _share(noted: Mapping[str, Any]) -> str:
    return f"{noted['changed']:,} of {noted['choices']:,} ({noted['changed'] / noted['choices']:.2%})"
