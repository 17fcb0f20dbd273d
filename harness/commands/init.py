"""Write a commented sweep file for a model and texts, which plans without a fault.

    lethe init miniature-m letters.jsonl
    lethe init EleutherAI/gpt-neo-125m letters.jsonl --unseen other_letters.jsonl --out sweeps/letters.yaml

Exit codes: 0 written, 1 it cannot be written, 2 the model or the texts cannot be used.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base.files import write_whole
from harness.base.messages import printable
from harness.base.paths import named_argument, path_argument
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.commands.model_and_texts import add_model_and_texts, read_model_and_texts
from harness.errors import ConfigError, DataError
from harness.specs import REFERENCE_ROWS

if TYPE_CHECKING:
    from harness.contracts import Checkpoint
    from harness.data.sources import Role
    from harness.plans import Plan

MOST_TEXTS = 512
"""Used unless the user says otherwise: a sweep of more takes long, and its results hardly differ."""
STEPS = 16
"""Optimiser steps of an epoch: enough of them that an early stop can distinguish one from the next."""
PROMPTS, PROMPT_TOKENS, REFERENCE_TOKENS = 256, 32, 128
"""Of utility texts: MAUVE needs so many."""
EVALUATOR_SETTINGS = {"memorization": {"el_prefixes": 8}}
"""EL after every prefix takes long, and after eight of each text it is the same to 0.01."""
MICRO_BATCHES = (16, 8, 4, 2, 1)


class InitCommand(Command):
    """`lethe init`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the model, the texts, and the file to write."""
        add_model_and_texts(parser)
        parser.add_argument("--retain", type=named_argument, help="general texts that the model has to keep")
        about = "general texts that the model has not read, for it to continue"
        parser.add_argument("--utility", type=named_argument, help=about)
        parser.add_argument("--out", type=path_argument, help="the file to write (default: TEXTS.yaml in this folder)")

    def run(self, arguments: argparse.Namespace) -> int:
        """Write the file, and print where it is."""
        from harness.drafting.given_texts import faults_of_given
        from harness.planning.plan import usable_name

        sweep = usable_name(Path(arguments.texts).name.partition(".")[0])
        out = arguments.out or Path(f"{sweep}.yaml")
        if out.exists():
            raise DataError(f"{out} exists, and is not overwritten: name another file with --out, or remove it.")
        with faults_of_given(arguments.texts, arguments.unseen, arguments.model):
            content, left_out = _planned_file(_file_parts(arguments, sweep, out), out)
        write_whole(out, content, "the sweep file")
        for name, reason in left_out.items():
            tell(f"Left out: {name}: {reason}")
        tell(f"{out} is written. To see what it would run: python -m harness.sweep {out} --plan")
        return 0


def _file_parts(arguments: argparse.Namespace, sweep: str, out: Path) -> dict[str, Any]:
    """Return what the template is filled with, besides the rows of methods and what fits."""
    from harness.drafting.file_templates import flow
    from harness.drafting.given_texts import MINIATURE, is_miniature
    from harness.miniature.corpus import FORGET_RECORDS

    model, texts, settings = read_model_and_texts(arguments, MOST_TEXTS)
    about_texts = "The embedded forget set: the first 128 tokens of each record, of which 64 are the prefix."
    if texts.lengths is not None:
        sampled = f" {texts.forget['sequences']} of them are drawn at random." if texts.sampled_of else ""
        about_texts = (
            f"{texts.lengths.in_words}; longer ones are cut after {texts.forget['sequence_tokens']}.{sampled}\n  # The "
            "prefix is half of the shortest text, unless you said otherwise: continuations are as long or longer."
        )
    count = min(len(texts.lengths.tokens_N) if texts.lengths else FORGET_RECORDS, MOST_TEXTS)
    batch = max(1, 2 ** min(6, (count // STEPS or 1).bit_length() - 1))
    of_miniature = is_miniature(model.id)
    return {
        **settings,
        **_general_texts(arguments, model, count),
        "question": printable(f"What does it cost {arguments.model} to forget {arguments.texts}?"),
        "file": printable(str(out)),
        "name": flow(sweep),
        "about_texts": about_texts,
        "is_embedded": arguments.texts == MINIATURE,
        "is_miniature": of_miniature,
        "has_own_texts": bool(arguments.retain and arguments.utility),
        # The miniature's rates: docs/decisions/0003.
        "learning_rate": "4.0e-5" if of_miniature else "1.0e-5",
        "memorized_model": "{learning_rate: 1.0e-3}" if of_miniature else "",
        "global_batch": batch,
        "steps": -(-count // batch),
    }


def _general_texts(arguments: argparse.Namespace, model: Checkpoint, count: int) -> dict[str, str]:
    """Return the settings of the retain data and of the utility texts.

    There are as many retain texts as forget sequences, and as many utility texts as MAUVE needs, or all that there are.
    """
    from harness.data.sequences import LEAST_TOKENS
    from harness.drafting.file_templates import flow
    from harness.drafting.given_texts import MINIATURE, TextLengths, named_source, read_lengths
    from harness.models.loading import load_tokenizer, positions, vocabulary

    def lengths_of(source: dict[str, Any], role: Role) -> TextLengths:
        return read_lengths(source, role, load_tokenizer(model), vocabulary(model), PROMPT_TOKENS + REFERENCE_TOKENS)

    retain = named_source(arguments.retain or MINIATURE, arguments.field)
    if arguments.retain:
        usable = sum(tokens >= LEAST_TOKENS for tokens in lengths_of(retain, "retain").tokens_N)
        retain["sequences"] = min(count, max(1, usable))
    utility = named_source(arguments.utility or MINIATURE, arguments.field)
    lengths = lengths_of(utility, "utility")
    prompts = min(PROMPTS, len(lengths.tokens_N))
    room = min(sorted(lengths.tokens_N, reverse=True)[prompts - 1], positions(model)) - PROMPT_TOKENS
    if room < PROMPT_TOKENS:
        raise DataError(
            f"{lengths.label}: texts to be continued need {2 * PROMPT_TOKENS} tokens, half of them a prompt, and "
            f"{prompts} of them are no longer than {room + PROMPT_TOKENS} here. Give longer ones with --utility."
        )
    reference_tokens = min(REFERENCE_TOKENS, room)
    utility |= {"prompts": prompts, "prompt_tokens": PROMPT_TOKENS, "reference_tokens": reference_tokens}
    return {"retain": flow(retain), "utility": flow(utility)}


@dataclass(frozen=True)
class Fitting:
    """The resources of every trial, and the methods that need more than this machine has."""

    micro_batch: int
    cpus: int = 1
    gpus: int = 0
    about: str = "changes memory and speed, no number"
    too_large: dict[str, str] = field(default_factory=dict)


def _planned_file(parts: dict[str, Any], out: Path) -> tuple[str, dict[str, str]]:
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
    fitting = Fitting(min(MICRO_BATCHES[0], parts["global_batch"]))
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
        before, fitting = fitting, _fitting_of(planned, parts["global_batch"])
        left_out |= fitting.too_large
        if fitting == before:
            return content, left_out
    raise DataError(
        "No method is left that could erase from this model on this machine: " + "; ".join(left_out.values())
    )


def _fitting_of(planned: Plan, global_batch: int) -> Fitting:
    """Return the largest micro-batch, on the fewest CPUs, with which every trial fits, or what never fits."""
    from harness.sizing.fit_check import doubtful, large, sized, unfit
    from harness.sizing.machine import this_machine
    from harness.sizing.size_cache import SizeCache, cache_folder

    machine, known = this_machine(), SizeCache(cache_folder())
    micro_batches = [size for size in MICRO_BATCHES if size <= global_batch]
    if machine is None:
        return Fitting(micro_batches[0])
    gpus = min(1, machine.gpus)
    small = [replace(spec, gpus=gpus) for spec in planned.trials]
    if not large(small, machine, known):
        return Fitting(micro_batches[0], gpus=gpus)
    faults: dict[str, str] = {}
    for cpus in dict.fromkeys((1, max(1, machine.cpus // 2), machine.cpus)):
        for micro_batch in micro_batches:
            faults = {}
            for spec in small:
                tried = replace(spec, cpus=cpus, training=replace(spec.training, micro_batch=micro_batch))
                needs = sized([tried], machine, known)
                for fault in [*unfit([tried], needs, machine, known), *doubtful([tried], needs, machine, known)]:
                    faults[spec.method] = fault.reason
            if not faults:
                about = "the largest that fits this machine, by --plan's estimate"
                return Fitting(micro_batch, cpus, gpus, about)
    for kind in REFERENCE_ROWS:
        if kind in faults:
            raise DataError(f"the model is too large to be measured on this machine: it {faults[kind]}")
    return Fitting(1, machine.cpus, gpus, "the smallest that there is", faults)


main = InitCommand()
