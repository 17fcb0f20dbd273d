"""`python -m harness.sweep FILE`, which is `lethe sweep FILE`."""

import sys

from harness.cli import end, main as lethe

if __name__ == "__main__":
    end(lethe(["sweep", *sys.argv[1:]]))
