"""Artifacts: complete or absent, and built once however many ask."""

import json
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from harness.records.artifacts import ABOUT, Artifacts

FORK = multiprocessing.get_context("fork")


def fill(folder):
    (folder / "weights").write_text("whole")
    (folder / "sub").mkdir()
    (folder / "sub" / "part").write_text("too")


def leftovers(artifacts):
    return [path.name for path in artifacts.root.glob("*/.*.tmp")]


def test_what_was_built_is_found_and_says_what_it_is(tmp_path):
    artifacts = Artifacts(tmp_path / "artifacts")
    assert artifacts.find("memorized", "abc") is None
    folder = artifacts.build("memorized", "abc", fill)
    assert folder == artifacts.find("memorized", "abc")
    assert (folder / "sub" / "part").read_text() == "too"
    about = json.loads((folder / ABOUT).read_text())
    assert (about["kind"], about["key"], about["created"][:2]) == ("memorized", ["abc"], "20")
    assert artifacts.find("memorized", "abd") is artifacts.find("arrays", "abc") is None
    assert leftovers(artifacts) == []


def test_a_maker_that_raises_leaves_nothing_and_the_next_one_succeeds(tmp_path):
    artifacts = Artifacts(tmp_path)

    def half(folder):
        fill(folder)
        raise ValueError("no space left")

    with pytest.raises(ValueError, match="no space left"):
        artifacts.build("memorized", "abc", half)
    assert artifacts.find("memorized", "abc") is None
    assert leftovers(artifacts) == []
    assert artifacts.build("memorized", "abc", fill).is_dir()


def _fill_and_die(folder):
    fill(folder)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_builder_that_is_killed_leaves_nothing_that_looks_complete(tmp_path):
    artifacts = Artifacts(tmp_path)
    builder = FORK.Process(target=artifacts.build, args=("memorized", "abc", _fill_and_die))
    builder.start()
    builder.join()
    assert builder.exitcode == -signal.SIGKILL
    assert len(leftovers(artifacts)) == 1
    assert artifacts.find("memorized", "abc") is None
    assert (artifacts.build("memorized", "abc", fill) / "weights").read_text() == "whole"
    assert leftovers(artifacts) == []


def _build_slowly(root, builds, go):
    def make(folder):
        with builds.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.3)
        fill(folder)

    go.wait()
    folder = Artifacts(root).build("memorized", "abc", make)
    assert (folder / "sub" / "part").read_text() == "too"


def test_of_several_processes_one_builds_and_the_others_wait(tmp_path):
    builds, go = tmp_path / "builds", FORK.Event()
    workers = [FORK.Process(target=_build_slowly, args=(tmp_path / "a", builds, go)) for _ in range(3)]
    for worker in workers:
        worker.start()
    go.set()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len(builds.read_text().splitlines()) == 1


def test_arrays_come_back_equal_and_are_made_once(tmp_path):
    made = {"features": np.arange(6, dtype=np.float32).reshape(2, 3).T, "mask": np.array([True, False])}
    made |= {"counts": np.array([[1], [2]]), "scalar": np.float64(np.nan), "empty": np.zeros((0, 3))}
    first = Artifacts(tmp_path).arrays(("mauve", "digest"), lambda: made)
    for artifact in (first, Artifacts(tmp_path).arrays(["mauve", "digest"], lambda: pytest.fail("made again"))):
        assert artifact.keys() == made.keys()
        for name, array in made.items():
            np.testing.assert_array_equal(artifact[name], array, strict=True)
    [about] = tmp_path.glob(f"arrays/*/{ABOUT}")
    assert json.loads(about.read_text())["key"] == ["mauve", "digest"]


def flip(file):
    contents = bytearray(file.read_bytes())
    contents[-1] ^= 1
    file.write_bytes(contents)


DAMAGES = {
    "a flipped bit": (lambda folder: flip(folder / "sub" / "part"), "sub/part is not what was written"),
    "cut short": (lambda folder: (folder / "weights").write_text("whol"), "weights is not what was written"),
    "gone": (lambda folder: (folder / "weights").unlink(), "weights is missing"),
    "one too many": (lambda folder: (folder / "sub" / "x").write_text(""), "sub/x was added"),
    "no about": (lambda folder: (folder / ABOUT).unlink(), "its about.json cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_named_removed_and_made_again(tmp_path, damage):
    (harm, clause), told = DAMAGES[damage], []
    artifacts = Artifacts(tmp_path, told.append)
    folder = artifacts.build("memorized", "abc", fill)
    other = artifacts.build("memorized", "abd", fill)
    harm(folder)
    assert (artifacts.find("memorized", "abc"), folder.exists()) == (None, False)
    assert told == [f"{folder} was damaged ({clause}), so it was removed and is built again"]
    assert artifacts.build("memorized", "abc", fill) == folder == artifacts.find("memorized", "abc")
    harm(folder)
    assert artifacts.build("memorized", "abc", fill) == folder == artifacts.find("memorized", "abc")
    assert (folder / "weights").read_text() == "whole"
    assert len(told) == 2
    assert artifacts.build("memorized", "abd", lambda folder: pytest.fail("made again")) == other
    assert leftovers(artifacts) == []
