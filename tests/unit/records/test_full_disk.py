"""A disk that is full, read-only or without inodes, at every kind of write: one sentence, nothing left, and it goes on.

The disk is real: a small tmpfs, mounted where this user may. RLIMIT_FSIZE, which needs no right, is the second way.
"""

import os
import random
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from harness import cli, collate
from harness.base.files import folder_whole, write_whole
from harness.errors import StorageError
from harness.execution.inline import run_inline
from harness.execution.job import Folders
from harness.execution.jobs import jobs_for
from harness.execution.trial import inputs, judges
from harness.models.patch import save_patch
from harness.models.resolving import resolve_model
from harness.models.saving import save_model
from harness.records.artifacts import Artifacts
from harness.records.items import MetricItems
from harness.records.journal import Journal
from harness.records.record import Failed
from harness.records.results import read_results
from harness.specs import EvaluatorSpec
from harness.testing.small import small_spec

PAGE = 4096
SENTENCE = re.compile(
    r"^/\S+ cannot be written \(.+\): its disk is full \((it needs [\d,]+ bytes, and )?[\d,]+ bytes are free\)\. "
    r"Free space there and run the same command again\.$"
)


class Disk:
    """A mounted tmpfs."""

    def __init__(self, root):
        self.root, self._ballast = root, root / "ballast"

    def leave(self, pages):
        """Fill it, but for so many pages."""
        self._ballast.unlink(missing_ok=True)
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(PAGE))
        size = self._ballast.stat().st_size // PAGE * PAGE
        os.truncate(self._ballast, max(0, size - pages * PAGE))

    def free(self):
        self._ballast.unlink(missing_ok=True)

    def remount(self, how):
        subprocess.run(["mount", "-o", f"remount,{how}", self.root], check=True)


@pytest.fixture
def disk(tmp_path):
    """A disk of 2 MB and 400 inodes."""
    root = tmp_path / "disk"
    root.mkdir()
    options = ["-t", "tmpfs", "-o", "size=2m,nr_inodes=400", "tmpfs"]
    mounted = subprocess.run(["mount", *options, root], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"this user may not mount a tmpfs: {mounted.stderr.strip()}")
    yield Disk(root)
    subprocess.run(["umount", "--lazy", root], check=True)


@pytest.fixture(scope="module")
def tiny(make_model):
    return make_model(0, layers=2, hidden=8, heads=2, vocabulary=256, positions=64)


@pytest.fixture
def writes(tiny, make_spec, make_plan, make_measurement):
    """Every kind of write below a folder, by name: each a function of the folder, that says what to look for."""
    spec = make_spec()
    failed = Failed(trial_id="t", error="x" * 9000, log=())
    items = {"ma": MetricItems(tuple(map(str, range(99))), ("0",) * 99, np.random.rand(99), np.ones(99))}

    def artifact(kind, make):
        return lambda folder: Artifacts(folder / "artifacts").build(kind, "k", make)

    def exported(folder):
        with folder_whole(folder / "out", "the erased model", "refuse") as out:
            save_model(tiny, out)

    def arrays(folder):
        Artifacts(folder / "artifacts").arrays(["k"], lambda: {"a": np.ones(5000)})

    patch = partial(save_patch, tiny, ["L0.W_v.H0", "L1.W_v.H1"], "0" * 16)
    return {
        "journal": lambda folder: Journal(folder / "journal").append(failed),
        "plan": lambda folder: Journal(folder / "journal").write_plan(make_plan(spec)),
        "items": lambda folder: Journal(folder / "s" / "journal").append_measurement(make_measurement(spec, 1), items),
        "weights": artifact("memorized", partial(save_model, tiny)),
        "patch": artifact("erased", lambda folder: patch(folder / "patch.safetensors")),
        "arrays": arrays,
        "table": lambda folder: write_whole(folder / "s" / "table.csv", "x,y\n" * 5000),
        "export": exported,
    }


KINDS = ("journal", "plan", "items", "weights", "patch", "arrays", "table", "export")


def names(root):
    """What is on the disk but for its ballast and the locks, which stay."""
    paths = (path for path in root.rglob("*") if ".locks" not in path.parts and path.name != "ballast")
    return sorted(path.relative_to(root).as_posix() for path in paths if path.is_file())


def attempt(write, folder):
    """Return the sentence with which a write ended, None if it was done."""
    try:
        write(folder)
    except StorageError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_is_one_sentence_and_nothing_is_left_of_the_write(disk, writes, kind):
    """From no free page on, one more each time, until it fits."""
    write, ended = writes[kind], []
    for pages in (0, 1, 3, 9, 27, 81):
        disk.leave(pages)
        sentence = attempt(write, disk.root)
        ended.append(sentence)
        if sentence is None:
            break
        assert SENTENCE.match(sentence), sentence
        assert "/." not in sentence.split(" cannot")[0], "the final name is told"
        assert names(disk.root) == []
    assert ended[0] is not None
    assert ended[-1] is None
    whole = names(disk.root)
    assert whole
    assert not [name for name in whole if "/." in f"/{name}"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_there_before_is_there_after_a_write_that_failed(disk, writes, kind):
    write = writes[kind]
    write(disk.root)
    before = {name: (disk.root / name).read_bytes() for name in names(disk.root)}
    disk.leave(0)
    attempt(write, disk.root)
    assert {name: (disk.root / name).read_bytes() for name in names(disk.root)} == before


def test_a_line_that_did_not_fit_leaves_the_journal_as_it_was(disk, writes):
    journal = Journal(disk.root)
    small = Failed(trial_id="t", error="small", log=())
    journal.append(small)
    disk.leave(1)
    with pytest.raises(StorageError, match=r"it needs 9,\d+ bytes"):
        journal.append(Failed(trial_id="t", error="x" * 9000, log=()))
    assert (disk.root / "t.jsonl").read_bytes().endswith(b"\n")
    assert journal.read("t") == [small]
    disk.free()
    journal.append(small)
    assert journal.read("t") == [small, small]


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def results(disk, make_plan, make_row, make_measurement):
    """A sweep's results on the small disk, with no table made of them yet."""
    journal = Journal(disk.root / "s" / "journal")
    rows = [make_row("original"), make_row("emso", (1, 2)), make_row("gradient_ascent", (1, 2))]
    journal.write_plan(make_plan(*rows))
    for row in rows:
        for strength in row.points():
            numbers = {"ma": 0.5, "el_3": 0.2}
            journal.append(make_measurement(row, strength, numbers=numbers))
            journal.append(make_measurement(row, strength, "generation", {"perplexity": 3.0, "mauve": 0.5}))
    return disk.root / "s"


def collated_at(disk, results, free_pages, capsys):
    """Collate at each number of free pages: it ends in the sentence or is done; then what is left is as after one."""
    assert collate.main([str(results)]) == 0
    whole = contents(results)
    made = [path for path in results.rglob("*") if path.is_file() and path.parent.name != "journal"]
    ended = set()
    for pages in free_pages:
        for path in made:
            path.unlink(missing_ok=True)
        disk.leave(pages)
        capsys.readouterr()
        code = collate.main([str(results)])
        said = capsys.readouterr().err
        ended.add(code)
        if code:
            assert code == 1
            assert SENTENCE.match(said.strip()), said
        assert not [name for name in names(results) if name.startswith(".")]
        disk.free()
    assert collate.main([str(results)]) == 0
    assert contents(results) == whole
    return ended


def test_the_report_of_a_full_disk_is_made_once_there_is_room(disk, results, capsys):
    disk.remount("size=8m")
    assert collated_at(disk, results, [40], capsys) == {1}


@pytest.mark.soak
def test_the_report_at_every_fullness(disk, results, capsys):
    disk.remount("size=8m")
    free = sorted(random.Random(13).sample(range(400), 40))
    assert collated_at(disk, results, [*range(12), *free], capsys) == {0, 1}


def test_collate_ends_with_1_and_the_sentence(disk, results, capsys):
    disk.leave(0)
    assert cli.main(["collate", str(results), "--out", str(disk.root / "out")]) == 1
    assert "cannot be written" in capsys.readouterr().err


@pytest.fixture
def quick_trial(world, encoder):
    """A trial of a second, that writes a memorised model, arrays, an erased model, items and a journal."""
    settings = {"el_sequences": 1, "el_prefixes": 1}
    spec = small_spec("memorized_model")
    return replace(
        spec,
        trial_id="task_arithmetic",
        method="task_arithmetic",
        strength_name="gamma",
        strengths=(0.5,),
        keep_erased="all",
        evaluators=(EvaluatorSpec(name="memorization", version=1, settings=settings, key="memorization-key"),),
        model=resolve_model(str(world / "MODEL")),
        forget=replace(spec.forget, sequences=2, sequence_tokens=48, prefix_tokens=24),
        judges={"similarity": resolve_model(str(encoder))},
    )


def run_through(disk, plan, watch=lambda event: None):
    """Run what is left of a plan, as a sweep does; return each trial's numbers, by their status."""
    folders = Folders(results=disk.root / "s", artifacts=disk.root / "artifacts")
    judges.JUDGES.__init__()
    inputs.clear_shared()
    journal = Journal(folders.results / "journal")
    run_inline(jobs_for(read_results(plan, journal), folders), folders, watch)
    results = read_results(plan, journal)
    return {
        trial.status: [dict(measurement.numbers) for point in trial.points for measurement in point.measurements]
        for trial in results.trials
    }


def ended_at(disk, plan, pages):
    """Run with so many free pages, then with room; return how the first ended and the numbers of the second."""
    subprocess.run(["rm", "-rf", disk.root / "s", disk.root / "artifacts"], check=True)
    disk.leave(pages)
    told = []
    try:
        first = next(iter(run_through(disk, plan, lambda event: told.append((event.kind, event.message)))))
    except StorageError as error:
        first = "the journal" if SENTENCE.match(str(error)) else str(error)
    if first == "failed":
        assert any(kind == "failed" and "its disk is full" in message for kind, message in told)
    assert not [name for name in names(disk.root) if "/." in f"/{name}"]
    disk.free()
    [(status, numbers)] = run_through(disk, plan).items()
    assert status == "done"
    return first, numbers


def test_a_trial_on_a_full_disk_fails_and_the_same_run_finishes_it_later(disk, make_plan, quick_trial):
    plan = make_plan(quick_trial)
    ends = [ended_at(disk, plan, pages) for pages in (0, 12)]
    assert [how for how, _ in ends] == ["the journal", "failed"]
    assert repr(ends[0][1]) == repr(ends[1][1])


@pytest.mark.soak
def test_a_trial_at_every_fullness(disk, make_plan, quick_trial):
    plan = make_plan(quick_trial)
    _, numbers = ended_at(disk, plan, 10_000)
    ends = [ended_at(disk, plan, pages) for pages in range(0, 120, 3)]
    assert {how for how, _ in ends} == {"the journal", "failed", "done"}
    assert all(repr(again) == repr(numbers) for _, again in ends)


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path, tiny):
    """In a child that exits in the middle of a file and of a folder, as under kill -9."""
    child = os.fork()
    if not child:
        with folder_whole(tmp_path / "model", "a model", "refuse") as folder:
            (folder / "half").touch()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Path, "replace", lambda *names: os._exit(9))
                write_whole(tmp_path / "table.csv", "half")
    os.waitpid(child, 0)
    left = list(tmp_path.iterdir())
    assert sorted(re.sub(r"\.[0-9a-f]{8}\.", ".*.", path.name) for path in left) == [".model.*.tmp", ".table.csv.*.tmp"]
    for path in left:
        os.utime(path, (0, 0))
    write_whole(tmp_path / "table.csv", "whole")
    with folder_whole(tmp_path / "model", "a model", "refuse") as folder:
        save_model(tiny, folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "table.csv"]


def test_what_others_are_writing_is_left_alone(tmp_path):
    with folder_whole(tmp_path / "model", "a model", "keep") as first:
        os.utime(first, (0, 0))
        with folder_whole(tmp_path / "model", "a model", "keep") as second:
            (second / "whole").touch()
        assert first.is_dir()
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["whole"], "the first one that is through stays"


SWEEP = """# What fits?
name: full
models: [MODEL]
data:
  forget: {source: miniature, sequences: 4}
  utility: {source: miniature, prompts: 4}
methods:
  emso: {epochs: [1]}
  gradient_ascent: {epochs: [1]}
evaluators: {memorization: {el_sequences: 1, el_prefixes: 1}}
judges: {similarity: ENCODER}
"""


@pytest.mark.soak
@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_a_sweep_at_every_fullness(disk, world, encoder, tmp_path, executor):
    """The command itself, in a process of its own: it ends with 1 and a sentence, and later with the same table."""
    disk.remount("size=16m")
    file = tmp_path / "full.yaml"
    file.write_text(SWEEP.replace("MODEL", str(world / "MODEL")).replace("ENCODER", str(encoder)))
    results = disk.root / "results"
    command = [sys.executable, "-m", "harness.sweep", str(file), "--results", str(results), "--executor", executor]

    def sweep():
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    def table():
        rows = [line.split(",") for line in (results / "full" / "table.csv").read_text().splitlines()]
        kept = [number for number, name in enumerate(rows[0]) if not name.endswith(("seconds", "bytes"))]
        return [[row[number] for number in kept] for row in rows]

    assert sweep().returncode == 0
    expected = table()
    codes = set()
    for pages in (0, 5, 20, 60, 150, 300, 500):
        subprocess.run(["rm", "-rf", results], check=True)
        disk.leave(pages)
        ran = sweep()
        codes.add(ran.returncode)
        assert ran.returncode in (0, 1)
        assert "Traceback" not in ran.stderr + ran.stdout, ran.stderr
        assert ran.returncode == 0 or "its disk is full" in ran.stderr + ran.stdout
        assert not [name for name in names(disk.root) if re.search(r"\.tmp$|/\.building", name)]
        disk.free()
        again = sweep()
        assert again.returncode == 0, again.stderr
        assert table() == expected
    assert 1 in codes
