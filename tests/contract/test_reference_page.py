"""docs/reference.md is what the docstrings say of all that a plugin may import."""

import importlib.util
import re
from pathlib import Path

import pytest

from harness import toolkit
from harness.contracts import Evaluator, Method

SCRIPT = Path(__file__).parents[2] / "docs" / "reference_page.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("reference_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_docstrings_say(script):
    assert script.page() == script.PAGE.read_text(), "run python docs/reference_page.py"


def test_every_exported_name_has_its_entry_with_a_meaning(script):
    page = script.page()
    entries = dict(re.findall(r"^### (\w+)\n\n```python\n.+?\n```\n\n(.*)$", page, re.M))
    assert entries.keys() >= {*toolkit.__all__, "Method", "Evaluator", "ErasureTask", "EvaluationTask", "TrialError"}
    assert all(entries.values())
    for owner, member in ((Method, "erase"), (Evaluator, "evaluate"), (Method, "refuses")):
        assert hasattr(owner, member)
        assert f"**`{member}(" in page
    assert "- `Json`: `Any`. Whatever `json` can write" in page
    assert "- `tokens_NT: torch.Tensor`: int64, padded with 0 after each sequence's end." in page


def test_a_docstring_becomes_a_list_of_arguments_and_an_example(script):
    def example(tokens_BT, limit=3):
        """Return how many.

        Args:
            tokens_BT: The tokens,
                right-padded.
            limit: At most.

        Raises:
            ValueError: There is none.

        Example:
            >>> example([1])
            1
        """

    assert list(script.docstring_lines(example)) == [
        "Return how many.\n",
        "**Args**\n\n- `tokens_BT`: The tokens, right-padded.\n- `limit`: At most.\n",
        "**Raises**\n\n- `ValueError`: There is none.\n",
        "```pycon\n>>> example([1])\n1\n```\n",
    ]
