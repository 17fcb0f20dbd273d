"""`python -m harness.collate PATH`: what `lethe collate` does."""

from harness.commands.collate import main
from harness.commands.command import run_command

__all__ = ["main"]

if __name__ == "__main__":
    run_command(main)
