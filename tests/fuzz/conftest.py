"""The fuzzer: seeded changes of good input, each of which must be accepted rightly, or refused by file and place.

A mutant is known by its kind and number; `MUTANT=number` in the environment tries that one alone, `MUTANTS=count` as
many as that.
"""

import copy
import json
import math
import os
import random
import resource
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.errors import ConfigError, LetheError

SECONDS = 5
BYTES = 2**30
SECRET = "Okonjo-Vandermeer"
"""In every text of test_texts.py, and in no refusal."""
ODD = (
    *(None, True, False, -1, 0, 1, 3, 10**30, 10**400, -(2**63), 2**63 - 1, 1e30, 1e308, 1e-320, -0.0, 0.5, 1e-7),
    *(math.nan, math.inf, -math.inf, "", " ", "x", "3", "1e5", "null", "on", "~nosuchuser/x", "a" * 300, "../..", "/"),
    *("[/x]", "[bold]", "a/b", "a/../b", "\0", "a\0b", "\x1b[2J", "\r", "a\nb", "\u202e", "\ud800", "é" * 200),
    *("/dev/zero", "/proc/self/mem", "%s", "{0}", "${HOME}", "emso\n", "*", "&a", "!!python/object:os.system x"),
    *([], [[]], [None], [1, 1], {}, {"": 1}, {"a": {"a": {"a": []}}}, ["x"] * 50, list(range(400)), [[1, 2], [3, 4]]),
)
"""Values that something somewhere takes for another."""


def places(tree, path=()):
    """Return the path of every value in a tree of lists and dictionaries."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [found for key, value in pairs for found in [(*path, key), *places(value, (*path, key))]]


def changed(tree, choice):
    """Return a copy of the tree with one value replaced, removed, moved, renamed, repeated or nested."""
    tree = copy.deepcopy(tree)
    paths = places(tree)
    if not paths:
        return choice.choice(ODD)
    *above, key = choice.choice(paths)
    inside = tree
    for part in above:
        inside = inside[part]
    other = choice.choice(paths)
    there = tree
    for part in other:
        there = there[part]
    how = choice.choice(("odd", "odd", "odd", "gone", "swap", "rename", "add", "nest", "repeat", "grow"))
    if how == "odd":
        inside[key] = copy.deepcopy(choice.choice(ODD))
    elif how == "gone":
        del inside[key]
    elif how == "swap":
        inside[key] = copy.deepcopy(there)
    elif how == "rename" and isinstance(inside, dict):
        inside[choice.choice((str(key) + "x", "", "\x1b", "a" * 300, str(other[-1])))] = inside.pop(key)
    elif how == "add" and isinstance(inside, dict):
        inside[choice.choice([str(path[-1]) for path in paths])] = copy.deepcopy(there)
    elif how == "nest":
        inside[key] = choice.choice(([inside[key]], {"a": inside[key]}, {str(key): inside[key]}))
    elif how == "repeat":
        inside[key] = [inside[key]] * choice.choice((2, 3, 40))
    elif isinstance(inside[key], int | float) and not isinstance(inside[key], bool):
        inside[key] = inside[key] * choice.choice((-1, 10, 1000, 10**9, 0.37))
    return tree


def damaged(content, choice):
    """Return bytes with a few of them flipped, cut out, put in, repeated or written in another encoding."""
    content = bytearray(content)
    for _ in range(choice.choice((1, 1, 1, 2, 5))):
        at, length = choice.randrange(len(content) + 1), choice.choice((1, 1, 2, 8, 100, 5000))
        how = choice.choice(("flip", "flip", "cut", "end", "insert", "repeat", "swap", "encode", "zero"))
        part = bytes(content[at : at + length])
        if how == "flip" and at < len(content):
            content[at] ^= 1 << choice.randrange(8)
        elif how == "cut":
            del content[at : at + length]
        elif how == "end":
            del content[at:]
        elif how == "insert":
            content[at:at] = choice.choice((choice.randbytes(length), b"\0", b"[" * length, b'"', b"\xff\xfe", b"\r\n"))
        elif how == "repeat":
            content[at:at] = part * choice.choice((1, 2, 30))
        elif how == "swap":
            other = choice.randrange(len(content) + 1)
            content[at : at + length] = content[other : other + length]
        elif how == "encode":
            text = bytes(content).decode(errors="replace")
            content = bytearray(text.encode(choice.choice(("utf-16", "utf-8-sig", "latin-1", "utf-32")), "replace"))
        else:
            content[at : at + length] = bytes(len(part))
    return bytes(content)


def as_json(tree, choice):
    """Return a tree as JSON text with numbers that JSON does not know; now and then with a key written twice."""
    text = json.dumps(tree, indent=choice.choice((None, 1)))
    if choice.random() < 0.05 and '": ' in text:
        at = text.index('"', choice.randrange(text.rindex('": ')))
        text = text[:at] + text[at:].partition(",")[0] + ", " + text[at:]
    return text.encode(errors="surrogatepass")


@contextmanager
def five_seconds():
    """Interrupt the block where it computes longer than that, or waits for something ten times as long."""

    def stop(number, _):
        raise TimeoutError(f"more than {SECONDS} s" if number == signal.SIGPROF else "waits for something")

    before = [signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 10 * SECONDS)
    try:
        yield
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


def finding(attempt, number, folder):
    """Return what is wrong with how a mutant is taken, '' if nothing is; `attempt` lists what a refusal must name."""
    choice, began = random.Random(number), time.process_time()
    named = []
    try:
        with five_seconds():
            attempt(choice, folder, named)
    except LetheError as error:
        return faulty_refusal(error, named)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {str(error)[:300]}"
    seconds = time.process_time() - began
    return f"{seconds:.1f} s" if seconds > SECONDS else ""


def faulty_refusal(error, named):
    """Return what is wrong with a refusal, '' if nothing is."""
    text = str(error)
    unnamed = [name for name in named if name not in text]
    if unnamed:
        return f"the refusal names no {unnamed[0]}: {text[:300]}"
    if SECRET in text:
        return f"the refusal shows a text: {text[:300]}"
    if len(text) > 100_000:
        return f"the refusal has {len(text)} characters"
    faults = error.faults if isinstance(error, ConfigError) else ()
    return "" if all(fault.path and fault.reason.strip() for fault in faults) else f"a fault says nothing: {faults}"


def in_child(attempt, numbers, folder):
    """Return the findings of mutants that a process of its own tried, with a gigabyte more than it began with."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + BYTES, held + BYTES))
        with os.fdopen(writer, "w") as told:
            for number in numbers:
                told.write(f"{number}\n")
                told.flush()
                if found := finding(attempt, number, folder):
                    told.write(json.dumps([number, found]) + "\n")
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        lines = [json.loads(line) for line in told]
    _, status = os.waitpid(child, 0)
    found = [tuple(line) for line in lines if isinstance(line, list)]
    tried = [line for line in lines if isinstance(line, int)]
    if status:
        found.append((tried[-1], f"the process died with status {status}"))
        found += in_child(attempt, [number for number in numbers if number > tried[-1]], folder)
    return found


@pytest.fixture
def fuzz(tmp_path, capfd):
    """Return a runner of mutants `0 ... count-1` of a kind; `is_apart` gives them a process with bounded memory."""

    def run(attempt, count, is_apart=False):
        only = os.environ.get("MUTANT")
        numbers = [int(only)] if only else range(int(os.environ.get("MUTANTS", count)))
        if is_apart:
            found = in_child(attempt, numbers, tmp_path)
        else:
            found = [(number, what) for number in numbers if (what := finding(attempt, number, tmp_path))]
        with capfd.disabled():
            for number, what in found[:40]:
                sys.stderr.write(f"MUTANT={number} {attempt.__qualname__}: {what}\n")
        first = f"MUTANT={found[0][0]} replays the first, {found[0][1]}" if found else ""
        assert not found, f"{len(found)} of {len(numbers)} mutants: {first}"

    return run


@pytest.fixture(scope="session")
def change():
    """Return the ways to make a mutant: of a tree, of bytes, and from a tree to JSON."""

    class Change:
        tree = staticmethod(changed)
        content = staticmethod(damaged)
        json = staticmethod(as_json)

    return Change
