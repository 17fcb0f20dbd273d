"""What the tests of models share: a checkpoint as the hub has it."""

import pytest


@pytest.fixture
def model_folder(make_model, tokenizer, tmp_path):
    folder = tmp_path / "model"
    make_model(3, vocabulary=256).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text("a card")
    return folder
