"""Threads that plugins leave behind, and how the process ends all the same."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.errors import TrialError
from harness.execution.guard.threads import no_thread_left


def test_a_thread_left_behind_is_named_and_one_that_ends_is_not():
    released = threading.Event()
    left = threading.Thread(target=lambda: released.wait(), name="a text")
    named = r"^the method 'm' left a thread behind \([\w/]*test_threads.py, line \d+, in <lambda>\), which would go on "
    with pytest.raises(TrialError, match=named), no_thread_left("the method 'm'"):
        left.start()
    with no_thread_left("the method 'm'"):  # The one from before is not its own.
        threading.Timer(0.1, lambda: None).start()
    released.set()
    left.join()


def test_a_pool_and_a_daemon_may_stay():
    released = threading.Event()
    with no_thread_left("the method 'm'"):
        threading.Thread(target=released.wait, daemon=True).start()
        pool = ThreadPoolExecutor(1)
        assert pool.submit(int).result() == 0
    released.set()
    pool.shutdown()


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
