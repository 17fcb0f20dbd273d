"""Writes the model of any measured point as a folder for `from_pretrained`, with its tokenizer and a card.

    lethe export 3fa2 --out my-model
    lethe export tradeoff:emso@3 --out my-model
    lethe export small:gradient_ascent@2 --out my-adapter --adapter

What LoRA trained is merged into the model, or written alone, as peft reads it, with --adapter.

A point is named by its id as table.csv has it (point_id), by a unique beginning of that, or as SWEEP:VARIANT@STRENGTH;
SWEEP: before an id says which sweep's numbers the card has.

Exit codes: 0 it is written, 1 it cannot be (a full disk), 2 there is nothing to write: no such point, or more than one,
a model that was not kept, or a folder that is there already.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.digests import file_digest
from harness.base.files import folder_whole, write_whole
from harness.base.paths import folder_argument, named_argument, path_argument
from harness.base.storage import writing
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.errors import DataError

if TYPE_CHECKING:
    from harness.contracts import Checkpoint
    from harness.library import SweepResults
    from harness.records.results import PointResults

_MOST_NAMED = 8


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("point", help="its id as table.csv has it, a unique beginning of it, or SWEEP:VARIANT@STRENGTH")
    parser.add_argument("--out", type=path_argument, required=True, help="a new folder for the model")
    parser.add_argument(
        "--results", type=folder_argument, default=Path("results"), help="folder of all sweeps' results, or of one"
    )
    parser.add_argument(
        "--model",
        type=named_argument,
        help="where the original is now, if not where it was: a name, a folder or a hub id",
    )
    parser.add_argument(
        "--tokenizer", type=named_argument, help="its tokenizer's folder, if that is not with the model"
    )
    parser.add_argument("--adapter", action="store_true", help="write what LoRA trained alone, for peft, unmerged")


def _run(arguments: argparse.Namespace) -> int:
    """Write the model that a point names."""
    from harness.library import load_results
    from harness.models.resolving import resolve_model

    _refuse_existing(arguments.out)
    sweep, point_id = find_point(arguments.point, arguments.results)
    original = resolve_model(arguments.model, arguments.tokenizer) if arguments.model else None
    export_point(load_results(sweep), point_id, arguments.out, original, adapter_alone=arguments.adapter)
    what = "adapter" if arguments.adapter else "model"
    tell(f"The {what} of point {point_id} is in {arguments.out}, with its tokenizer and a card (README.md).")
    return 0


def export_point(
    outcome: SweepResults, point_id: str, out: Path, original: Checkpoint | None = None, *, adapter_alone: bool = False
) -> None:
    """Write a point's model, its tokenizer and a card to the new folder `out`: whole, or not at all.

    Args:
        outcome: The sweep's results.
        point_id: As in its table.
        out: What is to be written.
        original: Where the model before erasure is now, if it is not where it was when the sweep ran.
        adapter_alone: Write the LoRA adapter that was trained instead of the model that it is merged into.

    Raises:
        DataError: No measured point has this id, its model was not kept, it has no adapter, or `out` exists.
        ModelError: What was kept is damaged, or the original that it is a patch of is not there any more.
        StorageError: It cannot be written.
    """
    from harness.models.adapters import save_adapter
    from harness.models.loading import load_tokenizer
    from harness.models.saving import save_model
    from harness.reporting.model_card import model_card

    _refuse_existing(out)
    point = outcome.point(point_id)
    before = original or point.spec.model
    write = (
        partial(save_adapter, outcome.adapter(point_id), before)
        if adapter_alone
        else partial(save_model, outcome.model(point_id, original))
    )
    tokenizer, packages = load_tokenizer(before), ("lethe", "transformers", *(["peft"] if adapter_alone else []))
    made_by = {package.replace("lethe", "Lethe"): version(package) for package in packages}
    with folder_whole(out, "the exported model", "refuse") as folder:
        write(folder)
        with writing(folder, "the exported model's tokenizer"):
            tokenizer.save_pretrained(folder)
        weights = {file.name: file_digest(file) for file in sorted(folder.glob("*.safetensors"))}
        card = model_card(point, outcome.table, outcome.metrics, weights, made_by, is_adapter=adapter_alone)
        write_whole(folder / "README.md", card, "the exported model's card")


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise DataError(f"{out} exists already; name a new folder.")


def find_point(name: str, results: Path) -> tuple[Path, str]:
    """Return the sweep's folder and the id of the one measured point that a name means.

    Raises:
        DataError: It means none, or more than one.
    """
    wanted_sweep, _, wanted = name.rpartition(":")
    folders = [folder for folder in _sweeps(results) if wanted_sweep in ("", folder.name)]
    if not folders:
        there = ", ".join(folder.name for folder in _sweeps(results)) or "none"
        raise DataError(f"{results} holds no results of a sweep '{wanted_sweep}': it has {there}.")
    points, faults = _measured(folders)
    found = [(folder, point) for folder, point in points if _is_meant(point, wanted, by_variant=bool(wanted_sweep))]
    if len(found) == 1:
        [(folder, point)] = found
        return folder, point.spec.point_id(point.strength)
    if found:
        named = [f"  {folder.name}:{_about(point)}" for folder, point in found]
        more = [f"  and {len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
        raise DataError("\n".join([f"'{name}' means {len(named)} points. Name one:", *named[:_MOST_NAMED], *more]))
    unread = "".join(f" Not looked at: {fault}" for fault in faults)
    raise DataError(
        f"no measured point is called '{name}' in {', '.join(str(folder) for folder in folders)}. table.csv has the "
        f"ids (point_id); a name may also be SWEEP:VARIANT@STRENGTH, tradeoff:emso@3 say.{unread}"
    )


def _sweeps(results: Path) -> list[Path]:
    """Return the folders that hold a sweep's results: this one itself, or those in it."""
    if (results / "journal" / "plan.json").is_file():
        return [results]
    return sorted(plan.parents[1] for plan in results.glob("*/journal/plan.json"))


def _measured(folders: Sequence[Path]) -> tuple[list[tuple[Path, PointResults]], list[str]]:
    """Return every measured point of these sweeps, and why some could not be read."""
    from harness.records.journal import Journal
    from harness.records.results import read_results

    points, faults = [], []
    for folder in folders:
        journal = Journal(folder / "journal")
        try:
            points += [(folder, point) for point in read_results(journal.read_plan(), journal).measured]
        except DataError as error:
            faults.append(str(error))
    return points, faults


def _is_meant(point: PointResults, wanted: str, *, by_variant: bool) -> bool:
    if wanted and point.spec.point_id(point.strength).startswith(wanted):
        return True
    return by_variant and wanted in _names(point)


def _names(point: PointResults) -> Iterator[str]:
    """Yield what a point may be called within its sweep: by its variant, and by its strength too if it has one."""
    yield point.spec.variant
    if point.strength is not None:
        yield f"{point.spec.variant}@{point.strength:g}"


def _about(point: PointResults) -> str:
    names = list(_names(point))
    return f"{point.spec.point_id(point.strength)}  ({names[-1]} on {point.spec.model.id}, seed {point.spec.seed})"


main = Command("export", __doc__, _add_arguments, _run)
