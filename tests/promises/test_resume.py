"""A sweep that was killed, extended or damaged is the sweep that it would have been, and does nothing twice."""

import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from tests.promises.records_fixtures import COSTS, ROOT, commands, journal, kill_when, kinds

SWEEP = """# Is a sweep that was killed the sweep that it would have been?
name: small
models: [miniature-s]
data:
  forget: {source: miniature, sequences: 4, sequence_tokens: 32, prefix_tokens: 8}
  retain: {source: miniature, sequences: 4}
  utility: {source: miniature, prompts: 4, prompt_tokens: 16, reference_tokens: 16}
training: {learning_rate: 1.0e-3, global_batch: 4, early_stop: null}
memorized_model: {epochs: 2, gate: 0.1}
methods:
  emso: {epochs: [1, 2]}
  task_arithmetic: {gamma: [0.05]}
evaluators:
  memorization: {el_sequences: 2}
"""
ROW = ["variant", "strength", "seed"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("sweep") / "small.yaml"
    file.write_text(SWEEP)
    return file


@pytest.fixture(scope="module")
def undisturbed(file, tmp_path_factory):
    """The results of a sweep that nothing befell."""
    results = tmp_path_factory.mktemp("undisturbed")
    commands().sweep(file, results)
    return results


@pytest.fixture
def copied(undisturbed, tmp_path):
    return shutil.copytree(undisturbed, tmp_path / "results")


def table(results):
    """Return table.csv without what no two runs share, each cell as it is written."""
    frame = pd.read_csv(results / "small" / "table.csv", dtype=str, keep_default_na=False)
    return frame.drop(columns=COSTS).sort_values(ROW).reset_index(drop=True)


def rows(results):
    """Return a point's row of table.csv as text, by its variant, strength and seed."""
    return {tuple(row[name] for name in ROW): row for row in table(results).to_dict("records")}


def recorded(results):
    """Return how many records of each kind a sweep's journal holds."""
    return sum((kinds(lines) for lines in journal(results / "small").values()), start=Counter())


def is_planning(results, pid, begun):
    """Torch is imported when planning begins, and nothing is written before it ends."""
    return "libtorch_cpu" in Path(f"/proc/{pid}/maps").read_text() and not (results / "small").exists()


def is_erasing(results, pid, begun):
    return (recorded(results)["started"], recorded(results)["point"]) == (4, 3)


def is_measuring(results, pid, begun):
    return (recorded(results)["point"], recorded(results)["measurement"]) == (4, 3)


def is_past_half(results, pid, begun):
    return 4 <= recorded(results)["measurement"] < 6


def is_reporting(results, pid, begun):
    def is_written(name):
        return (results / "small" / name).exists() and (results / "small" / name).stat().st_mtime >= begun

    return recorded(results)["measurement"] == 6 and is_written("table.csv") and not is_written("report.html")


PLACES = {is_planning: "cold", is_erasing: "inline", is_measuring: "inline", is_past_half: "ray"}
PLACES |= {is_reporting: "inline"}
"""In the order of a sweep, and how the process runs that is killed there; `cold` is inline, with all of its imports."""


@pytest.fixture(scope="module")
def killed(file, tmp_path_factory):
    """A sweep's results, started and killed at each place one after the other, and its journal after each kill."""
    results, left = tmp_path_factory.mktemp("killed"), {}
    for is_there, executor in PLACES.items():
        begun, log = time.time(), results / "log"
        arguments = [str(file), "--executor", executor.replace("cold", "inline"), "--results", str(results)]
        if executor == "cold":
            command = [sys.executable, "-m", "harness.sweep", *arguments]
            with (
                log.open("w") as output,
                subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True) as process,
            ):
                kill_when(process.pid, is_there, results, begun)
            code = process.returncode
        else:
            pid = commands().start("harness.sweep", *arguments, log=log)
            kill_when(pid, is_there, results, begun)
            code = commands().end()
        left[is_there] = code, journal(results / "small")
    commands().sweep(file, results)
    return results, left


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_what_was_recorded_before_a_kill_stays_as_it_was(killed, place):
    results, left = killed
    code, before = left[place]
    assert code == -signal.SIGKILL
    after = journal(results / "small")
    for name, lines in before.items():
        whole = lines[: lines.rindex(b"\n") + 1]
        assert after[name].startswith(whole), f"{name} lost or changed a line"
    assert bool(before) == (place is not is_planning)


def test_killed_at_five_places_it_ends_with_the_same_table(killed, undisturbed):
    pd.testing.assert_frame_equal(table(killed[0]), table(undisturbed))
    assert len(table(undisturbed)) == 6


def test_killed_at_five_places_it_measured_nothing_twice(killed, undisturbed):
    assert recorded(killed[0])["measurement"] == recorded(undisturbed)["measurement"] == 6


def test_again_it_runs_nothing(copied, file):
    before, numbers = journal(copied / "small"), table(copied)
    commands().sweep(file, copied)
    assert journal(copied / "small") == before
    pd.testing.assert_frame_equal(table(copied), numbers)


SECOND = {("emso", "1.0", "1"), ("emso", "2.0", "1"), ("task_arithmetic", "0.05", "1")}
ADDED = {
    "strength": ("methods.emso.epochs=[1,2,3]", {("emso", "3.0", "0")}, 1),
    "seed": ("seeds=[0,1]", SECOND | {("original", "", "1"), ("retrained", "", "1")}, 5),
    "method": ("methods.gradient_ascent={epochs: [1]}", {("gradient_ascent", "1.0", "0")}, 1),
    "evaluator": ("evaluators.language_modelling={}", set(), 5),
}
"""What is added to the sweep file: the setting, the rows that the table gains, and how many measurements that takes.

Texts that were never seen are not written on, so the added evaluator measures the other five points.
"""


@pytest.mark.parametrize(("setting", "new", "measurements"), ADDED.values(), ids=ADDED)
def test_what_is_added_is_all_that_runs(copied, file, setting, new, measurements):
    before, lines = rows(copied), journal(copied / "small")
    had = recorded(copied)
    commands().sweep(file, copied, "--set", setting)
    after = rows(copied)
    assert after.keys() - before.keys() == new
    assert recorded(copied)["point"] - had["point"] == len(new)
    assert recorded(copied)["measurement"] - had["measurement"] == measurements
    for name, old in lines.items():
        assert journal(copied / "small")[name].startswith(old), f"{name} lost or changed a line"
    for row, cells in before.items():
        same = [name for name in ("el_3", "ma", "ss", "exact_match", "ma_low", "ma_high") if name in cells]
        assert len(same) == 6
        assert [after[row][name] for name in same] == [cells[name] for name in same]


@pytest.fixture(scope="module")
def repaired(undisturbed, file, tmp_path_factory):
    """Results of which a bit of each artifact was flipped and both methods' records are gone, run again."""
    results = shutil.copytree(undisturbed, tmp_path_factory.mktemp("damaged") / "results")
    for artifact in artifacts(results).values():
        content = bytearray(artifact.read_bytes())
        content[len(content) // 2] ^= 1
        artifact.write_bytes(content)
    frame = pd.read_csv(results / "small" / "table.csv")
    for trial in frame.loc[frame["variant"].isin(["emso", "task_arithmetic"]), "trial_id"]:
        (results / "small" / "journal" / f"{trial}.jsonl").unlink(missing_ok=True)
    printed = commands().sweep(file, results)
    return results, printed + (results / "small" / "report.html").read_text()


def artifacts(results):
    folder = results / "artifacts"
    return {str(file.relative_to(folder)): file for file in sorted(folder.rglob("*.safetensors"))}


@pytest.mark.parametrize(("kind", "least"), [("memorized", 1), ("arrays", 1), ("erased", 2)])
def test_a_flipped_bit_is_found_named_and_mended(repaired, undisturbed, kind, least):
    results, told = repaired
    sound = {name: file for name, file in artifacts(undisturbed).items() if name.startswith(kind)}
    named = [name for name in sound if re.search(rf"{re.escape(str(Path(name).parent))} was damaged", told)]
    assert len(named) >= least, told
    for name in named:
        assert artifacts(results)[name].read_bytes() == sound[name].read_bytes(), f"{name} is another one"


def test_after_flipped_bits_the_table_is_the_same(repaired, undisturbed):
    pd.testing.assert_frame_equal(table(repaired[0]), table(undisturbed))
