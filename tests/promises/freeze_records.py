"""Freezes small results folders and the numbers that are made of them: `python -m tests.promises.freeze_records`.

Run it, from the repository's root, only when the form of records or the numbers are meant to change: what
`test_records.py` holds is then what this commit measures. It takes four minutes on two cores.
"""

import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.base.files import digest_of

FROZEN = Path(__file__).parent / "frozen"
ROOT = Path(__file__).parents[2]
TABLES = {
    "grid": ("table.csv", "ranking.csv"),
    "tuned": ("table.csv", "ranking.csv", "answer.csv"),
    "attacked": ("table.csv", "ranking.csv", "attacks.csv"),
}
"""By sweep, the tables whose numbers are promised."""
NOT_PROMISED = {"label", "collapse_reason", "recited", "unranked", "limit", "setting", "budget", "note", "target"} | {
    "replicate_of", "judged_by_original", "trial_id", "point_id",
}  # fmt: skip
"""Columns of words, which may be worded better, and of identities, which change with the form of records."""


def main() -> None:
    """Run each sweep, or those named, and keep its journal, items and numbers without paths of this machine."""
    for name in sys.argv[1:] or TABLES:
        with tempfile.TemporaryDirectory() as temporary:
            command = [sys.executable, "-m", "harness.sweep", str(FROZEN / f"{name}.yaml"), "--executor", "inline"]
            subprocess.run([*command, "--results", temporary], check=True, cwd=ROOT)
            made, kept = Path(temporary, name), FROZEN / name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(made / "items", kept / "items")
            (kept / "journal").mkdir()
            for file in sorted((made / "journal").glob("*.json*")):
                (kept / "journal" / file.name).write_bytes(without_places(file))
            out = Path(temporary, "out")
            # Sums over two threads have other last bits, which decide near ties of the draws: tests have one.
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            collate = [sys.executable, "-m", "harness.collate", kept, "--out", out]
            subprocess.run(collate, check=True, cwd=ROOT, env=environment)
            for table in TABLES[name]:
                write_promised(out / table, kept / "expected" / table)


def without_places(file: Path) -> bytes:
    """Return a journal's file with paths that say nothing of this machine, under checksums of their own."""
    if file.name == "plan.json":
        plan = portable(json.loads(file.read_text()))
        del plan["checksum"]
        return (json.dumps({**plan, "checksum": digest_of(plan)}, separators=(",", ":")) + "\n").encode()
    lines = b""
    for line in file.read_text().splitlines():
        record = portable(json.loads(line))
        del record["checksum"]
        text = json.dumps(record, separators=(",", ":")).encode()
        lines += text[:-1] + f',"checksum":"{hashlib.sha256(text).hexdigest()[:16]}"}}\n'.encode()
    return lines


def portable(value: Any) -> Any:
    """Return a record without absolute paths and without the machine's name."""
    if isinstance(value, dict):
        return {key: "machine" if key == "node" else portable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [portable(item) for item in value]
    if not isinstance(value, str) or not value.startswith("/"):
        return value
    path = Path(value)
    if path.is_relative_to(ROOT):
        return str(path.relative_to(ROOT))
    if "site-packages" in path.parts:
        return str(Path(*path.parts[path.parts.index("site-packages") :]))
    raise ValueError(f"the record names {value}, which no other machine has: say here how to shorten it.")


def write_promised(table: Path, expected: Path) -> None:
    """Write the columns of a table whose every cell is promised."""
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = [name for name in rows[0] if name not in NOT_PROMISED]
    expected.parent.mkdir(exist_ok=True)
    with expected.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
