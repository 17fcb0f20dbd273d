"""Who may read what is written: those whom the folder is for, by the umask, whatever library wrote the file."""

import os
import stat
from functools import partial

import numpy as np
import pytest

from harness.base.files import folder_whole, write_whole
from harness.models.patch import save_patch
from harness.models.saving import save_model
from harness.records.artifacts import Artifacts
from harness.records.items import MetricItems
from harness.records.journal import Journal
from harness.records.record import Failed


@pytest.fixture(params=[0o002, 0o022, 0o077], ids=["group writes", "all read", "private"])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def shared(tmp_path, umask):
    """A folder of a group's own, as `chmod g+s` makes it."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o2777 & ~umask)
    return folder


def test_all_that_is_written_has_the_modes_of_the_umask(
    shared, umask, make_model, tokenizer, make_spec, make_plan, make_measurement
):
    model = make_model(0, layers=2, hidden=8, heads=2, vocabulary=256, positions=64)
    artifacts, journal, spec = Artifacts(shared / "artifacts"), Journal(shared / "s" / "journal"), make_spec()
    artifacts.build("memorized", "k", partial(save_model, model))
    artifacts.build("erased", "k", lambda folder: save_patch(model, ["L0.W_v.H0"], "0", folder / "patch.safetensors"))
    artifacts.arrays(["k"], lambda: {"a": np.ones(3)})
    journal.write_plan(make_plan(spec))
    journal.append(Failed(trial_id="t", error="e", log=()))
    items = {"ma": MetricItems(("0",), ("0",), np.ones(1), np.ones(1))}
    journal.append_measurement(make_measurement(spec, 1), items)
    write_whole(shared / "s" / "table.csv", "a")
    for existing in ("refuse", "keep", "replace", "replace"):
        with folder_whole(shared / existing, "a model", existing) as folder:
            save_model(model, folder)
            tokenizer.save_pretrained(folder)
    modes = {path.relative_to(shared): path.stat().st_mode for path in shared.rglob("*")}
    assert len(modes) > 40
    files = {path: stat.S_IMODE(mode) for path, mode in modes.items() if stat.S_ISREG(mode)}
    folders = {path: stat.S_IMODE(mode) for path, mode in modes.items() if stat.S_ISDIR(mode)}
    assert set(files.values()) == {0o666 & ~umask}, files
    assert set(folders.values()) == {0o2777 & ~umask}, folders


def test_modes_are_final_before_the_name_is(shared, umask, make_model):
    """Whoever waits for the folder's name may read all of it from then on."""
    model = make_model(0, layers=2, hidden=8, heads=2, vocabulary=256, positions=64)
    seen = []
    rename = os.rename

    def looked(path, target, **rest):
        seen.extend(stat.S_IMODE(file.stat().st_mode) for file in path.iterdir())
        return rename(path, target, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", looked)
        Artifacts(shared).build("memorized", "k", partial(save_model, model))
    assert set(seen) == {0o666 & ~umask}
