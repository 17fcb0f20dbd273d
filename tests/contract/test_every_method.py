"""Every method in methods/, found by its file, keeps the contract, and on other families than GPT-Neo too."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from harness.execution.tasks import forget_set
from harness.models.loading import load_tokenizer
from harness.plugins import METHODS
from harness.testing import MethodConformance, small_spec

LESS_THAN_LIKELIHOOD = ("pdu", "rmu")
"""Methods that lower logits, or steer hidden states."""


class TestEveryMethod(MethodConformance):
    @pytest.fixture(params=METHODS.names())
    def name(self, request):
        self.may_keep_likelihood = request.param in LESS_THAN_LIKELIHOOD
        return request.param


SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
FAMILIES = {"llama": {**SIZES, "num_key_value_heads": 2}, "gpt_neox": SIZES}


@pytest.fixture(scope="module", params=["llama", pytest.param("gpt_neox", marks=pytest.mark.soak)])
def reciter(request, tmp_path_factory):
    """Return the folder of a small model of another family that recites the forget set."""
    spec, ends = small_spec(), {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        request.param, vocab_size=1024, max_position_embeddings=256, **ends, **FAMILIES[request.param]
    )
    model = AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    tokens = forget_set(spec).tokens_NT
    for step in range(150):
        rows = tokens[step % 3 :: 3]
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    load_tokenizer(spec.model).save_pretrained(folder)
    return str(folder)


class OnAnotherFamily(MethodConformance):
    @pytest.fixture(autouse=True)
    def of_another_family(self, reciter):
        self.model = reciter


class TestEMSOOnOtherFamilies(OnAnotherFamily):
    plugin = "emso"


@pytest.mark.soak
class TestEveryOtherMethodOnOtherFamilies(OnAnotherFamily):
    @pytest.fixture(params=[name for name in METHODS.names() if name != "emso"])
    def name(self, request):
        self.may_keep_likelihood = request.param in LESS_THAN_LIKELIHOOD
        # It weights a text that is recited so well by nearly 0, and the retain loss would hide its direction.
        self.settings = {"retain_weight": 0.0} if request.param == "satimp" else {}
        return request.param
