"""Rebuild the miniature from nothing: corpus, tokenizer and models, with everything measured.

Run as `lethe pretrain [NAME ...] [--out DIR]`; it takes about a quarter of an hour on two cores. With
`--seed N --size s` it makes a replicate instead, another miniature-s and its retrained twin: first weights and the
order of the texts are from that seed, all else is the same.
"""

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
from harness.errors import LetheError, ModelError
from harness.miniature import checkpoints, corpus, training
from harness.miniature.building import build_model, build_tokenizer
from harness.miniature.checkpoints import MANIFEST, Size
from harness.miniature.quality import missed_thresholds
from harness.miniature.replicates import PRETRAINED, Replicate, read_manifest

MAX_SEED = 2**32 - 1
WHAT = "the miniature's models"


def main(arguments: list[str] | None = None) -> int:
    """Rebuild the named models, or all, or make a replicate; return 0 if no threshold is missed, else 1."""
    options = _parse_arguments(arguments)
    started = time.perf_counter()
    try:
        models = (
            _rebuild(options.names, options.out, options.jobs)
            if options.seed is None
            else _make_replicate(options.size, options.seed, options.out, options.jobs)
        )
    except LetheError as error:
        tell(error, is_error=True)
        return 1
    missed = missed_thresholds(models)
    tell(*missed, f"{len(models)} models in {options.out} after {time.perf_counter() - started:.0f} s")
    return 1 if missed else 0


def _parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="lethe pretrain", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a shipped model to rebuild; all without a name")
    parser.add_argument("--seed", type=int, metavar="N", help="make a replicate from this seed; needs --size")
    parser.add_argument("--size", choices=checkpoints.REPLICATED_SIZES, help="of the replicate; needs --seed")
    parser.add_argument(
        "--out", type=folder_argument, help=f"where to write; a replicate: {PRETRAINED}/miniature-SIZE-seedN"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="models trained side by side")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in checkpoints.names():
            parser.error(f"no miniature model is called {name!r}; there are {', '.join(checkpoints.names())}")
    if options.seed is None and options.size is None:
        options.names = options.names or list(checkpoints.names())
        options.out = options.out or checkpoints.WEIGHTS
        return options
    if options.names:
        parser.error(f"a replicate has a seed and a size, and no name: leave out {' '.join(options.names)}")
    if options.seed is None or options.size is None:
        lacking = "--seed" if options.seed is None else "--size"
        parser.error(f"a replicate has a seed and a size, and {lacking} is missing: for instance --seed 1 --size s")
    if not 0 <= options.seed <= MAX_SEED:
        parser.error(f"argument --seed: must be at least 0 and at most {MAX_SEED}; got {options.seed}")
    options.out = options.out or PRETRAINED / f"miniature-{options.size}-seed{options.seed}"
    return options


def _rebuild(names: list[str], out: Path, jobs: int) -> dict[str, Any]:
    """Make the named models of the shipped family anew, and return the entries of all models that `out` then has."""
    with folder_whole(out, WHAT, "replace") as weights:
        manifest = _shared_entries(build_tokenizer(weights))
        kept = _kept_entries(out, manifest, names)
        for name in kept:
            _copy(checkpoints.folder(name, out), checkpoints.folder(name, weights))
        entries = kept | _train_models({name: checkpoints.size(name) for name in names}, weights, jobs)
        manifest["models"] = {name: entries[name] for name in checkpoints.names() if name in entries}
        _write_manifest(manifest, weights)
    return entries


def _make_replicate(size: str, seed: int, out: Path, jobs: int) -> dict[str, Any]:
    """Train an original of this size and its retrained twin from another seed, and return their entries by name."""
    name = f"miniature-{size}"
    shipped = checkpoints.manifest()
    manifest = {"replicate_of": name, "size": size, "seed": seed, **_shared_entries(shipped["tokenizer"])}
    if manifest["corpus"] != shipped["corpus"]:
        raise ModelError(
            "the shipped models were made from another corpus, so nothing made now would be their replicate: rebuild "
            "them first (lethe pretrain)."
        )
    recover(out)
    _check_free(out, manifest)
    folders = {name: Replicate.ORIGINAL, f"{name}-retrained": Replicate.RETRAINED}
    with folder_whole(out, WHAT, "replace") as weights:
        _copy(checkpoints.tokenizer_folder(), checkpoints.tokenizer_folder(weights))
        sizes = {trained: replace(checkpoints.size(trained), seed=seed) for trained in folders}
        entries = _train_models(sizes, weights, jobs)
        for trained, folder in folders.items():
            checkpoints.folder(trained, weights).rename(weights / folder)
            _copy(checkpoints.tokenizer_folder(weights), weights / folder)
        shutil.rmtree(checkpoints.tokenizer_folder(weights))
        _write_manifest(manifest | {"models": {folders[trained]: entries[trained] for trained in folders}}, weights)
    return entries


def _check_free(out: Path, planned: Mapping[str, Any]) -> None:
    """Refuse a folder that has anything but an earlier making of the replicate that is planned."""
    if out.resolve().is_relative_to(checkpoints.WEIGHTS.resolve()):
        raise ModelError(f"{out} is where the shipped models are: name another folder with --out.")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    found = read_manifest(out)
    if found is None:
        raise ModelError(f"{out} has something in it that is no replicate: name another folder with --out.")
    for key in ("corpus", "tokenizer", "size", "seed"):
        if found.get(key) != planned[key]:
            reason = f"{out} has a replicate with another {key}"
            raise ModelError(f"{reason}: remove it, or name another folder with --out.")


def _write_manifest(manifest: Mapping[str, Any], folder: Path) -> None:
    write_whole(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n", "what was measured of the models")


def _copy(source: Path, target: Path) -> None:
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


def _kept_entries(out: Path, shared: Mapping[str, Any], rebuilt: list[str]) -> dict[str, Any]:
    """Return the entries of models that stay as they are; they must fit the corpus of today."""
    others = [name for name in checkpoints.names() if name not in rebuilt]
    if not others or not (out / MANIFEST).exists():
        return {}
    manifest = checkpoints.manifest(out)
    if any(manifest[key] != shared[key] for key in ("corpus", "tokenizer")):
        raise ModelError(f"{out} was made from another corpus or tokenizer: rebuild all models, without names.")
    return {name: manifest["models"][name] for name in others if name in manifest["models"]}


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
