"""`lethe init MODEL TEXTS`: a commented sweep file for this model and these texts, which plans without a fault.

    lethe init miniature-m letters.jsonl
    lethe init EleutherAI/gpt-neo-125m letters.jsonl --unseen other_letters.jsonl --out sweeps/letters.yaml

Exit codes: 0 written, 1 it cannot be written, 2 the model or the texts cannot be used.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base.files import write_whole
from harness.base.messages import printable
from harness.base.paths import named_argument, path_argument
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.errors import ConfigError, DataError
from harness.specs import REFERENCE_ROWS

if TYPE_CHECKING:
    from harness.contracts import Checkpoint
    from harness.data.sources import Role
    from harness.drafting.given_texts import GivenTexts, TextLengths
    from harness.plans import Plan

MOST_TEXTS = 512
"""Used unless the user says otherwise: a sweep of more takes long, and says hardly more."""
STEPS = 16
"""Optimiser steps of an epoch: enough of them that an early stop can tell one from the next."""
PROMPTS, PROMPT_TOKENS, REFERENCE_TOKENS = 256, 32, 128
"""Of utility texts: MAUVE needs so many."""
EVALUATOR_SETTINGS = {"memorization": {"el_prefixes": 8}}
"""EL after every prefix takes long, and after eight of each text says the same to 0.01."""
ANY_SIZE = "changes memory and speed, no number"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=named_argument, help="a miniature's name, a folder or a hub id")
    parser.add_argument(
        "texts",
        type=named_argument,
        help='what to erase: JSON lines ({"text": ...}), token ids (.npy), or "miniature" for the embedded set',
    )
    parser.add_argument("--unseen", type=named_argument, help="texts of the same kind that the model never saw")
    parser.add_argument("--retain", type=named_argument, help="general texts that the model is to keep")
    parser.add_argument("--utility", type=named_argument, help="general texts that it has not read, to be continued")
    parser.add_argument("--field", default="text", help="of each line of JSON (%(default)s)")
    parser.add_argument(
        "--tokenizer", type=named_argument, help="the model's tokenizer folder, if it is not with the model"
    )
    parser.add_argument("--prefix-tokens", type=int, help="how long a beginning the model is given")
    parser.add_argument("--out", type=path_argument, help="the file to write (TEXTS.yaml in this folder)")


def _run(arguments: argparse.Namespace) -> int:
    """Write the file, and say where it is."""
    from harness.drafting.given_texts import faults_of_given

    with faults_of_given(arguments.texts, arguments.unseen, arguments.model):
        return _init(arguments)


@dataclass(frozen=True)
class Fitting:
    """What a trial is given, and which methods need more than there is."""

    micro_batch: int
    cpus: int
    gpus: int
    about: str
    too_large: dict[str, str]


def _init(arguments: argparse.Namespace) -> int:
    from harness.drafting.given_texts import given_texts
    from harness.models.loading import check_model
    from harness.planning.resolve import resolve_original
    from harness.planning.schema import ModelEntry

    out = arguments.out or Path(f"{_name(arguments.texts)}.yaml")
    if out.exists():
        raise DataError(f"{out} exists, and is not overwritten: name another file with --out, or remove it.")
    named = {"id": arguments.model, **({"tokenizer": arguments.tokenizer} if arguments.tokenizer else {})}
    model = resolve_original(ModelEntry(**named))
    check_model(model)
    texts = given_texts(
        model, arguments.texts, field=arguments.field, most_texts=MOST_TEXTS, prefix_tokens=arguments.prefix_tokens
    )
    if texts.warning:
        tell(texts.warning, is_error=True)
    parts = _parts(arguments, model, named, texts, out)
    content, left_out = _sound(parts, out)
    write_whole(out, content, "the sweep file")
    tell(*(f"Left out: {name}: {reason}" for name, reason in left_out.items()))
    tell(f"{out} is written. What it would run: python -m harness.sweep {out} --plan")
    return 0


def _name(texts: str) -> str:
    from harness.planning.plan import usable_name

    return usable_name(Path(texts).name.partition(".")[0])


def _parts(
    arguments: argparse.Namespace, model: Checkpoint, named: dict[str, Any], texts: GivenTexts, out: Path
) -> dict[str, Any]:
    """Return what the template is filled with, besides the rows of methods and what fits."""
    from harness.drafting.file_templates import flow
    from harness.drafting.given_texts import MINIATURE, is_miniature, named_source
    from harness.miniature.corpus import FORGET_RECORDS

    total = len(texts.lengths.tokens_N) if texts.lengths else FORGET_RECORDS
    count = min(total, MOST_TEXTS)
    batch = max(1, 2 ** min(6, (count // STEPS or 1).bit_length() - 1))
    of_miniature = is_miniature(model.id)
    return {
        "question": printable(f"What does it cost {arguments.model} to forget {arguments.texts}?"),
        "file": printable(str(out)),
        "name": flow(_name(arguments.texts)),
        "model": flow(named if arguments.tokenizer else arguments.model),
        "about_texts": _about(texts),
        "forget": flow(dict(texts.forget)),
        "holdout": flow(named_source(arguments.unseen, arguments.field)) if arguments.unseen else "",
        "is_embedded": arguments.texts == MINIATURE,
        "is_miniature": of_miniature,
        "has_own_texts": bool(arguments.retain and arguments.utility),
        "retain": flow(_retain(arguments, model, count)),
        "utility": flow(_utility(arguments, model)),
        # The miniature's rates: docs/decisions/0003.
        "learning_rate": "4.0e-5" if of_miniature else "1.0e-5",
        "memorized_model": "{learning_rate: 1.0e-3}" if of_miniature else "",
        "global_batch": batch,
        "steps": -(-count // batch),
    }


def _about(texts: GivenTexts) -> str:
    if texts.lengths is None:
        return "The embedded forget set: the first 128 tokens of each record, of which 64 are the prefix."
    forget = texts.forget
    sampled = f" {forget['sequences']} of them are drawn at random." if texts.sampled_of else ""
    return (
        f"{texts.lengths.in_words}; longer ones are cut after {forget['sequence_tokens']}.{sampled}\n"
        "  # The prefix is half of the shortest text, unless you said otherwise: continuations are as long or longer."
    )


def _retain(arguments: argparse.Namespace, model: Checkpoint, count: int) -> dict[str, Any]:
    """Return the retain data: as many as there are forget sequences, or all that there are."""
    from harness.data.sequences import LEAST_TOKENS
    from harness.drafting.given_texts import MINIATURE, named_source

    if not arguments.retain:
        return {"source": MINIATURE}
    lengths = _lengths(arguments, arguments.retain, "retain", model)
    block = named_source(arguments.retain, arguments.field)
    return {**block, "sequences": min(count, max(1, sum(tokens >= LEAST_TOKENS for tokens in lengths.tokens_N)))}


def _utility(arguments: argparse.Namespace, model: Checkpoint) -> dict[str, Any]:
    """Return the texts to be continued: as many as MAUVE needs, and as long as so many of them are."""
    from harness.drafting.given_texts import MINIATURE, named_source
    from harness.models.loading import positions

    block = named_source(arguments.utility or MINIATURE, arguments.field)
    lengths = _lengths(arguments, arguments.utility or MINIATURE, "utility", model)
    prompts = min(PROMPTS, len(lengths.tokens_N))
    room = min(sorted(lengths.tokens_N, reverse=True)[prompts - 1], positions(model)) - PROMPT_TOKENS
    if room < PROMPT_TOKENS:
        raise DataError(
            f"{lengths.label}: texts to be continued need {2 * PROMPT_TOKENS} tokens, half of them a prompt, and "
            f"{prompts} of them are no longer than {room + PROMPT_TOKENS} here. Give longer ones with --utility."
        )
    reference = min(REFERENCE_TOKENS, room)
    return {**block, "prompts": prompts, "prompt_tokens": PROMPT_TOKENS, "reference_tokens": reference}


def _lengths(arguments: argparse.Namespace, texts: str, role: Role, model: Checkpoint) -> TextLengths:
    from harness.drafting.given_texts import named_source, read_lengths
    from harness.models.loading import load_tokenizer, vocabulary

    block, most = named_source(texts, arguments.field), PROMPT_TOKENS + REFERENCE_TOKENS
    return read_lengths(block, role, load_tokenizer(model), vocabulary(model), most)


def _sound(parts: dict[str, Any], out: Path) -> tuple[str, dict[str, str]]:
    """Return the file, and the methods that are left out of it: it plans, and its trials fit this machine.

    Raises:
        ConfigError: Something else than a method is wrong with it.
        DataError: No method is left.
    """
    from harness.drafting.file_templates import filled, flow
    from harness.drafting.first_file import evaluator_lines, method_lines
    from harness.planning.plan import plan_of
    from harness.planning.sweep_file import sweep_file_of
    from harness.plugins import METHODS

    left_out: dict[str, str] = {}
    fitting = Fitting(min(16, parts["global_batch"]), 1, 0, ANY_SIZE, {})
    has_holdout = bool(parts["holdout"] or parts["is_embedded"])
    evaluators = list(evaluator_lines(EVALUATOR_SETTINGS, has_holdout=has_holdout))
    while len(left_out) < len(METHODS.names()):
        content = filled(
            "init.yaml.j2",
            **parts,
            methods=list(method_lines(left_out)),
            evaluators=evaluators,
            micro_batch=fitting.micro_batch,
            about_memory=fitting.about,
            resources=flow({"cpus": fitting.cpus, "gpus": fitting.gpus}),
        )
        try:
            planned = plan_of(sweep_file_of(content, out))
        except ConfigError as error:
            refused = {fault.path.partition(".")[2]: fault.reason for fault in error.faults if "methods." in fault.path}
            if len(refused) < len(error.faults) or refused.keys() <= left_out.keys():
                raise
            left_out |= refused
            continue
        before, fitting = fitting, _fitting(planned, parts["global_batch"])
        left_out |= fitting.too_large
        if fitting == before:
            return content, left_out
    raise DataError(
        "No method is left that could erase from this model on this machine: " + "; ".join(left_out.values())
    )


def _fitting(planned: Plan, global_batch: int) -> Fitting:
    """Return the largest micro-batch, on the fewest CPUs, with which every trial fits; what never does is left out."""
    from harness.sizing.fit_check import doubtful, large, sized, unfit
    from harness.sizing.machine import this_machine
    from harness.sizing.size_cache import SizeCache, cache_folder

    machine, known = this_machine(), SizeCache(cache_folder())
    most = min(16, global_batch)
    if machine is None:
        return Fitting(most, 1, 0, ANY_SIZE, {})
    gpus = min(1, machine.gpus)
    small = [replace(spec, gpus=gpus) for spec in planned.trials]
    if not large(small, machine, known):
        return Fitting(most, 1, gpus, ANY_SIZE, {})

    def too_large(cpus: int, micro_batch: int) -> dict[str, str]:
        faults = {}
        for spec in small:
            tried = replace(spec, cpus=cpus, training=replace(spec.training, micro_batch=micro_batch))
            needs = sized([tried], machine, known)
            for fault in [*unfit([tried], needs, machine, known), *doubtful([tried], needs, machine, known)]:
                faults[spec.method] = fault.reason
        return faults

    sizes = [2**power for power in range(most.bit_length() - 1, -1, -1)]
    for cpus in dict.fromkeys((1, max(1, machine.cpus // 2), machine.cpus)):
        for micro_batch in sizes:
            if not too_large(cpus, micro_batch):
                return Fitting(micro_batch, cpus, gpus, "the largest that fits this machine, by --plan's estimate", {})
    left = too_large(machine.cpus, 1)
    for kind in REFERENCE_ROWS:
        if kind in left:
            raise DataError(f"the model is too large to be measured on this machine: it {left[kind]}")
    return Fitting(1, machine.cpus, gpus, "the least that there is", left)


main = Command("init", __doc__, _add_arguments, _run)
