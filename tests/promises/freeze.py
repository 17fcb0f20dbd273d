"""Write the frozen files again, from what the code makes today: `python -m tests.promises.freeze`."""

import tempfile
from pathlib import Path

from tests.promises import test_numbers_methods

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        test_numbers_methods.freeze(Path(folder))
