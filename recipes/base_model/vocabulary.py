"""The shared SentencePiece vocabulary, in the files of Hugging Face's Marian tokenizer."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING

import sentencepiece

from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from settings import CorpusFiles, Languages, Settings

EOS, UNK, PAD = 0, 1, 2


def read_pairs(data: Path, files: CorpusFiles) -> tuple[list[str], list[str]]:
    """Read two line-aligned files; return the sources and the targets."""
    pairs = [(pair.source, pair.target) for pair in Corpus([data / files.source, data / files.target])]
    return [source for source, _ in pairs], [target for _, target in pairs]


def train_vocabulary(settings: Settings, sentences: Sequence[str], folder: Path) -> None:
    """Train one unigram model for both languages, with byte fallback so that no input is unknown."""
    sample = list(sentences)
    random.Random(settings.seed).shuffle(sample)
    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sample[: settings.vocabulary.sentences]),
        model_prefix=str(folder / "spm"),
        vocab_size=settings.vocabulary.size,
        model_type="unigram",
        character_coverage=settings.vocabulary.character_coverage,
        byte_fallback=True,
        shuffle_input_sentence=False,
        num_threads=settings.vocabulary.threads,
        bos_id=-1,
        eos_id=EOS,
        unk_id=UNK,
        pad_id=PAD,
    )


def write_tokenizer(spm: Path, folder: Path, languages: Languages) -> None:
    """Write source.spm, target.spm, vocab.json and tokenizer_config.json for `AutoTokenizer`."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    pieces = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(spm, folder / name)
    (folder / "vocab.json").write_text(json.dumps(pieces, ensure_ascii=False, indent=0), encoding="utf-8")
    config = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": languages.source,
        "target_lang": languages.target,
        "separate_vocabs": False,
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "model_max_length": 256,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
