"""Tasks of methods and evaluators, and their sources: texts, judges, the memorised model, the original's arrays.

Texts are read once a process and copied for each caller. The memorised model is the original overfitted on the forget
set, trained once and shared.
"""

import copy
import ctypes
import gc
import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar, cast, get_args

import numpy as np
import torch

from harness.base.files import digest_of, write_whole
from harness.contracts import Checkpoint, Definition, Evaluator, Generations, Model, Number, Read, Sequences, Tokenizer
from harness.data import sequences
from harness.errors import TrialError
from harness.execution import isolate
from harness.models import loading, resolving, tokenizing
from harness.plugins import EVALUATORS, prepares
from harness.records.artifacts import MEMORIZED, PREPARED, Artifacts, is_prepared, memorized_key, prepared_key
from harness.settings import HOLDOUT, VALIDATION_ROW, EvaluatorSpec, Json, MoreTexts, Precision, Source, Trial, replace
from harness.toolkit import decoding, finetune, losses, scoring
from harness.toolkit.device import JUDGE_BYTES, computing_device, device_for, judges_dtype, judging_on, room_after

T = TypeVar("T")
Texts = TypeVar("Texts", Sequences, sequences.Utility)
Progress = Callable[[str], None]
MAX_TEXTS = 18
"""Texts in memory."""
TABLE_NEW_TOKENS = 200
TABLE_TOP_K = 50


@lru_cache(maxsize=MAX_TEXTS)
def _as_read(load: Callable[..., Any], *arguments: Any) -> Any:
    return load(*arguments)


def shared_texts(load: Callable[..., Texts], *arguments: Any) -> Texts:
    """Return a copy of `load(*arguments)`, which is called once."""
    texts: Texts = _as_read(load, *arguments)
    tensors = {name: value for name, value in vars(texts).items() if isinstance(value, torch.Tensor)}
    return replace(texts, **{name: value.clone() for name, value in tensors.items()})


def _texts_of(spec: Trial, load: Callable[..., Texts], source: Source, *more: int) -> Texts:
    return shared_texts(load, source, loading.load_tokenizer(spec.model), loading.vocabulary(spec.model), *more)


def forget_set(spec: Trial) -> Sequences:
    """Return the texts to erase; for a holdout row, the unseen texts."""
    loaders = {HOLDOUT: sequences.load_holdout, VALIDATION_ROW: sequences.load_validation_row}
    return _texts_of(spec, loaders.get(spec.method, sequences.load_forget), spec.forget)


def forget_runs(spec: Trial) -> set[tuple[str, ...]]:
    """Return the runs of words of the forget set."""
    texts = forget_set(spec)
    rows = [row_T[:length].tolist() for row_T, length in zip(texts.tokens_NT, texts.lengths_N, strict=True)]
    return isolate.word_runs(tokenizing.decoded(loading.load_tokenizer(spec.model), rows))


def measured_set(spec: Trial) -> Sequences:
    """Return the texts that erasure is measured on: the forget set or the trial's half of it."""
    return forget_set(spec) if spec.measured is None else forget_set(replace(spec, forget=spec.measured))


def more_texts(spec: Trial, texts: Mapping[MoreTexts, Source]) -> dict[MoreTexts, Sequences]:
    """Return an evaluator's unseen, retain and validation texts."""
    return {role: _texts_of(spec, sequences.LOADERS[role], source) for role, source in texts.items()}


def validation_set(spec: Trial) -> Sequences:
    """Return the texts of early stopping."""
    return _texts_of(spec, sequences.load_validation, spec.validation)


def utility_texts(spec: Trial) -> sequences.Utility:
    """Return the human texts whose beginnings are prompts."""
    return _texts_of(spec, sequences.load_utility, spec.utility)


def choose_device(spec: Trial) -> torch.device:
    """Return the GPU if the sweep gives the trial one, else the CPU."""
    return device_for(spec.gpus)


Load = Callable[[Checkpoint], object]
Key = tuple[Load, Checkpoint, torch.device, torch.dtype]


class JudgeCache:
    """Judges that fit into `kept_bytes` together; the latest always."""

    def __init__(self, kept_bytes: int = JUDGE_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._loaded: dict[Key, tuple[object, int]] = {}
        """The judge and its bytes on disk."""

    def get(self, load: Load, checkpoint: Checkpoint) -> object:
        """Return `load(checkpoint)`, from memory if possible."""
        key = load, checkpoint, computing_device(), judges_dtype()
        if key not in self._loaded:
            local = resolving.ensure_local(checkpoint)
            size = sum(file.stat().st_size for file in Path(local.location).glob("*.safetensors"))
            self.make_room(size)
            judge = load(local)
            # Again: a plugin's own loader may have read files that were changed in between.
            resolving.check_unchanged(local)
            self._loaded[key] = judge, size
        return self._loaded[key][0]

    def clear(self) -> None:
        self._loaded.clear()

    def make_room(self, size: int = 0) -> None:
        """Drop all judges if `size` more bytes do not fit."""
        if size + sum(loaded for _, loaded in self._loaded.values()) > self._kept_bytes:
            self._loaded.clear()
            gc.collect()


JUDGES = JudgeCache()


def clear_shared() -> None:
    """Drop texts, tokenizers and judges in memory."""
    _as_read.cache_clear()
    loading.load_tokenizer.cache_clear()
    JUDGES.clear()


def build_memorized(spec: Trial, artifacts: Artifacts, progress: Progress) -> Path:
    """Return the folder of the memorised model, trained if it is missing."""

    def make(folder: Path) -> None:
        if spec.engine.workers > 1:
            from harness.execution.ray.workers import run_on_workers

            run_on_workers("harness.execution.tasks:memorize_on_worker", spec, {}, folder, progress)
            memorized = loading.load_model(_memorized_checkpoint(spec, folder)).to(choose_device(spec))
        else:
            memorized = _trained(spec, progress)
            loading.save_model(memorized, folder)
        ma = accuracy(memorized, forget_set(spec))
        facts = {"ma": ma, "epochs": spec.memorization.epochs, "model": spec.model.id}
        write_whole(folder / "memorized.json", json.dumps(facts), "what was measured of the memorised model")

    return artifacts.build(MEMORIZED, memorized_key(spec), make)


def memorize_on_worker(spec: Trial, data: Mapping[str, Any], folder: Path, progress: Progress) -> None:
    """Train the memorised model on one of several workers; the first writes it."""
    model = _trained(spec, progress)
    if torch.distributed.get_rank() == 0:
        loading.save_model(model, folder)


def _memorized_checkpoint(spec: Trial, folder: Path) -> Checkpoint:
    # Without a digest: `Artifacts.find` compared the artifact's own.
    return Checkpoint(f"{spec.model.id} (memorized)", str(folder), spec.model.tokenizer, digest="")


def accuracy(model: Model, sequences: Sequences, first: int = 1) -> float:
    """Return MA from the position `first` on: the share of greedy choices that are the text's."""
    predicted_NT = decoding.greedy_continuations(model, sequences, [[] for _ in range(len(sequences))]).predicted_NT
    counted = torch.arange(sequences.tokens_NT.shape[1]) < sequences.lengths_N[:, None]
    counted[:, :first] = False
    return scoring.memorization_accuracy(sequences.tokens_NT[counted], predicted_NT[counted], 0, int(counted.sum()))


def _trained(spec: Trial, progress: Progress) -> Model:
    model = loading.load_model(spec.model).to(choose_device(spec))
    about = {"forget": forget_set(spec), "retain": None, "training": spec.memorized_training, "engine": spec.engine}
    # Trials of all seeds share it, and nothing stops it early.
    task: Any = SimpleNamespace(seed=0, progress=progress, **about)
    with torch.enable_grad():  # A method that only computes with weights may ask for it without gradients.
        for _ in finetune.train(task, model, losses.nll_loss, spec.memorization.epochs):
            pass
    return model


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
            return loading.load_model(checkpoint, DTYPES[precision]).to(choose_device(self.spec))


@dataclass
class ErasingTask(_TrialTask):
    """The contracts' `ErasureTask`, with warnings for the journal."""

    strengths: tuple[Number, ...]
    progress: Progress
    warnings: list[str] = field(default_factory=list)

    lent: ClassVar = ("strengths", "seed", "training", "engine", "forget", "retain")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.training = self.spec.training
        self.engine = self.spec.engine
        self.forget = forget_set(self.spec)
        self.retain: Sequences | None = None
        if self.spec.reference == "retain_data" and self.spec.retain is not None:
            cut = int(self.forget.lengths_N.max())
            self.retain = _texts_of(self.spec, sequences.load_retain, self.spec.retain, cut)
        self._as_given = self._fingerprints()

    def load_original(self) -> Model:
        return self._load(self.spec.model)

    def memorized_model(self) -> Model:
        """Return a fresh memorised model; warn if it misses its gate."""
        with self.process_state.applied():
            folder = build_memorized(self.spec, self.artifacts, self.progress)
            accuracy = float(json.loads((folder / "memorized.json").read_text())["ma"])
            model = loading.load_model(_memorized_checkpoint(self.spec, folder))
        if accuracy < self.spec.memorization.gate:
            missed = f"MA {accuracy:.3f}, below its gate of {self.spec.memorization.gate:g}"
            remedy = "train it longer (memorized_model.epochs)"
            self.warnings.append(f"the memorised model recites the forget set with {missed}: {remedy}")
        return model.to(choose_device(self.spec))

    def validation_perplexity(self, model: Model) -> float:
        with self.process_state.applied():
            return scoring.own_perplexity(model, validation_set(self.spec))


@dataclass
class EvaluatingTask(_TrialTask):
    """The contracts' `EvaluationTask` for one evaluator and model."""

    model: Model
    plugin: str = "the evaluator"
    """Name in errors."""
    version: int = 1
    shared_generations: dict[Definition, Generations] = field(default_factory=dict)
    texts: Mapping[MoreTexts, Source] = field(default_factory=dict)
    retrained: Checkpoint | None = None
    reads: tuple[Read, ...] = ()
    prepares: bool = False
    precision: Precision = "fp32"
    judge_precision: Precision = "fp32"
    progress: Progress = field(default=lambda message: None)

    lent: ClassVar = ("seed", "forget", "holdout", "retain", "validation", "model")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sample_count: int = self.spec.sample_count
        self.is_original: bool = self.spec.is_of_original
        self.forget: Sequences = measured_set(self.spec)
        self.holdout, self.retain, self.validation = map(more_texts(self.spec, self.texts).get, get_args(MoreTexts))
        self.cached_keys: dict[str, None] = {}
        self._as_given = self._fingerprints()

    def generations(self, definition: Definition) -> Generations:
        if definition not in self.shared_generations:
            with self.process_state.applied():
                self.shared_generations[definition] = self._generate(definition)
        return self.shared_generations[definition]

    def _generate(self, definition: Definition) -> Generations:
        tokenizer = loading.load_tokenizer(self.spec.model)
        utility = utility_texts(self.spec)
        table = definition == "table"
        max_tokens = TABLE_NEW_TOKENS if table else utility.references_NT.shape[1]
        new_tokens = min(max_tokens, room_after(self.model, utility.prompts_NT.shape[1]))
        top_k = TABLE_TOP_K if table else None
        rows = decoding.sample(self.model, utility.prompts_NT, new_tokens, seed=self.seed, top_k=top_k)
        ends = tokenizing.text_ends(self.spec.model)
        ended = [tokenizing.before_end(row, ends) for row in rows.tolist()]
        texts = tuple(tokenizing.continuation_texts(tokenizer, utility.prompts_NT.tolist(), ended))
        parts = utility.prompt_texts, texts, utility.reference_texts
        prompts, texts, references = (tuple(map(tokenizing.cleaned, part)) for part in parts) if table else parts
        return Generations(prompts, texts, references, tokenizing.texts_key(prompts, references))

    def judge(self, role: str, load: Callable[[Checkpoint], T]) -> T:
        with self.process_state.applied(), judging_on(choose_device(self.spec), DTYPES[self.judge_precision]):
            return cast(T, JUDGES.get(load, self.spec.judges[role]))

    def cached(self, key: Sequence[str], make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return `make()`, computed once for all sweeps.

        Raises:
            TrialError: The evaluator changed its task, so others must not share the result.
        """

        def make_guarded() -> Mapping[str, np.ndarray]:
            arrays = make()
            isolate.refuse_changes(self.plugin, self.changes)
            return arrays

        key = (self.plugin, str(self.version), *key)
        self.cached_keys[digest_of(list(key))] = None
        with self.process_state.applied():  # Other trials share the arrays.
            return self.artifacts.arrays(key, make_guarded)

    def load_original(self) -> Model:
        """Return a fresh original; `reads` must have it, so that its memory is counted."""
        self._require("original", self.prepares or "original" in self.reads)
        return self._load(self.spec.model, self.precision)

    def load_retrained(self) -> Model:
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
            asks = f"{self.plugin} loads the {model} model without declaring it"
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


def make_evaluating_task(
    measured: MeasuredModel, evaluator_spec: EvaluatorSpec, spec: Trial, artifacts: Artifacts, progress: Progress
) -> tuple[Evaluator, EvaluatingTask]:
    """Return an evaluator and its task for a model in its precision."""
    evaluator = EVALUATORS.configure(evaluator_spec.name, dict(evaluator_spec.settings))
    task = EvaluatingTask(
        *(spec, artifacts, measured.model, f"the evaluator '{evaluator_spec.name}'", evaluator.version),
        shared_generations=measured.generations,
        **{name: getattr(evaluator_spec, name) for name in ("texts", "retrained", "precision", "judge_precision")},
        reads=evaluator.reads,
        prepares=prepares(type(evaluator)),
        progress=progress,
    )
    return evaluator, task


def prepare(spec: Trial, artifacts: Artifacts, progress: Progress) -> None:
    """Compute the missing arrays of a trial's original, whose own trial makes them itself."""
    specs = () if spec.is_of_original else spec.evaluators
    unprepared = [each for each in specs if not is_prepared(spec.model, each, artifacts)]
    for precision in dict.fromkeys(each.precision for each in unprepared):
        original = MeasuredModel(loading.load_model(spec.model, DTYPES[precision]).to(choose_device(spec)))
        for each in unprepared:
            if each.precision == precision:
                progress(f"{each.name} of the original")
                evaluator, task = make_evaluating_task(original, each, spec, artifacts, progress)
                with isolate.guarded(task.plugin, task.changes):
                    evaluator.prepare(original.model, task)
                artifacts.build(PREPARED, prepared_key(spec.model, each), lambda folder: None)
        del original
        release_free_memory()
    JUDGES.make_room()


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
