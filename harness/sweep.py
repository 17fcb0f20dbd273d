"""`python -m harness.sweep FILE`: what `lethe sweep` does."""

from harness.commands.command import run_command
from harness.commands.sweep import main

__all__ = ["main"]

if __name__ == "__main__":
    run_command(main)
