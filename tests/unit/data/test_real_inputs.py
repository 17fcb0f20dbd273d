"""The real inputs, where they are: the Extraction Challenge."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.data.sequences import load_forget
from harness.data.sources import token_ids
from harness.settings import Source

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
