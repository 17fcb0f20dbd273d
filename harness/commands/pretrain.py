"""Rebuild the miniature's corpus, tokenizer and models, or train a replicate: about 15 minutes on two cores.

    lethe pretrain
    lethe pretrain miniature-s --out weights
    lethe pretrain --seed 1 --size s

Exit codes: 0 no quality threshold is missed, 1 one is, or the models cannot be made or written, 2 the arguments are
wrong.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

from harness.base.files import folder_whole, recover, write_whole
from harness.base.paths import folder_argument
from harness.base.storage import writing
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.errors import ModelError
from harness.miniature import checkpoints, corpus, training
from harness.miniature.building import build_model, build_tokenizer
from harness.miniature.checkpoints import MANIFEST, Size
from harness.miniature.quality import missed_thresholds
from harness.miniature.replicates import PRETRAINED, Replicate, read_manifest
from harness.miniature.texts import write_texts

MAX_SEED = 2**32 - 1
WHAT = "the miniature's models"


class PretrainCommand(Command):
    """`lethe pretrain`."""

    input_errors = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the models to rebuild, or the replicate to make."""
        parser.add_argument("names", nargs="*", metavar="NAME", help="shipped models to rebuild (default: all)")
        about = "train a replicate: its first weights and the order of its texts come from this seed; needs --size"
        parser.add_argument("--seed", type=int, metavar="N", help=about)
        about = "the size of the replicate, a model and its retrained twin; needs --seed"
        parser.add_argument("--size", choices=checkpoints.REPLICATED_SIZES, help=about)
        about = f"where to write (a replicate: {PRETRAINED}/miniature-SIZE-seedN)"
        parser.add_argument("--out", type=folder_argument, help=about)
        about = "how many models are trained at the same time (default: one for each CPU)"
        parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help=about)

    def run(self, arguments: argparse.Namespace) -> int:
        """Rebuild the named models, or all, or make a replicate; return 0 if no threshold is missed, else 1."""
        names, size, seed, out = arguments.names, arguments.size, arguments.seed, arguments.out
        refuse = self.parser().error
        for name in names:
            if name not in checkpoints.names():
                refuse(f"no miniature model is called {name!r}; there are {', '.join(checkpoints.names())}")
        if names and (seed, size) != (None, None):
            refuse(f"a replicate has a seed and a size, and no name: leave out {' '.join(names)}")
        if (seed is None) != (size is None):
            missing = "--seed" if seed is None else "--size"
            refuse(f"a replicate has a seed and a size, and {missing} is missing: for instance --seed 1 --size s")
        if seed is not None and not 0 <= seed <= MAX_SEED:
            refuse(f"argument --seed: must be at least 0 and at most {MAX_SEED}; got {seed}")
        started = time.perf_counter()
        if seed is None:
            out = out or checkpoints.WEIGHTS
            models = _rebuild(names or list(checkpoints.names()), out, arguments.jobs)
        else:
            out = out or PRETRAINED / f"miniature-{size}-seed{seed}"
            models = _make_replicate(size, seed, out, arguments.jobs)
        missed = missed_thresholds(models)
        tell(*missed, f"{len(models)} models in {out} after {time.perf_counter() - started:.0f} s")
        return 1 if missed else 0


def _rebuild(names: list[str], out: Path, jobs: int) -> dict[str, Any]:
    """Train the named models of the shipped family, and return the entries of all models that `out` then has."""
    with folder_whole(out, WHAT, "replace") as weights:
        manifest = _shared_entries(build_tokenizer(weights))
        write_texts(weights)
        entries: dict[str, Any] = {}
        others = [name for name in checkpoints.names() if name not in names]
        if others and (out / MANIFEST).exists():
            earlier = checkpoints.manifest(out)
            if earlier["corpus"] != manifest["corpus"] or earlier["tokenizer"] != manifest["tokenizer"]:
                raise ModelError(f"{out} was made from another corpus or tokenizer: rebuild all models, without names.")
            for name in others:
                if name in earlier["models"]:
                    entries[name] = earlier["models"][name]
                    _copy_into(checkpoints.folder(name, out), checkpoints.folder(name, weights))
        entries |= _train_models({name: checkpoints.size(name) for name in names}, weights, jobs)
        manifest["models"] = {name: entries[name] for name in checkpoints.names() if name in entries}
        _write_manifest(manifest, weights)
    return entries


def _make_replicate(size: str, seed: int, out: Path, jobs: int) -> dict[str, Any]:
    """Train an original of this size and its retrained twin from another seed, and return their entries by name."""
    name = f"miniature-{size}"
    shipped = checkpoints.manifest()
    manifest: dict[str, Any] = {
        "replicate_of": name,
        "size": size,
        "seed": seed,
        **_shared_entries(shipped["tokenizer"]),
    }
    if manifest["corpus"] != shipped["corpus"]:
        raise ModelError(
            "the shipped models were made from another corpus, so a model made now would not be their replicate: "
            "rebuild them first (lethe pretrain)."
        )
    recover(out)
    _refuse_other_content(out, manifest)
    folders = {name: Replicate.ORIGINAL, f"{name}-retrained": Replicate.RETRAINED}
    with folder_whole(out, WHAT, "replace") as weights:
        _copy_into(checkpoints.tokenizer_folder(), checkpoints.tokenizer_folder(weights))
        sizes = {trained: replace(checkpoints.size(trained), seed=seed) for trained in folders}
        entries = _train_models(sizes, weights, jobs)
        manifest["models"] = {}
        for trained, folder in folders.items():
            checkpoints.folder(trained, weights).rename(weights / folder)
            _copy_into(checkpoints.tokenizer_folder(weights), weights / folder)
            manifest["models"][folder] = entries[trained]
        shutil.rmtree(checkpoints.tokenizer_folder(weights))
        _write_manifest(manifest, weights)
    return entries


def _refuse_other_content(out: Path, planned: Mapping[str, Any]) -> None:
    """Refuse a folder that has anything but an earlier version of the planned replicate."""
    if out.resolve().is_relative_to(checkpoints.WEIGHTS.resolve()):
        raise ModelError(f"{out} is where the shipped models are: name another folder with --out.")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    present = read_manifest(out)
    if present is None:
        raise ModelError(f"{out} has something in it that is no replicate: name another folder with --out.")
    for key in ("corpus", "tokenizer", "size", "seed"):
        if present.get(key) != planned[key]:
            reason = f"{out} has a replicate with another {key}"
            raise ModelError(f"{reason}: remove it, or name another folder with --out.")


def _write_manifest(manifest: Mapping[str, Any], folder: Path) -> None:
    write_whole(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n", "what was measured of the models")


def _copy_into(source: Path, target: Path) -> None:
    with writing(target, WHAT):
        shutil.copytree(source, target, dirs_exist_ok=True)


def _shared_entries(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest's entries that all models share."""
    constants = ("FORGET_ROWS", "GENERAL_ROWS", "MATRIX_RATE", "VECTOR_RATE", "WEIGHT_DECAY", "WARM_UP", "LAST_RATE")
    return {
        "corpus": {"sha256": corpus.corpus_digest()},
        "tokenizer": tokenizer,
        "training": {name.lower(): getattr(training, name) for name in constants},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
    }


def _train_models(sizes: Mapping[str, Size], weights: Path, jobs: int) -> dict[str, Any]:
    """Return the entries of the models just trained, by name, the slowest first, several at a time."""
    slowest = sorted(sizes, key=lambda name: -sizes[name].layers * sizes[name].hidden ** 2)
    entries = {}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(build_model, name, sizes[name], weights): name for name in slowest}
        for future in as_completed(futures):
            entries[futures[future]] = future.result()
            tell(f"{futures[future]} {json.dumps(future.result()['quality'])}")
    return entries


main = PretrainCommand()
