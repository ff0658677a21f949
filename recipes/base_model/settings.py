"""The settings of the recipe, read from a TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Languages:
    """The languages that the model states."""

    source: str = "de"
    target: str = "en"


@dataclass(frozen=True)
class Vocabulary:
    """The SentencePiece vocabulary: its size, the number of sentences to train it on, and options of SentencePiece."""

    size: int
    sentences: int
    character_coverage: float
    threads: int


@dataclass(frozen=True)
class CorpusFiles:
    """Two line-aligned files.

    Attributes:
        source: The file of the sources.
        target: The file of the targets.
        weight: The share of the pairs that an epoch uses.
        until: The share of the run after which the corpus is no longer used.
    """

    source: str
    target: str
    weight: float = 1.0
    until: float = 1.0


@dataclass(frozen=True)
class Dev:
    """The development set: two line-aligned files, and the number of sentences to use."""

    source: str
    target: str
    sentences: int


@dataclass(frozen=True)
class Architecture:
    """The sizes of the Marian model."""

    encoder_layers: int
    decoder_layers: int
    d_model: int
    heads: int
    ffn: int
    dropout: float
    attention_dropout: float
    max_positions: int


@dataclass(frozen=True)
class Training:
    """The options of the training."""

    max_tokens: int
    max_length: int
    minutes: float
    steps: int
    learning_rate: float
    warmup_steps: int
    final_learning_rate: float
    label_smoothing: float
    clip: float
    average_from: float
    evaluate_every_minutes: float
    checkpoint_every_minutes: float


@dataclass(frozen=True)
class Settings:
    """All settings of the recipe."""

    seed: int
    languages: Languages
    vocabulary: Vocabulary
    corpora: tuple[CorpusFiles, ...]
    dev: Dev
    model: Architecture
    training: Training


def read_settings(path: Path) -> Settings:
    """Read the settings from a TOML file; a missing or unknown name raises KeyError or TypeError."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    return Settings(
        seed=raw["seed"],
        languages=Languages(**raw.get("languages", {})),
        vocabulary=Vocabulary(**raw["vocabulary"]),
        corpora=tuple(CorpusFiles(**corpus) for corpus in raw["corpus"]),
        dev=Dev(**raw["dev"]),
        model=Architecture(**raw["model"]),
        training=Training(**raw["training"]),
    )
