"""`python -m harness.sweep FILE`, which is `lethe sweep FILE`."""

import sys

from harness.cli import end, main

if __name__ == "__main__":
    end(main(["sweep", *sys.argv[1:]]))
