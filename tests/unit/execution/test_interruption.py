"""Signals and time limits: what is due is raised until it is heard, and a second signal ends the process."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from harness.execution.guard import interruption, redaction
from harness.execution.guard.interruption import Interrupted, Interruption, TimeLimitExceeded
from harness.execution.guard.time_limits import Clocks

from harness.errors import TrialError
from harness.execution.redact import failure
from harness.specs import TimeLimit


@pytest.fixture
def watching(monkeypatch):
    """An interruption of the test's own, which is patient for a shorter time."""
    monkeypatch.setattr(interruption, "AGAIN_SECONDS", 0.2)
    fresh = Interruption()
    for module in (interruption, redaction):
        monkeypatch.setattr(module, "INTERRUPTION", fresh)
    before = {signum: signal.signal(signum, signal.default_int_handler) for signum in interruption.SIGNALS}
    with fresh.watched(signals=True):
        yield fresh
    for signum, handler in before.items():
        signal.signal(signum, handler)


def send(signum, seconds=0.05):
    threading.Timer(seconds, os.kill, (os.getpid(), signum)).start()


def swallow(times):
    """Wait for ever, whatever is raised, until that was raised so many times."""
    for left in range(times, 0, -1):
        try:
            time.sleep(30)
        except BaseException:
            if left == 1:
                raise


@pytest.mark.parametrize(("signum", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_interrupts_the_main_thread_and_has_its_exit_code(watching, signum, exit_code):
    send(signum)
    with pytest.raises(Interrupted) as raised:
        time.sleep(30)
    watching.heard()
    assert raised.value.exit_code == exit_code
    assert watching.is_signalled


def test_an_interruption_that_somebody_swallowed_comes_again(watching):
    send(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        swallow(3)
    watching.heard()
    time.sleep(0.5)  # And after it was heard, no more.


def test_one_that_python_itself_drops_comes_again(watching):
    class Finalised:
        def __del__(self):
            time.sleep(0.3)

    dropped = []
    before, sys.unraisablehook = sys.unraisablehook, dropped.append
    try:
        send(signal.SIGINT)
        Finalised()
        assert dropped[0].exc_type is Interrupted
        with pytest.raises(Interrupted):
            time.sleep(30)
        watching.heard()
    finally:
        sys.unraisablehook = before


SLOW = """
import os, signal, time
seen.append("begins")
os.kill(os.getpid(), signal.SIGINT)
try:
    time.sleep({seconds})
except BaseException:
    pass  # As torch's C++ part does while it imports NumPy.
seen.append("ends")
"""


def importing(tmp_path, monkeypatch, seconds):
    """Import a module that takes so long and swallows what is raised; return how far it came."""
    import builtins

    seen = []
    (tmp_path / "slow_module.py").write_text(SLOW.format(seconds=seconds))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(builtins, "seen", seen, raising=False)
    monkeypatch.delitem(sys.modules, "slow_module", raising=False)
    try:
        __import__("slow_module")
        time.sleep(30)
    except Interrupted:
        return seen
    raise AssertionError("it goes on")


def test_a_signal_waits_until_a_module_is_imported(watching, tmp_path, monkeypatch):
    seen = importing(tmp_path, monkeypatch, 0.5)
    watching.heard()
    assert seen == ["begins", "ends"]


def test_an_import_without_end_is_ended_too(watching, tmp_path, monkeypatch):
    monkeypatch.setattr(interruption, "IMPORT_SECONDS", 0.3)
    assert importing(tmp_path, monkeypatch, 30) == ["begins", "ends"]
    watching.heard()


def test_what_a_library_made_of_a_signal_is_no_failure_of_a_trial(watching, make_spec):
    error = ValueError("a fault of its own")
    assert failure(error, make_spec()) is error
    assert not watching.led_to(error)
    with watching.deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            failure(error, make_spec())
        assert watching.led_to(error)
        watching.heard()
    assert watching.exit_code == 143


def test_a_deferred_interruption_comes_at_the_end(watching):
    passed = []
    send(signal.SIGTERM)
    with pytest.raises(Interrupted), watching.deferred():
        passed += [time.sleep(0.4)]
    watching.heard()
    assert passed == [None]


def test_a_time_limit_ends_what_swallows_it_and_nothing_after_its_block(watching):
    began = time.monotonic()
    with pytest.raises(TimeLimitExceeded), watching.limited(0.1):
        swallow(2)
    watching.heard()
    assert 0.1 < time.monotonic() - began < 10
    with watching.limited(0.1):
        pass
    time.sleep(0.5)


def test_a_time_limit_that_was_heard_within_its_block_does_not_come_again(watching, make_spec):
    spec = make_spec(time_limit=TimeLimit(minutes=0.1, setting="timeout_minutes"))
    with watching.limited(0.1):
        with pytest.raises(TimeLimitExceeded) as raised:
            time.sleep(30)
        assert isinstance(failure(raised.value, spec), TrialError)
        time.sleep(0.7)  # A candidate is journaled here.


def test_an_ignored_signal_stays_ignored(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption().watched(signals=True):
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.3)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back_and_a_second_watcher_changes_nothing(watching):
    handler = signal.getsignal(signal.SIGINT)
    with watching.watched():
        assert signal.getsignal(signal.SIGINT) == handler
    assert signal.getsignal(signal.SIGINT) == handler
    other = Interruption()
    with other.watched(signals=True):
        assert signal.getsignal(signal.SIGINT) != handler
    assert signal.getsignal(signal.SIGINT) == handler


SIGNALLED = """
import hashlib, os, signal, subprocess, sys, time
from harness.execution.guard.interruption import INTERRUPTION
began = time.monotonic()
signal.signal(signal.SIGINT, signal.default_int_handler)
late = lambda: print("late" if time.monotonic() - began > 2.5 else "soon", flush=True)
with INTERRUPTION.watched(signals=True), INTERRUPTION.cleaning_up(late):
    for sent in sys.argv[1:]:
        name, _, seconds = sent.partition("@")
        command = f"sleep {seconds}; kill -{name[3:]} {os.getpid()}"
        subprocess.Popen(["sh", "-c", command])  # Its own threads may be kept from running.
    if os.environ.get("HOLDING"):
        with INTERRUPTION.deferred():
            sum(range(10**8))  # For seconds, and it lets no other thread run.
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # C code, for minutes.
"""


@pytest.mark.parametrize(
    ("sent", "ends"),
    [
        (["SIGINT@0.1", "SIGINT@0.3"], "soon"),
        (["SIGINT@0.1", "SIGINT@0.9"], "soon"),
        (["SIGINT@0.1", "SIGTERM@0.6"], "soon"),
        # `timeout` signals a process and its group, and both a terminal that closes and its shell send SIGHUP.
        (["SIGINT@0.1", "SIGINT@0.1", "SIGINT@3"], "late"),
        (["SIGINT@0.1", "SIGHUP@0.6", "SIGINT@3"], "late"),
    ],
)
def test_a_second_signal_ends_the_process_at_once_even_in_c_code(sent, ends):
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED, *sent], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (130, f"{ends}\n")
    assert ended.stderr == interruption._STOPPING.decode()


@pytest.mark.parametrize("others", [["SIGINT@0.9"], ["SIGINT@0.5", "SIGTERM@9"]])
def test_of_signals_that_are_seen_late_it_counts_when_they_came(others):
    command = [sys.executable, "-c", SIGNALLED, "SIGINT@0.5", *others]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "HOLDING": "1"}
    )
    assert ended.returncode == 130
    assert len(others) == 1 or ended.stdout == "late\n"


DROPPING = """
import os, signal, time
from harness.execution.guard.interruption import INTERRUPTION, Interrupted

class Finalised:
    def __init__(self, end):
        self.end = end

    def __del__(self):
        self.end()

def interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(30)

signal.signal(signal.SIGINT, signal.default_int_handler)
with INTERRUPTION.watched(signals=True):
    Finalised(lambda: 1 / 0)
    try:
        Finalised(interrupted)
        time.sleep(30)
    except Interrupted:
        INTERRUPTION.heard()
        print("interrupted")
    Finalised(lambda: [].remove("what is left while all ends"))
"""


def test_python_says_nothing_of_an_interruption_that_it_drops_and_other_faults_are_told():
    ended = subprocess.run([sys.executable, "-c", DROPPING], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "interrupted\n"
    assert ended.stderr.count("Exception ignored") == 1
    assert "ZeroDivisionError" in ended.stderr
    assert "ValueError" not in ended.stderr


def test_what_a_plugin_raises_fails_its_trial_whatever_it_is(watching, make_spec):
    error, spec = ValueError("a bug"), make_spec(time_limit=TimeLimit(minutes=2, setting="timeout_minutes"))
    assert failure(error, spec) is error
    words = "a plugin tried to end the process. It may return, or raise an Exception. "
    for ending in (
        SystemExit(3),
        SystemExit("a text"),
        KeyboardInterrupt(),
        KeyboardInterrupt("a text"),
        GeneratorExit(),
    ):
        said = str(failure(ending, spec))
        assert said.startswith(f"{words}{type(ending).__name__}: its message may quote the forget set")
        assert "a text" not in said
    assert str(failure(SystemExit("a text"), replace(spec, samples="plain"))) == f"{words}SystemExit: a text"
    assert str(failure(TimeLimitExceeded(), spec)).startswith("it ran longer than timeout_minutes: 2 allows")
    with pytest.raises(Interrupted):
        failure(Interrupted(signal.SIGINT), spec)


def test_without_a_handler_of_ours_ctrl_c_stays_ctrl_c_and_what_says_more_is_a_plugins(make_spec):
    with pytest.raises(KeyboardInterrupt):
        failure(KeyboardInterrupt(), make_spec())
    assert isinstance(failure(KeyboardInterrupt("a text"), make_spec()), TrialError)


def test_clocks_tell_who_is_overdue_and_do_not_count_while_the_process_was_stopped():
    now = [0.0]
    clocks = Clocks(lambda: now[0])
    clocks.start("short", 15.0)
    clocks.start("long", 40.0)
    clocks.start("free", None)
    now[0] = 10.0
    assert clocks.overdue() == []
    now[0] = 5000.0  # Stopped, and continued: that counts as ten seconds.
    assert clocks.overdue() == ["short"]
    clocks.stop("short")
    now[0] = 5010.0
    assert clocks.overdue() == []
    now[0] = 5020.0
    assert clocks.overdue() == ["long"]
