"""`python -m harness.collate PATH`, which is `lethe collate PATH`."""

import sys

from harness.cli import end, main

if __name__ == "__main__":
    end(main(["collate", *sys.argv[1:]]))
