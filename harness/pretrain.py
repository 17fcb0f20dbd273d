"""Rebuild the miniature from nothing: corpus, tokenizer and models, with everything measured.

Run as `python -m harness.pretrain [NAME ...] [--out DIR]`; it takes about a quarter of an hour on two cores.
"""

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

from harness.miniature import checkpoints, corpus, training
from harness.miniature.building import build_model, build_tokenizer
from harness.miniature.quality import missed_thresholds


def main(arguments: list[str] | None = None) -> int:
    """Rebuild the named models, or all; return 0 if they are fit to be shipped, else 1."""
    options = _parse_arguments(arguments)
    started = time.perf_counter()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out.parent, prefix=".weights-") as scratch:
        weights = Path(scratch) / "weights"
        manifest = _shared_entries(build_tokenizer(weights))
        kept = _kept_entries(options.out, manifest, options.names)
        if kept is None:
            print(f"{options.out} was made from another corpus or tokenizer: rebuild all models, without names")
            return 1
        for name in kept:
            shutil.copytree(checkpoints.folder(name, options.out), checkpoints.folder(name, weights))
        entries = kept | _train_models(options.names, weights, options.jobs)
        manifest["models"] = {name: entries[name] for name in checkpoints.names() if name in entries}
        (weights / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
        # The old folder goes with the scratch folder, so that there is never half of a new one.
        if options.out.exists():
            options.out.rename(Path(scratch) / "old")
        weights.rename(options.out)
    missed = missed_thresholds(manifest["models"])
    print(*missed, f"{len(entries)} models in {options.out} after {time.perf_counter() - started:.0f} s", sep="\n")
    return 1 if missed else 0


def _parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m harness.pretrain", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a model to rebuild; all without a name")
    parser.add_argument("--out", type=Path, default=checkpoints.WEIGHTS, help="the folder to write into")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="models trained side by side")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in checkpoints.names():
            parser.error(f"no miniature model is called {name!r}; there are {', '.join(checkpoints.names())}")
    options.names = options.names or list(checkpoints.names())
    return options


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


def _kept_entries(out: Path, shared: dict[str, Any], rebuilt: list[str]) -> dict[str, Any] | None:
    """Return the entries of models that stay as they are; None if they don't fit the corpus of today."""
    others = [name for name in checkpoints.names() if name not in rebuilt]
    if not others or not (out / "manifest.json").exists():
        return {}
    manifest = checkpoints.manifest(out)
    if any(manifest[key] != shared[key] for key in ("corpus", "tokenizer")):
        return None
    return {name: manifest["models"][name] for name in others if name in manifest["models"]}


def _train_models(names: list[str], weights: Path, jobs: int) -> dict[str, Any]:
    """Return the entries of the models just trained, the slowest first, several at a time."""
    slowest = sorted(names, key=lambda name: -checkpoints.size(name).layers * checkpoints.size(name).hidden ** 2)
    entries = {}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(build_model, name, weights): name for name in slowest}
        for future in as_completed(futures):
            entries[futures[future]] = future.result()
            print(futures[future], json.dumps(future.result()["quality"]), flush=True)
    return entries


if __name__ == "__main__":
    sys.exit(main())
