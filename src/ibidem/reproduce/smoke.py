"""Data for quick runs: the sentences written for this project, in the layout of the real thing."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from ibidem.reproduce.data import SOURCE, TARGET, Data

if TYPE_CHECKING:
    from pathlib import Path

# Which of our own domains stand in for which of the real ones, by part.
_ROLES = {
    "it": ("software", "household", "law"),
    "koran": ("medicine",),
    "it-large": ("travel",),
    "general": ("household", "travel", "medicine"),
    "news": ("law",),
}
_PARTS = {"train": range(8), "dev": range(8, 9), "test": range(9, 10)}
QUICK_LINES = {"train": 300, "dev": 30, "test": 16}
_WITHOUT_TEST = ("it-large", "general")


class Sentence(NamedTuple):
    """A German sentence and its English translation, both written for this project."""

    domain: str
    german: str
    english: str


def own_sentences() -> list[Sentence]:
    """All of them, five domains of 64."""
    text = (resources.files("ibidem.reproduce") / "sentences.tsv").read_text(encoding="utf-8")
    return [Sentence(*line.split("\t")) for line in text.splitlines()]


def write_own_data(folder: Path) -> Data:
    """A data folder made of our own sentences: of every ten, eight to train, one for dev, one to test."""
    sentences = own_sentences()
    for domain, sources in _ROLES.items():
        chosen = [sentence for sentence in sentences if sentence.domain in sources]
        for part, places in _PARTS.items():
            if part != "train" and domain in _WITHOUT_TEST:
                continue
            kept = [sentence for number, sentence in enumerate(chosen) if number % 10 in places]
            target = folder / domain
            target.mkdir(parents=True, exist_ok=True)
            for language, field in ((SOURCE, 1), (TARGET, 2)):
                text = "".join(f"{sentence[field]}\n" for sentence in kept)
                (target / f"{part}.{language}").write_text(text, encoding="utf-8", newline="\n")
    return Data(folder)
