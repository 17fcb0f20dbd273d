"""Seconds of `lethe audit` against loading the model and passing its texts through it twice, in plain transformers.

    python -m benchmarks.audit [--model ID] [--texts N]

Both are whole processes, imports included, one after the other. Half of the texts are unseen ones; all have 96 tokens.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measuring import Ratio, seconds_of
from harness import miniature
from harness.models.resolving import resolve_model

PLAIN = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, tokenizer, *files = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(tokenizer)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
texts = [json.loads(line)["text"] for file in files for line in open(file)]
rows = torch.tensor([tokenizer(text)["input_ids"][:96] for text in texts])
with torch.inference_mode():
    for part in [*rows.split(8), *rows.split(8)]:
        model(part).logits.argmax(-1)
"""


def main(argv: Sequence[str] | None = None) -> list[Ratio]:
    """Print the seconds of both; return the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--texts", type=int, default=64)
    arguments = parser.parse_args(argv)
    checkpoint = resolve_model(arguments.model)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{role}.jsonl" for role in ("forget", "holdout")]
        for file in files:
            texts = miniature.texts(file.stem)[: arguments.texts // 2]
            file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        cut = ["--sequence-tokens", "96", "--prefix-tokens", "48", "--unseen", files[1]]
        commands = {"plain": ["-c", PLAIN, checkpoint.location, checkpoint.tokenizer, *files]}
        commands["lethe"] = ["-m", "harness.cli", "audit", arguments.model, files[0], *cut]
        seconds = {}
        for name, command in commands.items():
            seconds[name] = seconds_of(lambda command=command: subprocess.run([sys.executable, *command], check=True))
    print(f"{arguments.texts} texts: plain transformers {seconds['plain']:.1f} s, lethe audit {seconds['lethe']:.1f} s")
    return [Ratio("an audit / load and two passes", seconds["lethe"] / seconds["plain"], "at most 3")]


if __name__ == "__main__":
    main()
