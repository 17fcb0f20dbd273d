"""`python -m harness.sweep FILE`, which is `lethe sweep FILE`."""

import sys
from collections.abc import Sequence

from harness.cli import end, main as lethe


def main(argv: Sequence[str]) -> int:
    """Run `lethe sweep` with these arguments and return its exit code."""
    return lethe(["sweep", *argv])


if __name__ == "__main__":
    end(main(sys.argv[1:]))
