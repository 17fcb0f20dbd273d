"""`python -m harness.sweep FILE`: what `lethe sweep` does, and `run_sweep` for Python."""

from harness.commands.command import run_command
from harness.commands.sweep import main, run_sweep

__all__ = ["main", "run_sweep"]

if __name__ == "__main__":
    run_command(main)
