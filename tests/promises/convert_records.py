"""Converts the frozen results folders to the newest form of records: `python -m tests.promises.convert_records`.

A commit that changes the form says here what changes, and runs it once; no number may change.
"""

import json
from typing import Any

from tests.promises.freeze_records import FROZEN, without_places


def converted(plan: Any) -> Any:
    """Return a plan without what walked trials replace, with each engine under its name."""
    if isinstance(plan, list):
        return [converted(item) for item in plan]
    if not isinstance(plan, dict):
        return plan
    if plan.keys() == {"name", "zero_stage", "offload", "workers"}:
        name = plan.pop("name")
        return {name: {} if name == "torch" else plan}
    if plan.keys() == {"utility", "erasure", "reference", "margin"}:
        [cost, *_] = [*plan.pop("utility"), "perplexity"]
        del plan["erasure"]
        return {"cost": cost, **plan}
    gone = {"skips_neighbours", "chosen", "neighbours", *(() if "rank" in plan else ("targets",))}
    return {name: converted(value) for name, value in plan.items() if name not in gone}


def main() -> None:
    """Write each frozen plan again, under a checksum of its own."""
    for name in ("grid", "attacked"):
        file = FROZEN / name / "journal" / "plan.json"
        file.write_text(json.dumps(converted(json.loads(file.read_text()))))
        file.write_bytes(without_places(file))


if __name__ == "__main__":
    main()
