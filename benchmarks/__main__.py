"""Every benchmark, in about ten minutes on two idle cores, and all their ratios in one table.

    python -m benchmarks [NAME ...]

A benchmark reports, and is no test: a ratio beyond its limit is shown, and only a benchmark that raises makes it end
with 1.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from importlib import import_module

from benchmarks.measuring import Ratio, table
from harness.errors import unknown

ARGUMENTS = {
    "extraction_likelihood": ["--sequences", "16", "--rows", "1"],
    "reasoning": ["--limit", "40"],
    "training_epoch": [],
    "selection": ["--repeats", "3"],
    "planning": [],
    "full_size": [],
    "memory": [],
    "tracking": ["--trials", "200"],
}
"""By module; each runs in full with `python -m benchmarks.NAME`."""


def main() -> int:
    """Run the benchmarks, print their table, and return 1 if one raised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all by default: {', '.join(ARGUMENTS)}")
    names = parser.parse_args().names or list(ARGUMENTS)
    for name in names:
        if name not in ARGUMENTS:
            parser.error(unknown("benchmark", name, ARGUMENTS))
    ratios: dict[str, list[Ratio]] = {}
    raised = []
    for name in names:
        print(f"\n{name} {' '.join(ARGUMENTS[name])}", flush=True)
        start = time.perf_counter()
        try:
            ratios[name] = import_module(f"benchmarks.{name}").main(ARGUMENTS[name])
        except Exception:
            traceback.print_exc()
            raised.append(name)
        print(f"took {time.perf_counter() - start:.0f} s", flush=True)
    print(f"\n{table(ratios)}")
    if raised:
        print(f"\n{', '.join(raised)} raised: see above.", file=sys.stderr)
    return int(bool(raised))


if __name__ == "__main__":
    sys.exit(main())
