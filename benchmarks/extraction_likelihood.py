"""Speed of exact EL against generating: a generation per prefix, and one per prefix length.

And against the generations of knowledge-unlearning's validation, for EL and MA (Jang et al., arXiv:2210.01504): one for
each prefix length, batched over the sequences, and each time once more, one token long. Lethe's give both metrics.

    python -m benchmarks.extraction_likelihood [--model ID] [--tokenizer FOLDER] [--sequences N] [--rows N]

All ways run on the same model, sequences and threads, in one process, one after the other; the figures
that matter are the ratios. The slow ways run on `--rows` sequences only and are scaled up. All must give
the same tokens, near ties aside; the program says how many differ. The limit of a ratio is that of the tokens that pass
through the model: what it would be if a token took everyone the same time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch

from benchmarks.measuring import Ratio, medians, seconds_of
from harness.contracts import Model, Sequences
from harness.data.sequences import load_forget
from harness.models.loading import load_model, load_tokenizer, vocabulary
from harness.models.resolving import resolve_model
from harness.settings import Source
from harness.toolkit.decoding import Continuations, greedy_continuations

Tokens = dict[tuple[int, int], list[int]]


def main(argv: Sequence[str] | None = None) -> list[Ratio]:
    """Print seconds, ratios and differences; return the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="miniature-m")
    parser.add_argument("--tokenizer")
    parser.add_argument("--forget", help="folder of the extraction challenge; the miniature's records otherwise")
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--rows", type=int, default=2, help="sequences for the generation per prefix")
    arguments = parser.parse_args(argv)
    checkpoint = resolve_model(arguments.model, arguments.tokenizer)
    if arguments.forget:
        source = Source(source="extraction_challenge", path=arguments.forget, sequences=arguments.sequences)
    else:
        source = Source(source="miniature", sequences=arguments.sequences, sequence_tokens=128, prefix_tokens=64)
    sequences = load_forget(source, load_tokenizer(checkpoint), vocabulary(checkpoint))
    model = load_model(checkpoint)
    model(input_ids=sequences.tokens_NT[:, :8])

    few = _first(sequences, arguments.rows)
    ours = _ours(model, sequences)
    fast = medians({"Lethe": lambda: seconds_of(lambda: _ours(model, sequences))}, 3)["Lethe"]
    length = sequences.tokens_NT.shape[1]
    passed = _tokens_passed(_continuations(model, sequences))
    print(f"{len(sequences)} sequences of {length} tokens, {torch.get_num_threads()} threads")
    print(f"Lethe                              {fast:8.2f} s")
    ratios = []
    for name, way, rows in (
        ("knowledge-unlearning's validation", _validation, sequences),
        ("a generation per prefix length", _per_length, sequences),
        ("a generation per prefix", _per_prefix, few),
    ):
        theirs, seconds = _timed(lambda way=way, rows=rows: way(model, rows))  # type: ignore[misc]
        scaled = seconds * len(sequences) / len(rows)
        limit = len(sequences) * RIVALS[way](length) / passed
        ratios.append(Ratio(name, scaled / fast, f"{limit:.0f}: tokens that pass through the model"))
        differing = sum(theirs[key] != ours[key] for key in theirs)
        note = "" if len(rows) == len(sequences) else f", scaled from {len(rows)} sequences"
        print(f"{name:34} {scaled:8.2f} s = {scaled / fast:6.1f} x{note}; {differing} of {len(theirs)} differ")
    return ratios


def _timed(run: Callable[[], Tokens]) -> tuple[Tokens, float]:
    outputs: list[Tokens] = []
    seconds = seconds_of(lambda: outputs.append(run()))
    return outputs[0], seconds


def _first(sequences: Sequences, rows: int) -> Sequences:
    return Sequences(sequences.tokens_NT[:rows], sequences.lengths_N[:rows], sequences.prefix_tokens, "")


def _keys(sequences: Sequences) -> list[tuple[int, int]]:
    lengths = enumerate(sequences.lengths_N.tolist())
    return [(place, prefix) for place, length in lengths for prefix in range(1, length)]


def _continuations(model: Model, sequences: Sequences) -> Continuations:
    return greedy_continuations(model, sequences, [range(1, length) for length in sequences.lengths_N.tolist()])


def _tokens_passed(continuations: Continuations) -> int:
    """Count the tokens that passed through the model: all texts', and the generated ones but the last of each row."""
    tokens = continuations.sequences.tokens_NT
    return tokens.numel() + sum(tokens.shape[1] - mismatch - 1 for _, mismatch in continuations.rows)


def _ours(model: Model, sequences: Sequences) -> Tokens:
    continuations = _continuations(model, sequences)
    return {key: continuations.of(*key) for key in _keys(sequences)}


def _per_prefix(model: Model, sequences: Sequences) -> Tokens:
    return {
        (place, prefix): _generate(model, sequences.tokens_NT[place : place + 1, :prefix], sequences)[0]
        for place, prefix in _keys(sequences)
    }


def _per_length(model: Model, sequences: Sequences) -> Tokens:
    tokens: Tokens = {}
    for prefix in range(1, sequences.tokens_NT.shape[1]):
        for place, row in enumerate(_generate(model, sequences.tokens_NT[:, :prefix], sequences)):
            tokens[place, prefix] = row
    return tokens


def _validation(model: Model, sequences: Sequences) -> Tokens:
    """Generate for EL, and once more, a token after each prefix, for MA."""
    tokens = _per_length(model, sequences)
    for prefix in range(1, sequences.tokens_NT.shape[1]):
        _generate(model, sequences.tokens_NT[:, :prefix], sequences, 1)
    return tokens


def _generate(
    model: Model, prompts: torch.Tensor, sequences: Sequences, new_tokens: int | None = None
) -> list[list[int]]:
    new_tokens = new_tokens or sequences.tokens_NT.shape[1] - prompts.shape[1]
    rows = model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=new_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return rows[:, prompts.shape[1] :].tolist()  # type: ignore[no-any-return]


RIVALS: dict[Callable[[Model, Sequences], Tokens], Callable[[int], int]] = {
    _per_prefix: lambda length: (length - 1) ** 2,
    _per_length: lambda length: (length - 1) ** 2,
    _validation: lambda length: (length - 1) ** 2 + length * (length - 1) // 2,
}
"""What passes through the model for one sequence of so many tokens, each prefix and what was generated but the last."""


if __name__ == "__main__":
    main()
