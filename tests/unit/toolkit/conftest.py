"""What the tests of the toolkit share: texts, a model in fp64, and the examples of the guide."""

import runpy
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tests.unit.tasks import random_rows

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture
def texts(make_sequences):
    """Return forget texts and retain texts, which no two of are alike."""
    rows = random_rows(9, 12, 7, 12, 10, 8, 11, 12)
    return make_sequences(rows[:5]), make_sequences(rows[5:])


@pytest.fixture
def forget(texts):
    """Return five texts of 7 to 12 tokens."""
    return texts[0]


@pytest.fixture
def in_fp64():
    """Return a tiny GPT-2 in fp64, which has an error of 1e-16 and no step in fp32, as GPT-Neo's attention is."""
    torch.manual_seed(1)
    ends = {"vocab_size": 60, "bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=32, initializer_range=0.3, **ends)
    return GPT2LMHeadModel(config).double().eval()


@pytest.fixture
def example():
    """Return a reader of an example of the method guide, by its file's name, which returns its module's names."""
    return lambda name: runpy.run_path(str(EXAMPLES / f"{name}.py"))
