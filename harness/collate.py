"""`python -m harness.collate PATH`, which is `lethe collate PATH`."""

import sys

from harness.cli import end, main as lethe

if __name__ == "__main__":
    end(lethe(["collate", *sys.argv[1:]]))
