"""Write the model of any measured point as a folder for `from_pretrained`, with its tokenizer and a card.

    lethe export 3fa2 --out my-model
    lethe export tradeoff:emso@3 --out my-model
    lethe export small:gradient_ascent@2 --out my-adapter --adapter

A LoRA adapter is merged into the model, or with --adapter written alone, as peft reads it.

A point is named by its id as in table.csv (point_id), by a unique beginning of that id, or as SWEEP:VARIANT@STRENGTH.
SWEEP: before an id says which sweep's numbers go into the card.

Exit codes: 0 it is written; 1 it cannot be written (a full disk); 2 there is nothing to write: no such point, or more
than one, a model that was not kept, or a folder that exists already.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.digests import file_digest
from harness.base.files import folder_whole, write_whole, writing
from harness.base.paths import named_argument, path_argument
from harness.base.terminal import tell
from harness.commands.command import POINT_HELP, Command, add_results_argument
from harness.errors import DataError

if TYPE_CHECKING:
    from harness.contracts import Checkpoint
    from harness.library import SweepResults


class ExportCommand(Command):
    """`lethe export`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the point, the new folder, and where things are."""
        parser.add_argument("point", help=POINT_HELP)
        parser.add_argument("--out", type=path_argument, required=True, help="a new folder for the model")
        add_results_argument(parser)
        about = "where the original model is now, if it was moved: a name, a folder or a hub id"
        parser.add_argument("--model", type=named_argument, help=about)
        about = "the folder of its tokenizer, if that is not with the model"
        parser.add_argument("--tokenizer", type=named_argument, help=about)
        parser.add_argument("--adapter", action="store_true", help="write only the LoRA adapter, for peft, unmerged")

    def run(self, arguments: argparse.Namespace) -> int:
        """Write the model that a point names."""
        from harness.library import find_point, load_results
        from harness.models.resolving import resolve_model

        _refuse_existing(arguments.out)
        sweep, point_id = find_point(arguments.point, arguments.results)
        original = resolve_model(arguments.model, arguments.tokenizer) if arguments.model else None
        export_point(load_results(sweep), point_id, arguments.out, original, adapter_alone=arguments.adapter)
        what = "adapter" if arguments.adapter else "model"
        tell(f"The {what} of point {point_id} is in {arguments.out}, with its tokenizer and a card (README.md).")
        return 0


def export_point(
    outcome: SweepResults, name: str, out: Path, original: Checkpoint | None = None, *, adapter_alone: bool = False
) -> None:
    """Write a point's model, its tokenizer and a card to the new folder `out`: whole, or not at all.

    Args:
        outcome: The sweep's results.
        name: The point: `emso@3`, or its id as in the table.
        out: The new folder.
        original: Where the model before erasure is now, if it was moved since the sweep ran.
        adapter_alone: Write only the LoRA adapter, instead of the model that it is merged into.

    Raises:
        DataError: It names no measured point, its model was not kept, it has no adapter, or `out` exists.
        ModelError: What was kept is damaged, or the original that it is a patch of is gone.
        StorageError: It cannot be written.
    """
    from harness.models.adapters import save_adapter
    from harness.models.resolving import copy_tokenizer
    from harness.models.saving import save_model
    from harness.reporting.model_card import model_card

    _refuse_existing(out)
    point = outcome.point(name)
    before = original or point.spec.model
    made_by = {"Lethe": version("lethe"), "transformers": version("transformers")}
    if adapter_alone:
        made_by["peft"] = version("peft")
        write = partial(save_adapter, outcome.adapter(name), before)
    else:
        write = partial(save_model, outcome.model(name, original))
    with folder_whole(out, "the exported model") as folder:
        with _no_search_for_a_gpu():
            write(folder)
        with writing(folder, "the exported model's tokenizer"):
            copy_tokenizer(before, folder)
        weights = {file.name: file_digest(file) for file in sorted(folder.glob("*.safetensors"))}
        card = model_card(point, outcome.table, outcome.metrics, weights, made_by, is_adapter=adapter_alone)
        write_whole(folder / "README.md", card, "the exported model's card")


@contextmanager
def _no_search_for_a_gpu() -> Iterator[None]:
    """Keep DeepSpeed, which saving imports where it is installed, from printing that it found no GPU."""
    from harness.toolkit.device import device_for

    if "DS_ACCELERATOR" in os.environ or device_for(1.0).type == "cuda":
        yield
        return
    os.environ["DS_ACCELERATOR"] = "cpu"
    try:
        yield
    finally:
        del os.environ["DS_ACCELERATOR"]


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise DataError(f"{out} exists already; name a new folder.")


main = ExportCommand()
