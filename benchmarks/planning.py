"""How much CPU a plan takes besides the import of torch, the first time and once all that it reads is known.

    python -m benchmarks.planning [--sweep FILE] [--repeats N]

Each run is a process of its own, with a cache that holds nothing at the start. CPU seconds, so that other work on the
machine counts less; the figures that matter are the ratios.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measuring import Ratio

TUNED = Path(__file__).resolve().parents[1] / "sweeps" / "tuned.yaml"


def main(argv: Sequence[str] | None = None) -> list[Ratio]:
    """Print seconds and ratios; return the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", type=Path, default=TUNED)
    parser.add_argument("--repeats", type=int, default=5, help="the least of so many counts")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"XDG_CACHE_HOME": folder}

        def least(*command: str, repeats: int = arguments.repeats) -> float:
            return min(_cpu_seconds([sys.executable, *command], environment) for _ in range(repeats))

        plan = ["-m", "harness.sweep", str(arguments.sweep.resolve()), "--plan", "--results", folder]
        torch = least("-c", "import torch")
        first = least(*plan, repeats=1)
        known = least(*plan)
    print(f"import torch: {torch:.2f} s of CPU; the first plan: {first:.2f} s; a plan of what is known: {known:.2f} s")
    return [
        Ratio(
            "a plan of what is known, against `import torch` alone", known / torch, "1: a plan reads tensors' shapes"
        ),
        Ratio(
            "the first plan, against one of what is known", first / known, "none: what memory it needs is dry-run once"
        ),
    ]


def _cpu_seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
