"""CPU seconds of a plan next to torch's import.

    python -m benchmarks.planning [--sweep FILE] [--repeats N]

Each run is a process of its own. CPU seconds, so that other work on the
machine counts less; the figures that matter are the ratios.
"""

from __future__ import annotations

import argparse
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

        def least(*command: str) -> float:
            return min(_cpu_seconds([sys.executable, *command]) for _ in range(arguments.repeats))

        torch = least("-c", "import torch")
        plan = least("-m", "harness.sweep", str(arguments.sweep.resolve()), "--plan", "--results", folder)
    print(f"import torch: {torch:.2f} s of CPU; a plan: {plan:.2f} s")
    return [Ratio("a plan, against `import torch`", plan / torch, "1: a plan reads tensors' shapes")]


def _cpu_seconds(command: Sequence[str]) -> float:
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime


if __name__ == "__main__":
    main()
