"""Tasks of methods and evaluators, the measured model, and arrays computed from the original."""

import copy
import ctypes
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar, cast, get_args

import numpy as np
import torch

from harness.base.files import digest_of
from harness.contracts import Checkpoint, Definition, Evaluator, Generations, Model, Read, Sequences, Tokenizer
from harness.errors import TrialError
from harness.execution import isolate
from harness.execution.trial import inputs, memorized
from harness.models import loading, tokenizing
from harness.plugins import EVALUATORS, prepares
from harness.records.artifacts import PREPARED, Artifacts, is_prepared, prepared_key
from harness.settings import EvaluatorSpec, Json, MoreTexts, Number, Precision, Source, Training, Trial
from harness.toolkit import decoding, scoring
from harness.toolkit.device import judging_on, room_after

T = TypeVar("T")
Progress = Callable[[str], None]
TABLE_NEW_TOKENS = 200
TABLE_TOP_K = 50


@dataclass
class _TrialTask:
    spec: Trial
    artifacts: Artifacts
    _as_given: isolate.Fingerprints = field(init=False, repr=False)

    lent: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        self.seed: int = self.spec.seed
        self.tokenizer: Tokenizer = copy.deepcopy(loading.load_tokenizer(self.spec.model))
        self.process_state = isolate.ProcessState()
        """Global state in which models, texts and judges are made for the plugin."""

    def _fingerprints(self) -> isolate.Fingerprints:
        fingerprints: dict[str, Hashable] = {}
        for name in self.lent:
            fingerprints |= isolate.fingerprints(f"task.{name}", getattr(self, name))
        return fingerprints

    def changes(self) -> list[str]:
        return isolate.compared(self._as_given, self._fingerprints())

    def _load(self, checkpoint: Checkpoint, precision: Precision = "fp32") -> Model:
        with self.process_state.applied():
            return loading.load_model(checkpoint, DTYPES[precision]).to(inputs.choose_device(self.spec))


@dataclass
class ErasingTask(_TrialTask):
    """The contracts' `ErasureTask`, with warnings for the journal."""

    strengths: tuple[Number, ...]
    progress: Callable[[str], None]
    warnings: list[str] = field(default_factory=list)

    lent: ClassVar = ("strengths", "seed", "training", "engine", "forget", "retain")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.training: Training = self.spec.training
        self.engine = self.spec.engine
        self.forget = inputs.forget_set(self.spec)
        self.retain: Sequences | None = None
        if self.spec.reference == "retain_data":
            self.retain = inputs.retain_set(self.spec, int(self.forget.lengths_N.max()))
        self._as_given = self._fingerprints()

    def load_original(self) -> Model:
        return self._load(self.spec.model)

    def memorized_model(self) -> Model:
        """Return a fresh memorised model; warn if it misses its gate."""
        with self.process_state.applied():
            model, accuracy = memorized.load_memorized(self.spec, self.artifacts, self.progress)
        if accuracy < self.spec.memorization.gate:
            missed = f"MA {accuracy:.3f}, below its gate of {self.spec.memorization.gate:g}"
            remedy = "train it longer (memorized_model.epochs)"
            self.warnings.append(f"the memorised model recites the forget set with {missed}: {remedy}")
        return model.to(inputs.choose_device(self.spec))

    def validation_perplexity(self, model: Model) -> float:
        with self.process_state.applied():
            return scoring.own_perplexity(model, inputs.validation_set(self.spec))


@dataclass
class EvaluatingTask(_TrialTask):
    """The contracts' `EvaluationTask` for one evaluator and model."""

    model: Model
    plugin: str = "the evaluator"
    """Name in errors."""
    shared_generations: dict[Definition, Generations] = field(default_factory=dict)
    texts: Mapping[MoreTexts, Source] = field(default_factory=dict)
    retrained: Checkpoint | None = None
    reads: tuple[Read, ...] = ()
    prepares: bool = False
    precision: Precision = "fp32"
    judge_precision: Precision = "fp32"
    progress: Callable[[str], None] = field(default=lambda message: None)

    lent: ClassVar = ("seed", "forget", "holdout", "retain", "validation", "model")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sample_count: int = self.spec.sample_count
        self.is_original: bool = self.spec.is_of_original
        self.forget: Sequences = inputs.measured_set(self.spec)
        more = inputs.more_texts(self.spec, self.texts)
        self.holdout, self.retain, self.validation = map(more.get, get_args(MoreTexts))
        self.cached_keys: dict[str, None] = {}
        self._as_given = self._fingerprints()

    def generations(self, definition: Definition) -> Generations:
        if definition not in self.shared_generations:
            with self.process_state.applied():
                self.shared_generations[definition] = self._generate(definition)
        return self.shared_generations[definition]

    def _generate(self, definition: Definition) -> Generations:
        tokenizer = loading.load_tokenizer(self.spec.model)
        utility = inputs.utility_texts(self.spec)
        table = definition == "table"
        max_tokens = TABLE_NEW_TOKENS if table else utility.references_NT.shape[1]
        new_tokens = min(max_tokens, room_after(self.model, utility.prompts_NT.shape[1]))
        top_k = TABLE_TOP_K if table else None
        rows = decoding.sample(self.model, utility.prompts_NT, new_tokens, seed=self.seed, top_k=top_k)
        ends = tokenizing.text_ends(self.spec.model)
        ended = [tokenizing.before_end(row, ends) for row in rows.tolist()]
        parts = utility.prompt_texts, tuple(tokenizing.decoded(tokenizer, ended)), utility.reference_texts
        prompts, texts, references = (tuple(map(tokenizing.cleaned, part)) for part in parts) if table else parts
        return Generations(prompts, texts, references, tokenizing.texts_key(prompts, references))

    def judge(self, role: str, load: Callable[[Checkpoint], T]) -> T:
        with self.process_state.applied(), judging_on(inputs.choose_device(self.spec), DTYPES[self.judge_precision]):
            return cast(T, inputs.JUDGES.get(load, self.spec.judges[role]))

    def cached(self, key: Sequence[str], make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return `make()`, computed once for all sweeps.

        Raises:
            TrialError: The evaluator changed its task, so others must not share the result.
        """

        def make_guarded() -> Mapping[str, np.ndarray]:
            arrays = make()
            isolate.refuse_changes(self.plugin, self.changes)
            return arrays

        self.cached_keys[digest_of(list(key))] = None
        with self.process_state.applied():  # Other trials share the arrays.
            return self.artifacts.arrays(tuple(key), make_guarded)

    def load_original(self) -> Model:
        """Return a fresh original; `reads` must have it, so that its memory is counted."""
        self._require("original", self.prepares or "original" in self.reads)
        return self._load(self.spec.model, self.precision)

    def load_retrained(self) -> Model:
        """Return a fresh retrained model; `reads` must have it."""
        return self._load(self._retrained_model(), self.precision)

    def original_digest(self) -> str:
        return self.spec.model.digest + self._suffix

    def retrained_digest(self) -> str:
        return self._retrained_model().digest + self._suffix

    @property
    def _suffix(self) -> str:
        return "" if self.precision == "fp32" else f" in {self.precision}"

    def _retrained_model(self) -> Checkpoint:
        self._require("retrained", self.retrained is not None)
        assert self.retrained is not None
        return self.retrained

    def _require(self, model: Read, is_read: bool) -> None:
        if not is_read:
            asks = f"{self.plugin} asks for the {model} model, which it does not say that it reads"
            raise TrialError(f"{asks}: add reads = ('{model}',), or compute it in `prepare`, by `task.cached`.")


DTYPES: Mapping[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


class MeasuredModel:
    """A model in fp32 and its evaluators' shared generations."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.generations: dict[Definition, Generations] = {}
        self._lowered: dict[Precision, MeasuredModel] = {}

    def cast_to(self, precision: Precision) -> "MeasuredModel":
        """Return the model in this precision, copied at the first call."""
        if precision == "fp32":
            return self
        if precision not in self._lowered:
            self._lowered[precision] = MeasuredModel(loading.copy_as(self.model, DTYPES[precision]))
        return self._lowered[precision]

    def changed_choices(self, precision: Precision, sequences: Sequences) -> dict[str, Json]:
        """Count the greedy choices over texts that changed against fp32."""
        exact_NT = decoding.greedy_choices(self.model, sequences)
        lowered_NT = decoding.greedy_choices(self.cast_to(precision).model, sequences)
        positions = torch.arange(exact_NT.shape[1])
        counted_NT = (positions > 0) & (positions < sequences.lengths_N[:, None])
        changed = int((exact_NT != lowered_NT)[counted_NT].sum())
        return {"precision": precision, "choices": int(counted_NT.sum()), "changed": changed}


def configured(evaluator_spec: EvaluatorSpec) -> Evaluator:
    """Return the evaluator with its settings."""
    return EVALUATORS.configure(evaluator_spec.name, dict(evaluator_spec.settings))


def lend(
    measured: MeasuredModel, evaluator_spec: EvaluatorSpec, spec: Trial, artifacts: Artifacts, progress: Progress
) -> tuple[Evaluator, EvaluatingTask]:
    """Return an evaluator and its task for a model in its precision."""
    evaluator = configured(evaluator_spec)
    task = EvaluatingTask(
        *(spec, artifacts, measured.model, f"the evaluator '{evaluator_spec.name}'", measured.generations),
        **{name: getattr(evaluator_spec, name) for name in ("texts", "retrained", "precision", "judge_precision")},
        reads=evaluator.reads,
        prepares=prepares(evaluator),
        progress=progress,
    )
    return evaluator, task


def prepare(spec: Trial, artifacts: Artifacts, progress: Callable[[str], None]) -> None:
    """Compute the missing arrays of a trial's original; its own trial makes what it needs."""
    specs = () if spec.is_of_original else spec.evaluators
    unprepared = [each for each in specs if not is_prepared(spec.model, each, artifacts)]
    for precision in dict.fromkeys(each.precision for each in unprepared):
        original = MeasuredModel(loading.load_model(spec.model, DTYPES[precision]).to(inputs.choose_device(spec)))
        for each in unprepared:
            if each.precision == precision:
                progress(f"{each.name} of the original")
                evaluator, task = lend(original, each, spec, artifacts, progress)
                with isolate.guarded(task.plugin, task.changes):
                    evaluator.prepare(original.model, task)
                artifacts.build(PREPARED, prepared_key(spec.model, each), lambda folder: None)
        del original
        release_free_memory()
    if unprepared:
        inputs.JUDGES.make_room()


class PeakMemory:
    """Peak bytes of erasing on the GPU, without judges and measuring; None on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._is_counted = device.type == "cuda"
        self._others = self._most = 0
        if self._is_counted:
            self._others = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()

    @property
    def bytes(self) -> int | None:
        return max(self._most, torch.cuda.max_memory_allocated() - self._others) if self._is_counted else None

    @contextmanager
    def not_counting(self) -> Iterator[None]:
        """Leave out the block, and memory still allocated afterwards."""
        if not self._is_counted:
            yield
            return
        self._most, allocated = self.bytes or 0, torch.cuda.memory_allocated()
        yield
        self._others += torch.cuda.memory_allocated() - allocated
        torch.cuda.reset_peak_memory_stats()


def release_free_memory() -> None:
    """Return free memory to the system with glibc."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
