"""Mutants of checkpoint folders and of patches: loaded with exactly the weights that they hold, or refused by place."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.models.blocks import blocks
from harness.models.loading import check_model, check_tokenizer, load_model, load_tokenizer, positions, vocabulary
from harness.models.patch import apply_patch, read_patch, save_patch
from harness.models.resolving import resolve_model


def with_header(content, head):
    """Return a safetensors file with another header."""
    length = int.from_bytes(content[:8], "little")
    return len(head).to_bytes(8, "little") + head + content[8 + length :]


def header(content):
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length])


def changed_tensors(file, choice):
    """Put NaN into a tensor, drop one, rename one, or give one another type or shape."""
    tensors = load_file(file)
    name = choice.choice(sorted(tensors))
    tensor = tensors.pop(name)
    how = choice.choice(("nan", "inf", "gone", "name", "type", "shape", "more"))
    if how in ("nan", "inf"):
        tensor.view(-1)[choice.randrange(tensor.numel())] = float(how)
    elif how == "type":
        tensor = tensor.to(choice.choice((torch.int64, torch.bool, torch.float16, torch.bfloat16, torch.float64)))
    elif how == "shape":
        tensor = choice.choice((tensor[:1], tensor.flatten(), tensor[None])).contiguous()
    if how != "gone":
        tensors[name + "x" * (how == "name")] = tensor
    if how == "more":
        tensors["more.weight"] = torch.zeros(3)
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.fixture
def checkpoint_attempt(world, change, tmp_path_factory):
    files = sorted(file.name for file in (world / "MODEL").iterdir())

    def attempt(choice, folder, named):
        place = folder / "model"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(world / "MODEL", place)
        name = choice.choice((*files, "config.json", "config.json", "model.safetensors", "tokenizer.json"))
        file, how = place / name, choice.random()
        if name == "model.safetensors" and how < 0.3:
            changed_tensors(file, choice)
        elif name == "model.safetensors" and how < 0.6:
            content = file.read_bytes()
            file.write_bytes(with_header(content, change.json(change.tree(header(content), choice), choice)))
        elif name.endswith(".json") and how < 0.7:
            file.write_bytes(change.json(change.tree(json.loads(file.read_text()), choice), choice))
        elif how < 0.75:
            file.unlink()
        elif how < 0.8:
            file.unlink()
            file.symlink_to(choice.choice((file, place, place / "config.json", "/dev/zero")))
        else:
            file.write_bytes(change.content(file.read_bytes(), choice))
        named.append(str(place))
        checkpoint = resolve_model(str(place))
        check_model(checkpoint)
        check_tokenizer(checkpoint)
        assert positions(checkpoint) > 0
        model = load_model(checkpoint)
        stored = load_file(place / "model.safetensors")
        for name, tensor in model.named_parameters():
            known = stored.get(name, stored.get(name.removeprefix(f"{model.base_model_prefix}.")))
            if known is not None:
                assert torch.equal(tensor, known.float()), name
        assert model.get_input_embeddings().num_embeddings == vocabulary(checkpoint)
        assert all(parameter.isfinite().all() for parameter in model.parameters())

    def clean(choice, folder, named):
        load_tokenizer.cache_clear()
        check_model.cache_clear()
        attempt(choice, folder, named)

    return clean


@pytest.fixture
def patch_attempt(make_model, change, tmp_path):
    model = make_model(0, layers=2)
    sound = tmp_path / "sound.safetensors"
    names = [block.name for block in blocks(model)]
    save_patch(make_model(1, layers=2), choice_of(names), "abc", sound)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def attempt(choice, folder, named):
        file, content, how = folder / "patch.safetensors", sound.read_bytes(), choice.random()
        if how < 0.4:
            content = with_header(content, change.json(change.tree(header(content), choice), choice))
        elif how < 0.6:
            content = change.content(content, choice)
        file.write_bytes(content)
        if how >= 0.6:
            tensors = load_file(file)
            name = choice.choice(sorted(tensors))
            kinds = (torch.int8, torch.float16, torch.float64, torch.bool)
            spoilt = (
                tensors[name] * float("nan"),
                tensors[name].to(choice.choice(kinds)),
                tensors[name][:1].contiguous(),
            )
            tensors[name] = choice.choice(spoilt)
            about = choice.choice(
                (json.dumps({"original": "abc"}), "{}", "[]", "3", "[" * 5000, '{"original": ["abc"]}')
            )
            save_file(tensors, file, metadata=choice.choice(({"lethe": about}, {}, {"lethe": '{"original": "abc"}'})))
        named.append(str(file))
        model.load_state_dict(weights)
        patched = apply_patch(model, "abc", file)
        by_name, parameters = {block.name: block for block in blocks(patched)}, dict(patched.named_parameters())
        for name, tensor in read_patch(file)[1].items():
            assert torch.equal(by_name[name].of(parameters[by_name[name].parameter]), tensor.float()), name
        assert all(parameter.isfinite().all() for parameter in patched.parameters())

    return attempt


def choice_of(names):
    return names[::5]


def test_mutants(checkpoint_attempt, patch_attempt, fuzz):
    fuzz(checkpoint_attempt, 20)
    fuzz(patch_attempt, 30)


@pytest.mark.soak
def test_ten_thousand_checkpoint_folders(checkpoint_attempt, fuzz):
    fuzz(checkpoint_attempt, 10_000, is_apart=True)


@pytest.mark.soak
def test_ten_thousand_patches(patch_attempt, fuzz):
    fuzz(patch_attempt, 10_000, is_apart=True)
