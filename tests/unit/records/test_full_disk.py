"""A full disk at every kind of write: one sentence with the path, nothing half written, and later it goes on.

The disk is real: a small tmpfs, mounted where this user may.
"""

import os
import subprocess
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from harness.base.files import write_whole
from harness.errors import StorageError
from harness.execution import jobs, trial
from harness.models.loading import save_model
from harness.models.resolving import resolve_model
from harness.records import artifacts, results
from harness.records.items import MetricItems, write_items
from harness.records.journal import Failed, Journal
from harness.settings import EvaluatorSpec, replace
from harness.testing import small_spec

PAGE = 4096


class Disk:
    """A mounted tmpfs."""

    def __init__(self, root):
        self.root, self._ballast = root, root / "ballast"

    def leave(self, pages):
        """Fill it, except for so many pages."""
        self._ballast.unlink(missing_ok=True)
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(PAGE))
        os.truncate(self._ballast, max(0, self._ballast.stat().st_size // PAGE - pages) * PAGE)

    def free(self):
        self._ballast.unlink(missing_ok=True)

    def files(self):
        """Return the files except for the ballast and the locks, which stay, with their contents."""
        paths = (path for path in self.root.rglob("*") if path.is_file() and ".locks" not in path.parts)
        return {path.relative_to(self.root): path.read_bytes() for path in paths if path != self._ballast}


@pytest.fixture
def disk(tmp_path):
    root = tmp_path / "disk"
    root.mkdir()
    options = ["-t", "tmpfs", "-o", "size=2m,nr_inodes=400", "tmpfs"]
    mounted = subprocess.run(["mount", *options, root], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"this user may not mount a tmpfs: {mounted.stderr.strip()}")
    yield Disk(root)
    subprocess.run(["umount", "--lazy", root], check=True)


@pytest.fixture
def writes(make_model, make_spec, make_plan):
    """Return every kind of write below a folder, by name."""
    items = {"ma": MetricItems(tuple(map(str, range(99))), ("0",) * 99, np.random.rand(99), np.ones(99))}
    save = partial(save_model, make_model(0, layers=2, hidden=8, heads=2, vocabulary=256, positions=64))
    return {
        "plan": lambda folder: Journal(folder / "journal").write_plan(make_plan(make_spec())),
        "items": lambda folder: write_items(folder / "s" / "items.parquet", items),
        "weights": lambda folder: artifacts.Artifacts(folder / "artifacts").build("memorized", "k", save),
        "arrays": lambda folder: artifacts.Artifacts(folder / "artifacts").arrays(["k"], lambda: {"a": np.ones(5000)}),
        "table": lambda folder: write_whole(folder / "s" / "table.csv", "x,y\n" * 5000),
    }


@pytest.mark.parametrize("kind", ["plan", "items", "weights", "arrays", "table"])
def test_a_write_on_a_full_disk_is_one_sentence_and_leaves_no_half_file(disk, writes, kind):
    for pages in (0, 1, 3):
        disk.leave(pages)
        try:
            writes[kind](disk.root)
            break
        except StorageError as error:
            sentence = str(error)
        assert (str(disk.root) in sentence, "No space left on device" in sentence) == (True, True)
        assert not any(disk.files().values())
    disk.free()
    if not any(disk.files().values()):
        writes[kind](disk.root)
    whole = disk.files()
    assert whole
    assert not any(path.name.startswith(".") for path in whole)
    disk.leave(0)
    with suppress(StorageError):
        writes[kind](disk.root)
    assert disk.files() == whole


def test_a_line_that_did_not_fit_costs_no_other(disk):
    journal, small = Journal(disk.root), Failed(trial_id="t", error="small", log=())
    journal.append(small)
    disk.leave(1)
    with pytest.raises(StorageError):
        journal.append(replace(small, error="x" * 9000))
    disk.free()
    journal.append(small)
    assert journal.read("t") == [small, small]


def test_a_trial_on_a_full_disk_fails_and_the_same_run_finishes_it_later(disk, make_plan, world, encoder):
    spec, settings = small_spec("memorized_model"), {"el_sequences": 1, "el_prefixes": 1}
    evaluator = EvaluatorSpec(name="memorization", version=1, settings=settings, key="memorization-key")
    fields = {"trial_id": "task_arithmetic", "method": "task_arithmetic", "strength_name": "gamma", "strengths": (0.5,)}
    fields |= {"forget": replace(spec.forget, sequences=2, sequence_tokens=48, prefix_tokens=24)}
    fields |= {"judges": {"similarity": resolve_model(str(encoder))}, "model": resolve_model(str(world / "MODEL"))}
    spec = replace(spec, **fields, keep_erased="all", evaluators=(evaluator,))
    plan, folders = make_plan(spec), jobs.Folders(results=disk.root / "s", artifacts=disk.root / "artifacts")
    journal = Journal(folders.results / "journal")

    def run(watch=lambda event: None):
        trial.tasks.JUDGES.__init__()
        trial.tasks.clear_shared()
        trial.run_inline(jobs.missing_jobs(results.read_results(plan, journal), folders, watch))
        return results.read_results(plan, journal).statuses[spec.trial_id]

    disk.leave(12)
    messages = []
    assert run(lambda event: messages.append(event.message)) == "failed"
    assert any("No space left on device" in message for message in messages)
    disk.free()
    assert run() == "done"
