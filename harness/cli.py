"""`lethe`: one command with verbs, each of which is also a module to run with `python -m`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import cast

from harness.errors import LetheError, ModelError

Verb = Callable[[Sequence[str]], int]

MODULES = {
    "sweep": ("harness.sweep", "run what is missing of a sweep, and write its report"),
    "prefetch": ("harness.prefetch", "fetch every model and data set of the hub that a sweep names"),
    "collate": ("harness.collate", "make tables and report again, from a journal or a table.csv"),
    "pretrain": ("harness.pretrain", "rebuild the miniature's checkpoints from nothing"),
}
"""Verbs that are modules of their own, imported only when used."""


def plugins(argv: Sequence[str]) -> int:
    """Print every method and evaluator with its settings, and every metric."""
    argparse.ArgumentParser(prog="lethe plugins", description=plugins.__doc__).parse_args(argv)
    from harness.catalogue import catalogue

    print(catalogue())
    return 0


def dashboard(argv: Sequence[str]) -> int:
    """Serve MLflow's dashboard of all sweeps on 127.0.0.1."""
    parser = argparse.ArgumentParser(prog="lethe dashboard", description=dashboard.__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of all sweeps' results")
    parser.add_argument("--port", type=int, default=5000)
    arguments = parser.parse_args(argv)
    from harness.records.tracking import dashboard as serve

    serve(arguments.results, arguments.port)


def patch(argv: Sequence[str]) -> int:
    """Write an erased model that a sweep kept as a patch, as a checkpoint folder."""
    parser = argparse.ArgumentParser(prog="lethe patch", description=patch.__doc__)
    parser.add_argument("patch", type=Path, help="the patch: results/artifacts/erased/<point id>, as table.csv has it")
    parser.add_argument("--model", required=True, help="the original: a miniature's name, a folder or a hub id")
    parser.add_argument("--tokenizer", help="the original's tokenizer folder, if it is not with the model")
    parser.add_argument("--out", type=Path, required=True, help="a new folder for the erased model")
    arguments = parser.parse_args(argv)
    from harness.models.patch import export_patched
    from harness.models.resolving import resolve_model
    from harness.records.artifacts import ABOUT, damage

    folder = arguments.patch if arguments.patch.is_dir() else arguments.patch.parent
    if (folder / ABOUT).exists() and (clause := damage(folder)):
        raise ModelError(f"the patch in {folder} is damaged ({clause}): erase again, by running its sweep anew.")

    export_patched(resolve_model(arguments.model, arguments.tokenizer), arguments.patch, arguments.out)
    print(f"The erased model is in {arguments.out}.")
    return 0


VERBS: dict[str, Verb] = {"plugins": plugins, "patch": patch, "dashboard": dashboard}
"""Verbs that are a few lines each."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `lethe VERB ...` and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = arguments.pop(0) if arguments else "--help"
    if verb in ("-h", "--help"):
        print(_usage())
        return 0
    try:
        if verb in MODULES:
            return cast(Verb, importlib.import_module(MODULES[verb][0]).main)(arguments)
        if verb in VERBS:
            return VERBS[verb](arguments)
    except LetheError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    near = get_close_matches(verb, [*MODULES, *VERBS], n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    print(f"lethe has no verb '{verb}'.{hint}\n\n{_usage()}", file=sys.stderr)
    return 2


def _usage() -> str:
    about = {name: text for name, (_, text) in MODULES.items()}
    about |= {name: (verb.__doc__ or "").rstrip(".").lower() for name, verb in VERBS.items()}
    lines = [f"  {name:<10} {text}" for name, text in about.items()]
    return "\n".join(["usage: lethe VERB ...", *lines, "", "lethe VERB --help says more."])


if __name__ == "__main__":
    sys.exit(main())
