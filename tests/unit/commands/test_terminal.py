"""Commands whose terminal, reader or disk goes away while they print: they go on, and end as they would have."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

COMMAND = """
import sys, time
from contextlib import nullcontext
from pathlib import Path
from harness.commands.command import run_command
from harness.base.terminal import SafeConsole, console, tell
from rich.live import Live

def main():
    print("first", flush=True)
    sys.stdin.readline()  # Until then nothing is lost.
    live = SafeConsole(highlight=False)
    with Live("running", console=live, transient=True) if live.is_terminal else nullcontext():
        for number in range(3):
            live.print(f"said {number}")
            time.sleep(0.3)
    console(80).print("printed")
    tell("told")
    tell("an error", is_error=True)
    print("kept back")
    Path(sys.argv[1]).write_text("the report")
    return 3

run_command(main)
"""
SAID = "first\nsaid 0\nsaid 1\nsaid 2\nprinted\ntold\nkept back\n"


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def start(request, tmp_path):
    """Return a starter of the command."""

    def run(**streams):
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, tmp_path / "report"],
            stdin=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": request.param},
            **streams,
        )

    return run


def ended(command, tmp_path):
    out, errors = command.communicate("\n", timeout=60)
    assert (tmp_path / "report").read_text() == "the report"
    assert command.returncode == 3
    return out, errors


def test_what_can_be_printed_is(start, tmp_path):
    assert ended(start(stdout=subprocess.PIPE, stderr=subprocess.PIPE), tmp_path) == (SAID, "an error\n")


def test_on_a_full_disk_a_command_goes_on_and_says_that_what_it_printed_is_not_whole(start, tmp_path):
    with Path("/dev/full").open("w") as full:
        _, errors = ended(start(stdout=full, stderr=subprocess.PIPE), tmp_path)
        assert errors == "an error\nThe printed output is incomplete: No space left on device.\n"
        ended(start(stdout=full, stderr=full), tmp_path)


def test_without_a_reader_a_command_goes_on_and_says_nothing_of_it(start, tmp_path):
    command = start(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    command.stdout.readline()
    command.stdout.close()
    command.stdout = None
    assert ended(command, tmp_path)[1] == "an error\n"


@pytest.mark.parametrize("errors_too", [False, True])
def test_without_its_terminal_a_command_goes_on_and_says_nothing_of_it(start, tmp_path, errors_too):
    ours, theirs = pty.openpty()
    command = start(stdout=theirs, stderr=theirs if errors_too else subprocess.PIPE)
    os.close(theirs)
    assert os.read(ours, 5) == b"first"
    os.close(ours)
    assert ended(command, tmp_path)[1] == (None if errors_too else "an error\n")


def test_with_streams_that_are_closed_a_command_prints_into_none_of_its_files(start, tmp_path):
    def close():
        for descriptor in (1, 2):
            with suppress(OSError):
                os.close(descriptor)

    ended(start(preexec_fn=close), tmp_path)
