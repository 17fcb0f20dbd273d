"""Counts the bytes of tensors while code runs on fake ones, which have a shape and a type and hold nothing.

Torch's `FakeTensorMode` lets any model run so; what a real run would hold, and when, comes out as it would in torch's
own accounting, in a second and without a byte of the weights.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils import _pytree as tree
from torch.utils._python_dispatch import TorchDispatchMode

Kind = str
MOST_OPERATIONS = 2_000_000
"""Code that waits for a value to change would run for ever: the values here never do."""


_VALUES = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default, torch.ops.aten.is_nonzero.default)
"""Operations that ask for a tensor's value."""


class NoEndError(Exception):
    """What is tracked does not end."""


@dataclass(frozen=True)
class Bytes:
    """What is held at one moment, by what it is for."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    caches: int = 0
    judges: int = 0

    @property
    def total(self) -> int:
        """Return the sum.

        Example:
            >>> Bytes(weights=4, gradients=4, optimizer=8).total
            16
        """
        return sum(asdict(self).values())

    def __add__(self, other: Bytes) -> Bytes:
        """Return both together."""
        return Bytes(**{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)})


def largest(moments: Iterable[Bytes]) -> Bytes:
    """Return what is held when it is most."""
    return max(moments, key=lambda moment: moment.total)


@dataclass(slots=True, eq=False)
class _Piece:
    """One tensor's memory."""

    bytes: int
    kind: Kind


class MemoryTracker(TorchDispatchMode):
    """Counts what tensors hold while it is on; a value that is asked of a fake tensor is 1, or true."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.optimizer_steps = 0
        self.trained = 0
        """Weights that the last step changed."""
        self._kind: Kind = "activations"
        self._live: dict[int, _Piece] = {}
        self._watched: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._log: list[tuple[int, _Piece]] = []
        self._operations = 0
        self._is_paused = False
        self._undo = ExitStack()
        self._marks: list[int] = []
        self.starts: list[int] = []
        """Which of the moments are those before a model goes forward."""
        self._last_start = 0
        self._state: list[_Piece] = []
        """What a step left behind for the next one."""

    def __enter__(self) -> MemoryTracker:
        """Start counting."""
        # Fake tensors look at gradients that torch warns of.
        self._undo.enter_context(warnings.catch_warnings(action="ignore"))
        self._undo.callback(register_optimizer_step_pre_hook(self._before_step).remove)
        self._undo.callback(register_optimizer_step_post_hook(self._after_step).remove)
        self._undo.callback(register_module_forward_pre_hook(self._mark_start).remove)
        self._undo.callback(register_module_forward_hook(self._mark_model).remove)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        """Stop counting."""
        self._undo.close()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and count what it makes."""
        if self._is_paused:
            return function(*args, **(kwargs or {}))
        self._operations += 1
        if self._operations > MOST_OPERATIONS:
            raise NoEndError(f"more than {MOST_OPERATIONS:,} operations: does it wait for a value to change?")
        if function is torch.ops.prim.device.default and _is_fake(args[0]):  # Asked for as often as all else together.
            return args[0].fake_device
        if function in _VALUES and _is_fake(args[0]):
            return {torch.bool: True}.get(args[0].dtype, 1.0 if args[0].is_floating_point() else 1)
        if function is torch.ops.aten.nonzero.default and _is_fake(args[0]):  # All are, as each is true.
            made = args[0].new_empty(args[0].numel(), args[0].dim(), dtype=torch.long)
        else:
            made = function(*args, **(kwargs or {}))
        for leaf in (made,) if isinstance(made, torch.Tensor) else tree.tree_leaves(made):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf)
        return made

    def loading(self, make: Callable[[], torch.nn.Module], kind: Kind = "weights") -> Any:
        """Return a model whose weights are fake; what making it takes besides is not counted: loading takes less."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        self._is_paused = True
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                model = make()
        finally:
            self._is_paused = False
        self.add_model(model, kind)
        return model

    def add_model(self, model: torch.nn.Module, kind: Kind = "weights") -> None:
        """Count the weights of a model that was made before; a view of one would else pass for something new."""
        with self.counting(kind):
            for tensor in (*model.parameters(), *model.buffers()):
                self._count(tensor)

    @contextmanager
    def counting(self, kind: Kind) -> Iterator[None]:
        """Count what is made meanwhile as `kind`."""
        before, self._kind = self._kind, kind
        try:
            yield
        finally:
            self._kind = before

    def means(self, kind: Kind, tensors: Iterable[torch.Tensor]) -> None:
        """Count these tensors as `kind` from their beginning."""
        for tensor in tensors:
            if piece := self._live.get(tensor.untyped_storage()._cdata):
                piece.kind = kind

    def held(self) -> Bytes:
        """Return what is held now."""
        return _sum(self._live.values())

    def peak(self) -> Bytes:
        """Return what is held when it is most."""
        return largest(self.moments())

    def moments(self) -> list[Bytes]:
        """Return what is held at most in each section of the run, and at the section's end, in order.

        A section lies between two marks: where a model's forward pass or an optimiser's step begins or ends. The
        optimiser's state comes with the first step, and from the second on it lies beside all else: until it goes
        with its optimiser it is counted, as if it had been there from the beginning.

        Example:
            >>> with MemoryTracker() as tracker:
            ...     kept = torch.zeros(10) + 1
            >>> [moment.total for moment in tracker.moments()]
            [80, 40]
        """
        now = asdict(_sum(self._state))
        state = {id(piece) for piece in self._state}
        moments, start = [], 0
        for end in [*self._marks, len(self._log)]:
            total = most = sum(now.values())
            at_most = dict(now)
            for sign, piece in self._log[start:end]:
                if sign > 0 and id(piece) in state:
                    continue
                now[piece.kind] += sign * piece.bytes
                total += sign * piece.bytes
                if total > most:
                    most, at_most = total, dict(now)
            moments += [Bytes(**at_most), Bytes(**now)]
            start = end
        return moments

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        # What waits in the machine's memory while a GPU's is counted is no part of it.
        if key not in self._live and tensor.device.type != "meta":
            piece = self._live[key] = _Piece(storage.nbytes(), self._kind)
            self._log.append((1, piece))
            self._watched[key] = weakref.ref(storage, lambda _: self._free(key))

    def _free(self, key: int) -> None:
        self._log.append((-1, self._live.pop(key)))
        del self._watched[key]

    def _mark_start(self, module: torch.nn.Module, *_: Any) -> None:
        if hasattr(module, "base_model_prefix"):
            self._count_as_weights(module)
            is_inside = self._last_start == len(self._marks) > 0  # A causal LM has a model of transformers inside.
            self._mark_model(module)
            self._last_start = len(self._marks)
            if not is_inside:
                self.starts.append(2 * len(self._marks) - 1)

    def _count_as_weights(self, model: torch.nn.Module) -> None:
        """Count as weights what a model computes with and was made after it was loaded, as a rounded base was."""
        for weight in model.parameters():
            piece = self._live.get(weight.untyped_storage()._cdata)
            if piece is not None and piece.kind == "activations":
                piece.kind = "weights"

    def _mark_model(self, module: torch.nn.Module, *_: Any) -> None:
        if hasattr(module, "base_model_prefix"):  # A whole model of transformers, and none of its parts.
            self._marks.append(len(self._log))

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.trained = 0
        for group in optimizer.param_groups:
            for weight in group["params"]:
                self.trained += weight.numel()
                self.means("weights", [weight])  # Those of adapters were made after the model was loaded.
                self.means("gradients", [] if weight.grad is None else [weight.grad])
        self._kind = "optimizer"
        self._marks.append(len(self._log))

    def _after_step(self, *_: Any) -> None:
        known = set(map(id, self._state))
        self._state += [piece for piece in self._live.values() if piece.kind == "optimizer" and id(piece) not in known]
        self._kind = "activations"
        self._marks.append(len(self._log))
        self.optimizer_steps += 1


def _is_fake(tensor: torch.Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)


def _sum(pieces: Any) -> Bytes:
    sums = asdict(Bytes())
    for piece in pieces:
        sums[piece.kind] += piece.bytes
    return Bytes(**sums)
