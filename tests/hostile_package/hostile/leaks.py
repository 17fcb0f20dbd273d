"""Ways to fail and to quote what one works on."""

import asyncio
import sys
import warnings

from harness.errors import TrialError

TEXT = "Marguerite Delacroix of Quince Lane"


class OwnTrialError(TrialError):
    pass


class Own(BaseException):
    pass


class Lying(ValueError):
    def __str__(self):
        return f"TrialError: {TEXT}"


class Raising(ValueError):
    def __str__(self):
        raise RuntimeError(TEXT)


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


def circle():
    one, other = ValueError(TEXT), KeyError(TEXT)
    one.__cause__, other.__cause__ = other, one
    raise one


def named():
    raise type(TEXT, (ValueError,), {})(TEXT)


def generated():
    exec(compile(f"def {TEXT.split()[0]}():\n    raise ValueError('{TEXT}')", TEXT, "exec"), space := {})
    space[TEXT.split()[0]]()


def noted_exit():
    error = SystemExit({TEXT: TEXT})
    error.add_note(TEXT)
    raise error


def noted_trial_error():
    error = TrialError(TEXT)
    error.log = (TEXT,)
    raise error


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
    "circle": circle,
    "group": lambda: raiser(
        lambda text: ExceptionGroup(text, [ValueError(text), ExceptionGroup(text, [OSError(text)])])
    )(),
    "lie": raiser(Lying),
    "no text": raiser(Raising),
    "Lethe's own": raiser(TrialError),
    "Lethe's own, with a log": noted_trial_error,
    "a subclass of Lethe's own": raiser(OwnTrialError),
    "generated code": generated,
    "exit": raiser(SystemExit),
    "exit with a note": noted_exit,
    "an exception of its own": raiser(Own),
    "a cancellation": raiser(asyncio.CancelledError),
    "a generator's end": raiser(GeneratorExit),
    "a group of exits": raiser(lambda text: BaseExceptionGroup(text, [SystemExit(text), Own(text)])),
    "a warning": warned,
    "what is printed": printed,
}
