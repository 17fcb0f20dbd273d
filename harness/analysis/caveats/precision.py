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
        for measurement in point.measurements:
            if noted := measurement.notes.get("changed_choices"):
                by_model.setdefault((point.spec.model.short_name, noted["precision"]), []).append((point, noted))
    for (model, precision), counted in by_model.items():
        most, of_most = max(counted, key=lambda pair: pair[1]["changed"] / pair[1]["choices"])
        of_original = ""
        for point, noted in counted:
            if point.spec.method == ORIGINAL:
                of_original = f"{_share(noted)} of the original's, and "
        yield (
            f"{model} is measured in {precision}. Of its greedy choices on the texts, that makes others than fp32 of "
            f"{of_original}at most {_share(of_most)} ({point_name(most)})."
        )


def _share(noted: Mapping[str, Any]) -> str:
    return f"{noted['changed']:,} of {noted['choices']:,} ({noted['changed'] / noted['choices']:.2%})"
