"""Checks what only a GPU can show: sizing's memory, bf16's numbers, speed, and ZeRO, in about twenty minutes.

    python -m benchmarks.gpu_check [--folder FOLDER] [--minutes N]

It writes gpu_check_<card>.md: what came out, as it came out. It ends with 1 if something raised or a number was not
finite, or ZeRO trained to other weights; what sizing told wrong is in the page, and fails nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gpu_check.card import Card, cuda_card
from benchmarks.gpu_check.engine_part import engine_part
from benchmarks.gpu_check.memory_part import memory_part
from benchmarks.gpu_check.page import file_name, page
from benchmarks.gpu_check.parts import run_parts
from benchmarks.gpu_check.precision_part import precision_part
from benchmarks.gpu_check.speed_part import speed_part
from benchmarks.gpu_check.workload import SEED, SHAPES, Bench, Shape, Workload
from harness.base.files import write_whole

NO_GPU = "make gpu-check needs an NVIDIA GPU of 24 GB or more that torch can compute on, and torch sees none here."
REFUSED = 2


def main() -> int:
    """Check the first GPU; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("docs/results"), help="where the page is written")
    parser.add_argument("--minutes", type=float, default=20.0, help="after these nothing further begins")
    arguments = parser.parse_args()
    card = cuda_card()
    if card is None:
        print(NO_GPU, file=sys.stderr)
        return REFUSED
    return check(card, SHAPES, Workload(), arguments.folder, arguments.minutes)


def check(card: Card, shapes: tuple[Shape, ...], workload: Workload, folder: Path, minutes: float) -> int:
    """Run every part, write the card's page into `folder`, and return 1 if something was wrong, else 0."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as configurations:
        bench = Bench(card, workload, Path(configurations))
        parts = [
            memory_part(bench, shapes),
            precision_part(bench, shapes),
            speed_part(bench, shapes),
            engine_part(bench, shapes[:2]),
        ]
        results = list(run_parts(parts, card, minutes, print))
    facts = card.facts() | {"seed": str(SEED), "minutes": f"{(time.monotonic() - began) / 60:.1f} of {minutes:g}"}
    facts["texts"] = f"{workload.sequences} of {workload.tokens} random tokens, {workload.prefix_tokens} of them prefix"
    facts["steps"] = f"global batch {workload.global_batch}, micro-batch {workload.micro_batch}"
    file = folder / file_name(card.name)
    write_whole(file, page(card.name, facts, results), "the check's page")
    print(f"What came out is in {file}.")
    return int(any(result.failures for result in results))


if __name__ == "__main__":
    sys.exit(main())
