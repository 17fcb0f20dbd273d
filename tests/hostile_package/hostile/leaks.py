"""Ways to fail and to quote what one works on."""

import sys
import warnings

from harness.errors import TrialError

TEXT = "Marguerite Delacroix of Quince Lane"


def note():
    error = ValueError("no words")
    error.add_note(TEXT)
    raise error


def cause():
    raise ValueError("no words") from KeyError(TEXT)


def context():
    try:
        raise KeyError(TEXT)
    except KeyError:
        raise ValueError("no words")  # noqa: B904


def warned():
    warnings.warn(TEXT, stacklevel=1)
    raise ValueError("no words")


def printed():
    print(TEXT)
    print(f'  File "{TEXT}", line 1, in {TEXT}', file=sys.stderr)
    print(f"{TEXT}Error: {TEXT}", file=sys.stderr, flush=True)
    raise ValueError("no words")


def raiser(error):
    def leak():
        raise error(TEXT)

    return leak


LEAKS = {
    "message": raiser(ValueError),
    "arguments": raiser(OSError),
    "note": note,
    "cause": cause,
    "context": context,
    "group": lambda: raiser(
        lambda text: ExceptionGroup(text, [ValueError(text), ExceptionGroup(text, [OSError(text)])])
    )(),
    "Lethe's own": raiser(TrialError),
    "exit": raiser(SystemExit),
    "a group of exits": raiser(lambda text: BaseExceptionGroup(text, [SystemExit(text)])),
    "a warning": warned,
    "what is printed": printed,
}
