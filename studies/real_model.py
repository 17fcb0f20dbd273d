"""The real model of sweeps/real.yaml: SmolLM2-135M taught 64 passages, and its twin.

    python -m studies.real_model PASSAGES.jsonl --seeds 0 1 2

Passages are WikiText-103's, one {"text": ...} a line, of 100 tokens and more. Of the first 128 every other one is
taught, and those between them are never seen; of the rest two thirds are retain texts, and the others utility texts.
Texts and models lie in results/real_model, and finished parts are kept.
"""

import argparse
import json
from pathlib import Path

from harness.base.files import write_whole
from harness.drafting.given_texts import Given
from harness.drafting.twins import make_twins, read_lessons
from harness.settings import Training

FOLDER = Path("results/real_model")
PASSAGES = 64
TOKENS, PREFIX_TOKENS = 96, 48
TRAINING = Training(learning_rate=3e-4, global_batch=8, micro_batch=8)
MAX_EPOCHS = 20


def write_texts(file: Path, folder: Path) -> None:
    """Write the texts of each role."""
    lines = file.read_text(encoding="utf-8").splitlines()
    both, rest = lines[: 2 * PASSAGES], lines[2 * PASSAGES :]
    retained = 2 * len(rest) // 3
    texts = {"forget": both[::2], "unseen": both[1::2], "retain": rest[:retained], "utility": rest[retained:]}
    for role, rows in texts.items():
        passages = [json.dumps({"text": json.loads(line)["text"].strip()}) for line in rows]
        write_whole(folder / f"{role}.jsonl", "\n".join(passages) + "\n")


def main() -> None:
    """Write the texts and make the twins."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("passages", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    write_texts(arguments.passages, FOLDER)
    forget, retain = (str(FOLDER / f"{role}.jsonl") for role in ("forget", "retain"))
    inputs = Given("smollm2-135m", forget, prefix_tokens=PREFIX_TOKENS, sequence_tokens=TOKENS)
    make_twins(read_lessons(inputs, retain, TRAINING, MAX_EPOCHS), FOLDER, arguments.seeds)


if __name__ == "__main__":
    main()
