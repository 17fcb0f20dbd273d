"""How the process ends where a plugin left a thread behind."""

import subprocess
import sys

import pytest

LEAVING = """
import atexit, threading, time
from harness.execution.guard.threads import leave
atexit.register(print, "at exit")
if {left}:
    threading.Thread(target=time.sleep, args=(600,)).start()
leave(3)
"""


@pytest.mark.parametrize("left", [True, False])
def test_a_process_ends_with_its_exit_code_whatever_thread_is_left(left):
    script = LEAVING.format(left=left)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "at exit\n", "")
