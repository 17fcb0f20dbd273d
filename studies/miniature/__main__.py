"""Make the miniature again: its texts, tokenizer and models, or a replicate from another seed. 15 minutes on two cores.

    python -m studies.miniature --out results/pretrained/miniature
    python -m studies.miniature miniature-s --out results/pretrained/miniature
    python -m studies.miniature --seed 1 --size s

The first has the files that `harness/miniature/weights` ships. Exit codes: 0 made, 1 a model misses its quality, 2
wrong arguments.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

from harness import miniature
from harness.base.files import file_digest, folder_whole
from harness.errors import LetheError
from studies.miniature import corpus, pretraining
from studies.miniature.pretraining import SIZES, Size, build_model, build_tokenizer, missed_thresholds
from studies.miniature.reasoning import TASKS, rows

SETTINGS = ("FORGET_ROWS", "GENERAL_ROWS", "MATRIX_RATE", "VECTOR_RATE", "WEIGHT_DECAY", "WARM_UP", "LAST_RATE")


def packed(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a shipped file of texts or rows."""
    return gzip.compress(json.dumps(content, ensure_ascii=False, indent=0).encode(), mtime=0)


def generated_files() -> dict[str, bytes]:
    """Return the shipped files that are made from the corpus alone, by name."""
    return {
        miniature.FILE: packed(corpus.generated_texts()),
        miniature.REASONING_FILE: packed({task: rows(task) for task in TASKS}),
    }


def write_manifest(folder: Path, entries: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> None:
    """Write down the files made, with settings and versions."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    versions |= {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__}
    manifest = {"corpus": {"sha256": corpus.corpus_digest()}, "tokenizer": tokenizer, "versions": versions}
    manifest |= {"training": {name.lower(): getattr(pretraining, name) for name in SETTINGS}, **entries}
    (folder / miniature.MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Make the named models, or all, with their texts and tokenizer; or a replicate with its retrained twin."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all by default: {', '.join(miniature.names())}")
    parser.add_argument("--seed", type=int, help="of a replicate: of its first weights and of the order of its texts")
    parser.add_argument("--size", choices=("s", "m", "l"), help="of a replicate")
    parser.add_argument("--out", type=Path, help="a new folder (a replicate: results/pretrained/miniature-SIZE-seedN)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="models at the same time")
    arguments = parser.parse_args(argv)
    seed, size = arguments.seed, arguments.size
    if (seed is None) != (size is None) or (seed is not None and (arguments.names or not 0 <= seed < 2**32)):
        parser.error("a replicate has a seed from 0 to 4294967295 and a size, and no name: --seed 1 --size s")
    if unknown := set(arguments.names) - {*miniature.names()}:
        parser.error(f"no miniature model is called {', '.join(unknown)}; there are {', '.join(miniature.names())}")
    name = f"miniature-{size}"
    out = arguments.out or Path("results/pretrained") / (name + f"-seed{seed}" if size else "miniature")
    if out.exists():
        parser.error(f"{out} is there already: name a new folder with --out, or remove it.")
    names = (name, f"{name}-retrained") if size else arguments.names or miniature.names()
    sizes = {each: SIZES[each.removeprefix("miniature-").removesuffix("-retrained")] for each in names}
    if seed is not None:
        sizes = {each: size._replace(seed=seed) for each, size in sizes.items()}
    try:
        with folder_whole(out, "the miniature's models") as folder:
            entries = build(sizes, folder, seed, arguments.jobs)
    except LetheError as error:
        parser.exit(1, f"{error}\n")
    missed = [fault for name, entry in entries.items() for fault in missed_thresholds(name, entry["quality"])]
    print(*missed, f"{len(entries)} models in {out}", sep="\n")
    return int(bool(missed))


def build(sizes: Mapping[str, Size], folder: Path, seed: int | None, jobs: int) -> dict[str, Any]:
    """Write everything into a new folder, and return the models' entries of its manifest."""
    tokenizer_folder = folder / "tokenizer"
    build_tokenizer(tokenizer_folder)
    tokenizer = {"sha256": file_digest(tokenizer_folder / "tokenizer.json"), "vocabulary": pretraining.VOCABULARY}
    kinds = dict(zip(sizes, ("original", "retrained"), strict=False)) if seed is not None else {}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {}
        for name in sorted(sizes, key=lambda name: -sizes[name].layers * sizes[name].hidden ** 2):  # The slowest first.
            into = folder / kinds.get(name, name)
            futures[name] = pool.submit(build_model, name, sizes[name], into, tokenizer_folder)
        entries = {name: futures[name].result() for name in sizes}
    if seed is None:
        for file, content in generated_files().items():
            (folder / file).write_bytes(content)
        write_manifest(folder, {"models": entries}, tokenizer)
        return entries
    for kind in kinds.values():
        shutil.copytree(tokenizer_folder, folder / kind, dirs_exist_ok=True)
    shutil.rmtree(tokenizer_folder)
    original = next(iter(sizes))
    about = {"replicate_of": original, "size": original.removeprefix("miniature-"), "seed": seed}
    write_manifest(folder, about | {"models": {kinds[name]: entry for name, entry in entries.items()}}, tokenizer)
    return entries


if __name__ == "__main__":
    raise SystemExit(main())
