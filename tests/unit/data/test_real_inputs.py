"""The real inputs, where they are: the Extraction Challenge and the passages."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.analysis.evidence import read_evidence
from harness.data.sequences import load_forget, load_utility
from harness.data.sources import token_ids
from harness.planning.plan import plan
from harness.records.journal import Journal
from harness.records.results import read_results
from harness.specs import Source

CHALLENGE_MD5 = "6d85d7f2b48e34e6f96541a546a699bf"


def shared_folder():
    """The real inputs: LETHE_SHARED, or the folder `shared` beside the repository."""
    beside = Path(__file__).resolve().parents[4] / "shared"
    return Path(os.environ.get("LETHE_SHARED", beside))


def test_the_real_extraction_challenge(tokenizer):
    folder = shared_folder() / "data" / "extraction_challenge"
    if not folder.is_dir():
        pytest.skip(f"the real Extraction Challenge is not in {folder}; LETHE_SHARED says where")
    source = Source(source="extraction_challenge", path=str(folder))
    array = token_ids(source)
    assert array.shape == (15_000, 200)
    assert hashlib.md5(array.astype(np.uint16).tobytes()).hexdigest() == CHALLENGE_MD5
    forget = load_forget(source, tokenizer, 50_257)
    assert forget.tokens_NT.shape == (15_000, 200)
    first = load_forget(Source(source="extraction_challenge", path=str(folder), sequences=512), tokenizer, 50_257)
    assert torch.equal(first.tokens_NT, forget.tokens_NT[:512])


def test_the_real_passages(tokenizer):
    file = shared_folder() / "data" / "wikitext103_articles.jsonl"
    if not file.is_file():
        pytest.skip(f"the real passages are not in {file}; LETHE_SHARED says where")
    unseen = Source(source="jsonl", path=str(file), start=450, sequences=50, prefix_tokens=32, sequence_tokens=160)
    assert load_utility(unseen, tokenizer, len(tokenizer)).prompts_NT.shape == (50, 32)


def test_the_real_memorized_and_not_memorized_paragraphs(make_model, neo_tokenizer, run_whole, tmp_path):
    """The paper's figure 5 goes through planning, and a model that recites none of it through both its losses."""
    folder = shared_folder() / "data" / "mem_nonmem"
    if not folder.is_dir():
        pytest.skip(
            f"the paragraphs that GPT-Neo-125M does and does not recite are not in {folder}; LETHE_SHARED says where"
        )
    make_model(0, layers=2, hidden=8, heads=2, vocabulary=50_257).save_pretrained(tmp_path / "tiny")
    neo_tokenizer.save_pretrained(tmp_path / "tiny")
    changes = [
        f"models=[{tmp_path / 'tiny'}]",
        "judges.similarity=minilm",
        f"data.forget.path={folder}/gpt_neo_125m_ematch_50_50.npy",
        f"data.forget.not_memorized.path={folder}/gpt_neo_125m_ematch_11_29.npy",
        "data.utility={source: miniature, prompts: 2, prompt_tokens: 8, reference_tokens: 8}",
        "data.validation={source: miniature, sequences: 1, sequence_tokens: 16}",
        "evaluators={memorization: {el_prefixes: 1, el_sequences: 1}}",
        "training.learning_rate=0.1",
        "resources={cpus: 1, gpus: 0}",
    ]
    file = Path(__file__).parents[3] / "sweeps" / "paper" / "entropy_versus_nll.yaml"
    whole = plan(file, changes).trials[0].forget
    assert (whole.rows, whole.prefix_tokens, whole.longest) == (120, 50, 100)
    sampled = load_forget(whole, neo_tokenizer, 50_257).tokens_NT
    first, second = (np.load(folder / f"gpt_neo_125m_ematch_{name}.npy") for name in ("50_50", "11_29"))
    assert {*map(tuple, sampled[:20].tolist())} <= {*map(tuple, first.tolist())}
    assert {*map(tuple, sampled[20:].tolist())} <= {*map(tuple, second.tolist())}
    assert not np.array_equal(sampled[:20], first[:20]), "a sample, and not the first ones"

    few = ["data.forget.sequences=2", "data.forget.not_memorized.sequences=3"]
    epochs = [f"methods.full_{loss}.epochs=[1]" for loss in ("em", "nll")]
    only = ["variant=original", "variant=full_em", "variant=full_nll"]
    found = plan(file, [*changes, *few, *epochs], only)
    for spec in found.trials:
        run_whole(spec)
    results = read_results(found, Journal(tmp_path / "results" / "journal"))
    by_point = read_evidence(results).by_point
    kept = {point.spec.variant: by_point[point.spec.point_id(point.strength)] for point in results.measured}
    own = {variant: items["exact_match_original"].values_N.tolist() for variant, items in kept.items()}
    assert own["original"] == [50.0] * 5, "the original agrees with itself to the end"
    assert max(own["full_em"]) < 50
    assert max(own["full_nll"]) < 50
