"""Write a commented sweep file for a model and texts, which plans without a fault.

    lethe init miniature-m letters.jsonl
    lethe init EleutherAI/gpt-neo-125m letters.jsonl --unseen other_letters.jsonl --out sweeps/letters.yaml

It tries a few learning rates on a few texts, and takes the least that erases.

Exit codes: 0 written, 1 it cannot be written, 2 the model or the texts cannot be used; 130 after Ctrl-C, 143 after
SIGTERM, 129 after SIGHUP.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base.files import write_whole
from harness.base.messages import printable
from harness.base.paths import named_argument, path_argument, usable_name
from harness.base.terminal import tell
from harness.commands.command import Command
from harness.commands.model_and_texts import add_model_and_texts, read_model_and_texts
from harness.errors import ConfigError, DataError, TrialError

if TYPE_CHECKING:
    from harness.contracts import Checkpoint
    from harness.data.sources import Role
    from harness.drafting.rate_probe import ProbedRate

MOST_TEXTS = 512
"""Used unless the user says otherwise: a sweep of more takes long, and its results hardly differ."""
STEPS = 16
"""Optimiser steps of an epoch: enough of them that an early stop can distinguish one from the next."""
PROMPTS, PROMPT_TOKENS, REFERENCE_TOKENS = 256, 32, 128
"""Of utility texts: MAUVE needs so many."""


PROBED_BYTES = 1_000_000_000
"""Of weights: on a CPU a larger model would be tried for longer than anyone waits."""


class InitCommand(Command):
    """`lethe init`."""

    interrupted = "No file is written."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the model, the texts, and the file to write."""
        add_model_and_texts(parser)
        parser.add_argument("--retain", type=named_argument, help="general texts that the model has to keep")
        about = "general texts that the model has not read, for it to continue"
        parser.add_argument("--utility", type=named_argument, help=about)
        about = "write the usual learning rate, instead of trying a few on this model (seconds to minutes)"
        parser.add_argument("--no-probe", action="store_true", help=about)
        parser.add_argument("--out", type=path_argument, help="the file to write (default: TEXTS.yaml in this folder)")

    def run(self, arguments: argparse.Namespace) -> int:
        """Write the file, and print where it is."""
        from harness.drafting.given_texts import faults_of_given
        from harness.drafting.planned_file import planned_file

        sweep = usable_name(Path(arguments.texts).name.partition(".")[0])
        out = arguments.out or Path(f"{sweep}.yaml")
        if out.exists():
            raise DataError(f"{out} exists, and is not overwritten: name another file with --out, or remove it.")
        with faults_of_given(arguments.texts, arguments.unseen, arguments.model):
            parts = _file_parts(arguments, sweep, out)
            content, left_out = planned_file(parts, out)
            if not arguments.no_probe:
                parts |= _tried_rates(content, out, parts)
                content, left_out = planned_file(parts, out)
        write_whole(out, content, "the sweep file")
        for name, reason in left_out.items():
            tell(f"Left out: {name}: {reason}")
        tell(f"{out} is written. To see what it would run: python -m harness.sweep {out} --plan")
        return 0


def _file_parts(arguments: argparse.Namespace, sweep: str, out: Path) -> dict[str, Any]:
    """Return what the template is filled with, besides the rows of methods and what fits."""
    from harness.contracts import Training
    from harness.drafting.file_templates import flow
    from harness.drafting.given_texts import MINIATURE, is_miniature
    from harness.miniature.checkpoints import FORGET_RECORDS
    from harness.planning.memory import weights_bytes

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
        "about_rate": "the usual one: `lethe init` without --no-probe tries which erases on this model",
        "rates": [],
        "memorized_model": "{learning_rate: 1.0e-3}" if of_miniature else "",
        "early_stop": Training().early_stop,
        "about_early_stop": "a training ends after the epoch whose validation perplexity exceeds this times the "
        "original's; null: never",
        "global_batch": batch,
        "steps": -(-count // batch),
        "count": count,
        "weights_bytes": weights_bytes(model),
    }


def _is_slow(parts: Mapping[str, Any]) -> bool:
    """Return whether trying anything would take longer than anyone waits: a large model, and no GPU."""
    from harness.planning.machine import this_machine

    machine = this_machine()
    return parts["weights_bytes"] > PROBED_BYTES and not (machine and machine.gpus)


def _tried_rates(content: str, out: Path, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the learning rate of a file, and what was seen of others: the least that erases on this model."""
    from harness.drafting.rate_probe import UNKNOWN_PERPLEXITY, chosen_rate, probed_rates

    if _is_slow(parts):
        return {"about_rate": "the usual one: without a GPU it would take too long to try others on this model"}
    tried: list[ProbedRate] = []
    try:
        for probed in probed_rates(content, out, parts["count"], tell):
            tried.append(probed)
            tell(f"  {probed}")
    except (ConfigError, TrialError) as error:
        return {"about_rate": f"the usual one: no other could be tried ({_why(error)})"}
    rate = chosen_rate(tried, float(parts["learning_rate"]))
    longer = parts["steps"] / tried[-1].steps  # Adam moves weights by as much as the rate at each step.
    about = "none erased in a few steps of gradient ascent: raise it"
    if tried[-1].erases:
        about = "the least that erased in a few steps of gradient ascent"
        if longer > 1:
            about += f" ({rate:.0e}; an epoch has {longer:.1f} times as many steps, so it is divided by that)"
            rate /= longer
    elif tried[-1].is_collapsed:
        about = "at none a few steps of gradient ascent erased and left a model: look at the points before collapse"
    chosen = {"learning_rate": f"{rate:.1e}", "about_rate": about, "rates": list(map(str, tried))}
    if (unknown := tried[0].perplexity_before) > UNKNOWN_PERPLEXITY:
        tell(
            f"The model does not know the general texts that it is to keep (perplexity {unknown:,.0f}), so training is "
            "not stopped by them. Name texts like those that it was trained on: --retain FILE --utility FILE."
        )
        chosen |= {
            "early_stop": "null",
            "about_early_stop": f"never: the model does not know the validation texts (perplexity {unknown:,.0f}); "
            "with others in data.validation, 1.03 ends a training where their perplexity has risen by 3 %",
        }
    return chosen


def _why(error: ConfigError | TrialError) -> str:
    faults = [fault.reason for fault in error.faults] if isinstance(error, ConfigError) else [str(error)]
    return printable(" ".join(faults)).rstrip(".")


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
    # Of a file the other half is for validation, which takes what follows.
    prompts = min(PROMPTS, max(1, len(lengths.tokens_N) // 2) if arguments.utility else len(lengths.tokens_N))
    room = min(sorted(lengths.tokens_N, reverse=True)[prompts - 1], positions(model)) - PROMPT_TOKENS
    if room < PROMPT_TOKENS:
        raise DataError(
            f"{lengths.label}: texts to be continued need {2 * PROMPT_TOKENS} tokens, half of them a prompt, and "
            f"{prompts} of them are no longer than {room + PROMPT_TOKENS} here. Give longer ones with --utility."
        )
    reference_tokens = min(REFERENCE_TOKENS, room)
    utility |= {"prompts": prompts, "prompt_tokens": PROMPT_TOKENS, "reference_tokens": reference_tokens}
    return {"retain": flow(retain), "utility": flow(utility)}


main = InitCommand()
