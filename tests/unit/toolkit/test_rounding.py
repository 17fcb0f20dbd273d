"""Rounding of matrices, against loops over single weights, the values of QLoRA, and bitsandbytes where it is there."""

import pytest
import torch

from harness.toolkit.rounding import normal_float_values, rounded_to_integers, rounded_to_normal_float

SHAPES = [(3, 1), (4, 64), (5, 127), (5, 128), (5, 129), (2, 300)]
PUBLISHED = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""NF4 as QLoRA's code has it, in fp32."""


@pytest.fixture(params=SHAPES, ids=str)
def weight(request):
    torch.manual_seed(sum(request.param))
    return torch.randn(request.param) * torch.rand(request.param[0], 1)


def groups_of(row, size):
    return [row[start : start + size] for start in range(0, len(row), size)]


def integers_one_by_one(weight, bits, group):
    """Each group of each output channel by itself, in Python's fp64."""
    largest = 2 ** (bits - 1) - 1
    rows = []
    for row in weight.tolist():
        rounded = []
        for values in groups_of(row, group):
            scale = max(map(abs, values)) / largest
            rounded += [scale * round(value / scale) for value in values]
        rows.append(rounded)
    return torch.tensor(rows)


@pytest.mark.parametrize("bits", [4, 8])
def test_integers_are_what_a_loop_over_the_weights_gives(weight, bits):
    assert torch.allclose(rounded_to_integers(weight, bits), integers_one_by_one(weight, bits, 128), atol=1e-6)
    assert torch.allclose(rounded_to_integers(weight, bits, 16), integers_one_by_one(weight, bits, 16), atol=1e-6)


def test_nf4_has_the_published_values():
    assert normal_float_values() == pytest.approx(PUBLISHED, abs=2e-7)


def test_nf4_is_what_a_loop_over_the_weights_gives(weight):
    expected = []
    for values in groups_of(weight.flatten().tolist(), 64):
        magnitude = max(map(abs, values))
        for value in values:
            expected.append(min(PUBLISHED, key=lambda level: abs(level * magnitude - value)) * magnitude)
    assert torch.allclose(rounded_to_normal_float(weight), torch.tensor(expected).view_as(weight), atol=1e-6)


@pytest.mark.parametrize(
    "rounded",
    [lambda w: rounded_to_integers(w, 4), lambda w: rounded_to_integers(w, 8), rounded_to_normal_float],
    ids=["int4", "int8", "nf4"],
)
class TestEveryScheme:
    def test_what_is_rounded_stays_as_it_is(self, weight, rounded):
        once = rounded(weight)
        assert torch.allclose(rounded(once), once, rtol=1e-5, atol=0)
        assert weight.shape[1] == 1 or not torch.allclose(once, weight, rtol=1e-5, atol=0)

    def test_a_weight_that_is_no_number_is_not_made_one(self, rounded):
        for wrong in (float("nan"), float("inf")):
            weight = torch.ones(1, 256)
            weight[0, 3] = wrong
            result = rounded(weight)
            assert not result[0, 3].isfinite()
            assert result[0, 128:].tolist() == [1.0] * 128
