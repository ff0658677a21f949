"""The recipe's settings, read from a TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Vocabulary:
    size: int
    sentences: int
    character_coverage: float
    threads: int


@dataclass(frozen=True)
class CorpusFiles:
    """Two line-aligned files; `weight` is the share seen in an epoch, `until` the share of the run that sees it."""

    source: str
    target: str
    weight: float = 1.0
    until: float = 1.0


@dataclass(frozen=True)
class Dev:
    source: str
    target: str
    sentences: int


@dataclass(frozen=True)
class Architecture:
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
    seed: int
    vocabulary: Vocabulary
    corpora: tuple[CorpusFiles, ...]
    dev: Dev
    model: Architecture
    training: Training


def read_settings(path: Path) -> Settings:
    """Read the file; a missing or unknown name is an error of Python's that names it."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    return Settings(
        seed=raw["seed"],
        vocabulary=Vocabulary(**raw["vocabulary"]),
        corpora=tuple(CorpusFiles(**corpus) for corpus in raw["corpus"]),
        dev=Dev(**raw["dev"]),
        model=Architecture(**raw["model"]),
        training=Training(**raw["training"]),
    )
