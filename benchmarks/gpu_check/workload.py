"""What a card is checked with: random models of real shapes, made-up texts, and the trials of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.gpu_check.card import Card
from harness.contracts import Checkpoint, Model, Number, Sequences, Training
from harness.models.loading import unloaded_model
from harness.plugins import METHODS, default_reference
from harness.sizing.estimate import MemoryEstimate, UnknownEstimate, estimate_memory
from harness.specs import Engine, MemorizedTraining, Source, TrialSpec
from harness.toolkit.finetune import train
from harness.toolkit.losses import nll_loss
from harness.toolkit.scoring import own_perplexity

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

SEED = 0
STRENGTHS: Mapping[str, Number] = {"deliberate_imagination": 3, "task_arithmetic": 0.05, "contrastive_decoding": 0.3}
"""Of methods whose strength is no number of epochs."""


@dataclass(frozen=True)
class Shape:
    """A model's shape, and what is tried on it."""

    name: str
    configure: Callable[[], PretrainedConfig]
    methods: tuple[tuple[str, str], ...]
    """Each with the precision that it trains in."""


@dataclass(frozen=True)
class Workload:
    """How much is done with each model."""

    sequences: int = 24
    tokens: int = 200
    prefix_tokens: int = 100
    global_batch: int = 8
    micro_batch: int = 4
    memorizing_passes: int = 40
    """Over the texts before precisions are compared: the choices of random weights are all near ties."""
    prefix_stride: int = 20
    """Between two prefixes that are continued."""

    def training(self, precision: str = "fp32") -> Training:
        """Return the settings of every training here."""
        return Training(
            learning_rate=1e-4,
            global_batch=self.global_batch,
            micro_batch=self.micro_batch,
            precision="bf16" if precision == "bf16" else "fp32",
            early_stop=None,
        )

    def texts(self, vocabulary: int, seed: int = SEED) -> Sequences:
        """Return random tokens, the same for the same seed."""
        shape = (self.sequences, self.tokens)
        tokens_NT = torch.randint(0, vocabulary, shape, generator=torch.Generator().manual_seed(seed))
        return Sequences(tokens_NT, torch.full((self.sequences,), self.tokens), self.prefix_tokens, "")

    def repeated(self, texts: Sequences) -> Sequences:
        """Return what is memorised in one epoch: between two, a model's moments would travel off the card and back."""
        tokens_NT = texts.tokens_NT.repeat(self.memorizing_passes, 1)
        return Sequences(tokens_NT, texts.lengths_N.repeat(self.memorizing_passes), texts.prefix_tokens, "")

    def source(self) -> Source:
        """Return what a trial says of such texts."""
        return Source(source="jsonl", rows=self.sequences, longest=self.tokens, prefix_tokens=self.prefix_tokens)


def gpt_neo(hidden: int, layers: int, heads: int) -> PretrainedConfig:
    """Return the configuration of a GPT-Neo, whose attention alternates between global and local."""
    from transformers import GPTNeoConfig

    kinds = [[["global", "local"], layers // 2]]
    return GPTNeoConfig(hidden_size=hidden, num_layers=layers, num_heads=heads, attention_types=kinds)


def llama() -> PretrainedConfig:
    """Return the configuration of a Llama of 1.1 billion weights, TinyLlama's shape."""
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        max_position_embeddings=2048,
    )


SEVEN = (
    "emso",
    "task_arithmetic",
    "contrastive_decoding",
    "gradient_difference",
    "kl_divergence",
    "gradient_ascent",
    "deliberate_imagination",
)
LARGE = (
    ("emso", "fp32"),
    ("gradient_ascent", "fp32"),
    ("kl_divergence", "fp32"),
    ("emso", "bf16"),
    ("gradient_difference", "bf16"),
)
SHAPES = (
    Shape(
        "gpt-neo-125m",
        lambda: gpt_neo(768, 12, 12),
        (*((name, "fp32") for name in (*SEVEN, "npo")), ("emso", "bf16"), ("gradient_difference", "bf16")),
    ),
    Shape("llama-1.1b", llama, LARGE),
    Shape("gpt-neo-1.3b", lambda: gpt_neo(2048, 24, 16), LARGE),
    Shape("gpt-neo-2.7b", lambda: gpt_neo(2560, 32, 20), LARGE),
)


@dataclass(frozen=True)
class Bench:
    """A card, with the configurations of what is tried on it."""

    card: Card
    workload: Workload
    folder: Path
    """Where configurations are written; of weights there are no files."""

    def checkpoint(self, shape: Shape) -> Checkpoint:
        """Return a shape's checkpoint: a folder with a configuration alone."""
        folder = self.folder / shape.name
        if not folder.is_dir():
            shape.configure().save_pretrained(folder)
        return Checkpoint(shape.name, str(folder), str(folder), shape.name)

    def model(self, shape: Shape, seed: int = SEED) -> Model:
        """Return a shape's model with random fp32 weights, made on the card."""
        cuda = [self.card.device] if self.card.device.type == "cuda" else []
        with torch.random.fork_rng(cuda), self.card.device:
            torch.manual_seed(seed)
            return unloaded_model(self.checkpoint(shape))

    def spec(self, shape: Shape, method: str, training: Training, engine: Engine | None = None) -> TrialSpec:
        """Return the trial that the method would be on this card, without anything that measures it."""
        plugin, text = METHODS.load(method), self.workload.source()
        reference = default_reference(plugin) or "none"
        batch = training.global_batch
        return TrialSpec(
            trial_id="gpu-check",
            sweep="gpu-check",
            variant=method,
            method=method,
            label=plugin.label,
            reference=reference,
            settings={},
            method_version=plugin.version,
            strength_name=plugin.strength.field,
            strengths=(STRENGTHS.get(method, 1),),
            seed=SEED,
            model=self.checkpoint(shape),
            training=training,
            memorization=MemorizedTraining(epochs=1, learning_rate=1e-4, global_batch=batch, gate=0.0),
            engine=engine or Engine(),
            forget=text,
            retain=text if reference == "retain_data" else None,
            utility=text,
            validation=text,
            evaluators=(),
            judges={},
            gpus=self.card.gpus,
        )


def estimate(spec: TrialSpec) -> MemoryEstimate:
    """Return what sizing says of a trial.

    Raises:
        ValueError: It cannot tell.
    """
    need = estimate_memory(spec)
    if isinstance(need, UnknownEstimate):
        raise ValueError(f"sizing cannot tell what {spec.variant} needs: {need.reason}")
    return need


@dataclass
class RandomTask:
    """An `ErasureTask` on a random model and random texts."""

    bench: Bench
    shape: Shape
    spec: TrialSpec
    seed: int = SEED
    _memorized: dict[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the texts."""
        self.training, self.engine, self.strengths = self.spec.training, self.spec.engine, self.spec.strengths
        self.forget = self._texts(1)
        self.retain = self._texts(2) if self.spec.retain is not None else None

    @cached_property
    def _vocabulary(self) -> int:
        return int(self.shape.configure().vocab_size)

    def _texts(self, seed: int) -> Sequences:
        return self.bench.workload.texts(self._vocabulary, seed)

    def load_original(self) -> Model:
        """Return the random model."""
        return self.bench.model(self.shape)

    def memorize(self) -> None:
        """Train the memorised model, and put its weights into the machine's memory, as an artifact lies on disk."""
        model = self.load_original()
        task = replace(self, spec=replace(self.spec, training=self.spec.memorized_training, engine=Engine()))
        for _ in train(task, model, nll_loss, self.spec.memorization.epochs):
            pass
        self._memorized = {name: weight.cpu() for name, weight in model.state_dict().items()}

    def memorized_model(self) -> Model:
        """Return the model that `memorize` trained."""
        model = self.load_original()
        model.load_state_dict(self._memorized)
        return model

    def validation_perplexity(self, model: Model) -> float:
        """Return the model's perplexity on texts of their own."""
        return own_perplexity(model, self._texts(3))

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Refuse: random tokens are no text."""
        raise NotImplementedError("a random model has no tokenizer, for which this method asks.")

    def progress(self, message: str) -> None:
        """Say nothing."""
