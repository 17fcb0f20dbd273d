"""Converts the frozen results folders to the newest form of records: `python -m tests.promises.convert_records`.

A commit that changes the form says here what changes, and runs it once; no number may change.
"""

import json
from typing import Any

from tests.promises.freeze_records import FROZEN, TABLES, without_places


def converted(plan: Any) -> Any:
    """Return a plan without the settings of training that are gone: `fused_gelu`, and the `base` of adapters."""
    if isinstance(plan, list):
        return [converted(item) for item in plan]
    if not isinstance(plan, dict):
        return plan
    is_lora = {"rank", "alpha", "targets"} <= plan.keys()
    gone = ("fused_gelu", "base") if is_lora else ("fused_gelu",)
    return {name: converted(value) for name, value in plan.items() if name not in gone}


def main() -> None:
    """Write each frozen plan again, under a checksum of its own."""
    for name in TABLES:
        file = FROZEN / name / "journal" / "plan.json"
        file.write_text(json.dumps(converted(json.loads(file.read_text()))))
        file.write_bytes(without_places(file))


if __name__ == "__main__":
    main()
