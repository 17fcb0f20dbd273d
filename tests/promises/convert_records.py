"""Converts the frozen results folders to the newest form of records: `python -m tests.promises.convert_records`.

A commit that changes the form says here what changes, and runs it once; no number may change.
"""

import json
from typing import Any

from tests.promises.freeze_records import FROZEN, TABLES, without_places


def converted(plan: dict[str, Any]) -> dict[str, Any]:
    """Return a plan without the searches at random beside a study's own, which no file can ask for any more."""
    return {name: value for name, value in plan.items() if name != "control_studies"}


def main() -> None:
    """Write each frozen plan again, under a checksum of its own."""
    for name in TABLES:
        file = FROZEN / name / "journal" / "plan.json"
        file.write_text(json.dumps(converted(json.loads(file.read_text()))))
        file.write_bytes(without_places(file))


if __name__ == "__main__":
    main()
