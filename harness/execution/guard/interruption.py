"""What ends a trial or a whole sweep before its time, raised in the main thread until somebody has heard it.

An exception that comes out of nowhere is easily lost: Python drops one that is raised in a finaliser or in a callback
of an import, and libraries have bare `except:`. So what is due is raised again every two seconds, until `heard` is
called. While a module is imported, it waits: torch clears what is raised while it imports NumPy, and its C++ aborts
where it expects nothing. Signals are seen by a thread of its own too, also while the main thread is deep in C code:
there the second one ends the process at once.

Nothing here helps against C code that never returns and never lets another thread run: such a process must be killed.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a sweep: Ctrl-C, a scheduler or `kill`, a terminal that was closed."""
AGAIN_SECONDS = 2.0
"""How long until something that nobody has heard is raised again."""
SAME_SECONDS = 0.05
"""Signals within this time count as one: `timeout`, or a scheduler, signals a process and then its group."""
LONGEST_TICK_SECONDS = 10.0
"""The most that counts between two looks at the clock: a process that was stopped did not run."""
IMPORT_SECONDS = 15.0
"""How long an import may delay what is due."""
_TICK_SECONDS = 0.2
_WAKE = b"\0"
_SO_TIMESTAMP = 29
"""On Linux: a message holds the time when it was sent. Python has no name for this option."""
_STOPPING = b"\nStopping; what is measured is kept. Once more ends at once.\n"
_SHOW_CURSOR = b"\x1b[?25h"


class Interrupted(KeyboardInterrupt):
    """A signal asked the sweep to end."""

    def __init__(self, signal_number: int) -> None:
        super().__init__()
        self.exit_code = 128 + signal_number


class TimeLimitExceeded(BaseException):
    """A trial ran longer than it may; no plugin's `except Exception` takes it."""


@dataclass
class _Limit:
    seconds_left: float


class Interruption:
    """What is due to be raised in this process's main thread."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self.is_watched = False
        self.is_broken = False
        """Whether this process can no longer end in good order, for instance because Ray died."""
        self._due: Callable[[], BaseException] | None = None
        self._raised_at = -math.inf
        self._deferrals = 0
        self._import_seen_at: float | None = None
        """When an import first delayed what is due."""
        self._signal: int | None = None
        self._announced: int | None = None
        """The signal that was written to the terminal."""
        self._announced_at = 0.0
        self._raised: type[BaseException] | None = None
        self._limit: _Limit | None = None
        self._handlers: dict[int, Callable[[int, FrameType | None], None]] = {}
        self._cleanups: list[Callable[[], None]] = []

    @contextmanager
    def watched(self, *, signals: bool = False) -> Iterator[None]:
        """Meanwhile raise what is due; `Interrupted` after a signal too, if `signals` are to be watched.

        Outside of the main thread, and where it is watched already, this does nothing. A signal that is ignored when
        this begins (under nohup, say) stays so.
        """
        if self.is_watched or threading.current_thread() is not threading.main_thread():
            yield
            return
        self._forget()
        watched = [signum for signum in SIGNALS if signals and signal.getsignal(signum) is not signal.SIG_IGN]
        self._handlers = dict.fromkeys(watched, self._on_signal)
        self._handlers[signal.SIGALRM] = lambda signum, frame: self._raise()
        before = {signum: signal.getsignal(signum) for signum in self._handlers}
        reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        writer.setblocking(False)
        if sys.platform == "linux":
            reader.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMP, 1)
        watcher = threading.Thread(target=self._watch, args=(reader,), name="lethe-interruption", daemon=True)
        self.is_watched = True
        watcher.start()
        pipe_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        hook_before, sys.unraisablehook = sys.unraisablehook, partial(self._on_unraisable, sys.unraisablehook)
        try:
            self.take_signals()
            yield
        finally:
            self.is_watched, self._handlers = False, {}
            sys.unraisablehook = hook_before
            for signum, handler in before.items():
                signal.signal(signum, handler or signal.SIG_DFL)
            signal.set_wakeup_fd(pipe_before)
            with suppress(OSError):  # The pipe is full of signals, so the thread wakes anyway.
                writer.send(_WAKE)
            watcher.join()
            reader.close()
            writer.close()

    def take_signals(self) -> None:
        """Put the handlers in place, again where a library put its own there."""
        if threading.current_thread() is threading.main_thread():
            for signum, handler in self._handlers.items():
                signal.signal(signum, handler)

    @property
    def takes_signals(self) -> bool:
        """Return whether signals become `Interrupted`."""
        return signal.SIGTERM in self._handlers or signal.SIGINT in self._handlers

    @property
    def is_signalled(self) -> bool:
        """Return whether a signal asked the sweep to end."""
        return self._signal is not None

    @property
    def exit_code(self) -> int:
        """Return the exit code for the signal that came; for Ctrl-C, if none was watched."""
        return 128 + (self._signal or signal.SIGINT)

    def led_to(self, error: BaseException) -> bool:
        """Return whether a signal caused an error, whatever a library made of it."""
        return self.is_signalled or isinstance(error, KeyboardInterrupt)

    def check(self) -> None:
        """Raise `Interrupted` if a signal asked the sweep to end."""
        if self._signal is not None:
            raise Interrupted(self._signal)

    def raise_in_main(self, make: Callable[[], BaseException]) -> None:
        """Raise what `make` returns in the main thread, from any thread, unless something else is due."""
        if self.is_watched and self._due is None:
            self._due = make
            self._wake()

    def heard(self) -> None:
        """Note that the code it was meant for has caught what was raised."""
        if self._due is TimeLimitExceeded:  # The code that caught it may take a while within the block.
            self._limit = None
        self._due = None

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Raise nothing inside; what became due meanwhile is raised at the end."""
        self._deferrals += 1
        try:
            yield
        finally:
            self._deferrals -= 1
        self._raise()

    @contextmanager
    def limited(self, seconds: float | None) -> Iterator[None]:
        """Raise `TimeLimitExceeded` inside once it has run for so long.

        Where nothing is watched, this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._limit = None if seconds is None else _Limit(seconds)
        try:
            yield
        finally:
            self._limit = None

    @contextmanager
    def cleaning_up(self, cleanup: Callable[[], None]) -> Iterator[None]:
        """Call `cleanup` if the process is ended at once inside."""
        self._cleanups.append(cleanup)
        try:
            yield
        finally:
            self._cleanups.remove(cleanup)

    def end_at_once(self, exit_code: int) -> None:
        """End this process here and now, from any thread; nothing that it is doing is finished."""
        for cleanup in reversed(self._cleanups):
            with suppress(Exception):
                cleanup()
        with suppress(Exception):
            if sys.stdout.isatty():
                os.write(sys.stdout.fileno(), _SHOW_CURSOR)  # A live view hides it.
        os._exit(exit_code)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self._signal is None:  # The thread takes care of a second one.
            self._signal = signum
            self._due = partial(Interrupted, signum)
            self._raise()

    def _raise(self) -> None:
        if self._due is TimeLimitExceeded and (self._limit is None or self._limit.seconds_left > 0):
            self._due = None  # The trial ended just before this thread noticed its limit.
        if self._due is not None and not self._deferrals and not self._must_wait_for_import():
            self._raised_at = time.monotonic()
            error = self._due()
            self._raised = type(error)  # Not the error itself: it holds the frames of a trial, and so its model.
            raise error

    def _on_unraisable(self, before: Callable[[sys.UnraisableHookArgs], object], args: sys.UnraisableHookArgs) -> None:
        """Stay silent about what Python dropped and is raised again, and about leftovers while a sweep ends."""
        if self._due is not None and args.exc_type is self._raised:
            self._raised_at = -math.inf  # Nobody heard it.
        elif not self.is_signalled:
            before(args)

    def _must_wait_for_import(self) -> bool:
        if not is_importing():
            self._import_seen_at = None
            return False
        self._import_seen_at = self._import_seen_at or time.monotonic()
        return time.monotonic() - self._import_seen_at < IMPORT_SECONDS

    def _wake(self) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    def _watch(self, reader: socket.socket) -> None:
        before = time.monotonic()
        while self.is_watched:
            if select.select([reader], [], [], _TICK_SECONDS)[0]:
                self._count(reader)
            now = time.monotonic()
            self._tick(now, now - before)
            before = now

    def _count(self, reader: socket.socket) -> None:
        data, about, _, _ = reader.recvmsg(1, 64)
        # The time when it was sent: under load this thread reads it later.
        seconds, microseconds = struct.unpack("ll", about[0][2]) if about else (time.time(), 0)
        signum, sent_at = data[0], seconds + microseconds / 1e6
        if signum not in SIGNALS:
            return
        if self._announced is None:
            self._announced, self._announced_at = signum, sent_at
            with suppress(OSError):
                os.write(2, _STOPPING)
        elif sent_at - self._announced_at > SAME_SECONDS and signum != signal.SIGHUP:
            # A terminal that closes sends several SIGHUP: its shell passes them on.
            self.end_at_once(128 + self._announced)

    def _tick(self, now: float, seconds: float) -> None:
        limit = self._limit  # The main thread may put another in its place meanwhile.
        if limit is not None:
            limit.seconds_left -= min(seconds, LONGEST_TICK_SECONDS)
            if limit.seconds_left <= 0 and self._due is None:
                self._due = TimeLimitExceeded
                self._raised_at = -math.inf
        if self._due is not None and not self._deferrals and now - self._raised_at > AGAIN_SECONDS:
            self._wake()


def is_importing() -> bool:
    """Return whether the code that runs, or that a signal interrupted, is part of an import."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
    return False


INTERRUPTION = Interruption()
"""The one of this process, which has one set of signal handlers."""
