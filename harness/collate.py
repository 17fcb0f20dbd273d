"""`python -m harness.collate PATH`, which is `lethe collate PATH`."""

import sys
from collections.abc import Sequence

from harness.cli import end, main as lethe


def main(argv: Sequence[str]) -> int:
    """Run `lethe collate` with these arguments and return its exit code."""
    return lethe(["collate", *argv])


if __name__ == "__main__":
    end(main(sys.argv[1:]))
