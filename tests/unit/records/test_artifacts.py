"""Artifacts: complete or absent, and built once however many ask."""

import json
import multiprocessing
import os
import shutil
import signal
import time

import numpy as np
import pytest

from harness import records
from harness.errors import PluginError
from harness.records.artifacts import ABOUT, Artifacts

FORK = multiprocessing.get_context("fork")


def fill(folder):
    (folder / "weights").write_text("whole")
    (folder / "sub").mkdir()
    (folder / "sub" / "part").write_text("too")


def leftovers(artifacts):
    return [path.name for path in artifacts.root.glob("*/.building-*")]


def test_what_was_built_is_found_and_says_what_it_is(tmp_path):
    artifacts = Artifacts(tmp_path / "artifacts")
    assert artifacts.find("memorized", "abc") is None
    folder = artifacts.build("memorized", "abc", fill)
    assert folder == artifacts.find("memorized", "abc")
    assert (folder / "sub" / "part").read_text() == "too"
    about = json.loads((folder / ABOUT).read_text())
    assert (about["kind"], about["key"]) == ("memorized", ["abc"])
    assert about["created"].startswith("20")
    assert artifacts.find("memorized", "abd") is None
    assert artifacts.find("arrays", "abc") is None
    assert leftovers(artifacts) == []


def test_it_is_made_once_and_is_open_to_other_users(tmp_path):
    artifacts = Artifacts(tmp_path)
    folder = artifacts.build("memorized", "abc", fill)
    assert Artifacts(tmp_path).build("memorized", "abc", lambda folder: pytest.fail("made again")) == folder
    plain = tmp_path / "plain"
    plain.mkdir()
    assert folder.stat().st_mode == plain.stat().st_mode


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


def _die_while_building(root, key):
    def half(folder):
        fill(folder)
        os.kill(os.getpid(), signal.SIGKILL)

    Artifacts(root).build("memorized", key, half)


def _killed(root, key):
    builder = FORK.Process(target=_die_while_building, args=(root, key))
    builder.start()
    builder.join()
    assert builder.exitcode == -signal.SIGKILL


def test_a_builder_that_is_killed_leaves_nothing_that_looks_complete(tmp_path):
    artifacts = Artifacts(tmp_path)
    _killed(tmp_path, "abc")
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


def test_different_keys_do_not_wait_for_each_other(tmp_path):
    artifacts = Artifacts(tmp_path)
    artifacts.build("memorized", "a", lambda folder: artifacts.build("memorized", "b", fill) and None)
    assert artifacts.find("memorized", "a")
    assert artifacts.find("memorized", "b")


def test_arrays_come_back_equal_and_are_made_once(tmp_path):
    artifacts = Artifacts(tmp_path)
    made = {
        "features": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "counts": np.array([[1], [2]]),
        "mask": np.array([True, False]),
        "scalar": np.float64(np.nan),
        "empty": np.zeros((0, 3)),
    }
    first = artifacts.arrays(("mauve", "digest"), lambda: made)
    again = Artifacts(tmp_path).arrays(["mauve", "digest"], lambda: pytest.fail("made again"))
    for artifact in (first, again):
        assert artifact.keys() == made.keys()
        for name, array in made.items():
            np.testing.assert_array_equal(artifact[name], array)
            assert artifact[name].dtype == array.dtype
            assert artifact[name].shape == np.shape(array)
    [about] = tmp_path.glob(f"arrays/*/{ABOUT}")
    assert json.loads(about.read_text())["key"] == ["mauve", "digest"]


def test_arrays_of_different_keys_differ_even_where_their_parts_join_to_the_same_text(tmp_path):
    artifacts = Artifacts(tmp_path)
    assert artifacts.arrays(("a", "bc"), lambda: {"x": np.array(1)})["x"] == 1
    assert artifacts.arrays(("ab", "c"), lambda: {"x": np.array(2)})["x"] == 2


@pytest.mark.parametrize("array", [np.array(["a text"]), np.array([object()]), np.array([b"bytes"])])
def test_arrays_of_anything_but_numbers_are_refused(tmp_path, array):
    with pytest.raises(PluginError, match="'texts' cannot be shared"):
        Artifacts(tmp_path).arrays(("key",), lambda: {"texts": array})
    assert list(tmp_path.glob("arrays/*/about.json")) == []


def flip(file):
    contents = bytearray(file.read_bytes())
    contents[-1] ^= 1
    file.write_bytes(contents)


DAMAGES = {
    "a flipped bit": (lambda folder: flip(folder / "sub" / "part"), "sub/part is not what was written"),
    "cut short": (lambda folder: (folder / "weights").write_text("whol"), "weights is not what was written"),
    "empty": (lambda folder: (folder / "weights").write_text(""), "weights is not what was written"),
    "gone": (lambda folder: (folder / "weights").unlink(), "weights is missing"),
    "one too many": (lambda folder: (folder / "sub" / "x").write_text(""), "sub/x was added"),
    "no about": (lambda folder: (folder / ABOUT).unlink(), "its about.json cannot be read"),
    "garbage for about": (lambda folder: (folder / ABOUT).write_bytes(b"\xff{"), "its about.json cannot be read"),
    "another's about": (lambda folder: (folder / ABOUT).write_text("[]"), "its about.json cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_named_removed_and_made_again(tmp_path, damage):
    harm, clause = DAMAGES[damage]
    told = []
    artifacts = Artifacts(tmp_path, told.append)
    folder = artifacts.build("memorized", "abc", fill)
    other = artifacts.build("memorized", "abd", fill)
    harm(folder)
    assert artifacts.find("memorized", "abc") is None
    assert not folder.exists()
    assert told == [f"{folder} was damaged ({clause}), so it was removed and is built again"]
    assert artifacts.build("memorized", "abc", fill) == folder == artifacts.find("memorized", "abc")
    harm(folder)
    assert artifacts.build("memorized", "abc", fill) == folder == artifacts.find("memorized", "abc")
    assert (folder / "weights").read_text() == "whole"
    assert len(told) == 2
    assert artifacts.build("memorized", "abd", lambda folder: pytest.fail("made again")) == other
    assert leftovers(artifacts) == []


def test_an_artifact_that_belongs_elsewhere_is_not_used(tmp_path):
    told = []
    artifacts = Artifacts(tmp_path, told.append)
    artifacts.build("memorized", "abc", fill).rename(tmp_path / "memorized" / "abd")
    assert artifacts.find("memorized", "abd") is None
    assert "(it belongs elsewhere)" in told[0]
    artifacts.arrays(("a", "b"), lambda: {"x": np.array(1)})
    [about] = tmp_path.glob(f"arrays/*/{ABOUT}")
    about.parent.rename(tmp_path / "arrays" / "other")
    assert artifacts.find("arrays", "other") is None


@pytest.mark.parametrize("harm", [flip, lambda file: file.write_bytes(file.read_bytes()[:-1])], ids=["flip", "cut"])
def test_damaged_arrays_are_computed_again_and_are_what_they_were(tmp_path, capsys, harm):
    made = {"features": np.linspace(0, 1, 7, dtype=np.float32)}
    artifacts = Artifacts(tmp_path)
    artifacts.arrays(("key",), lambda: made)
    [file] = tmp_path.glob("arrays/*/*.safetensors")
    harm(file)
    calls = []
    for _ in range(2):
        found = artifacts.arrays(("key",), lambda: calls.append("made") or made)
        np.testing.assert_array_equal(found["features"], made["features"])
    assert calls == ["made"]
    assert f"{file.parent} was damaged (arrays.safetensors is not what was written)" in capsys.readouterr().err


def test_whether_something_is_there_is_told_without_reading_it(tmp_path):
    artifacts = Artifacts(tmp_path)
    assert not artifacts.has("memorized", "abc")
    flip(artifacts.build("memorized", "abc", fill) / "weights")
    assert artifacts.has("memorized", "abc")


def test_one_that_another_process_removes_while_it_is_looked_at_is_not_there(tmp_path, monkeypatch):
    artifacts = Artifacts(tmp_path)
    folder = artifacts.build("memorized", "abc", fill)
    read = records.artifacts.read_file

    def read_and_lose(*arguments):
        text = read(*arguments)
        shutil.rmtree(folder)
        return text

    monkeypatch.setattr(records.artifacts, "read_file", read_and_lose)
    assert artifacts.find("memorized", "abc") is None


def _find_and_build(root, builds, told, go, look):
    def make(folder):
        with builds.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.3)
        fill(folder)

    def warn(message):
        with told.open("a") as file:
            file.write(f"{message}\n")

    artifacts = Artifacts(root, warn)
    go.wait()
    if look:
        artifacts.find("memorized", "abc")
    folder = artifacts.build("memorized", "abc", make)
    assert (folder / "weights").read_text() == "whole"


def test_of_several_processes_that_find_the_same_damage_one_removes_and_one_builds(tmp_path):
    builds, told, go = tmp_path / "builds", tmp_path / "told", FORK.Event()
    flip(Artifacts(tmp_path / "a").build("memorized", "abc", fill) / "weights")
    workers = [
        FORK.Process(target=_find_and_build, args=(tmp_path / "a", builds, told, go, number % 2)) for number in range(4)
    ]
    for worker in workers:
        worker.start()
    go.set()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    assert len(builds.read_text().splitlines()) == 1
    assert len(told.read_text().splitlines()) == 1
    assert leftovers(Artifacts(tmp_path / "a")) == []
