"""Real components for the tests: sentences written for this project, a tiny model, a memory learnt with it."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# Tests must not depend on a hub, nor on what lies in a user's cache.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Triton's interpreter runs its kernels without a GPU, if this variable is set before Triton is imported.
if find_spec("triton") is not None:
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"

SENTENCES = Path(__file__).parents[1] / "src" / "ibidem" / "reproduce" / "sentences.tsv"


def pytest_report_header() -> str:
    """Name the instruction set of the native library that the tests run with."""
    from ibidem.native import loaded_instructions

    return f"native library: {loaded_instructions() or 'none'}"


class Sentence(NamedTuple):
    domain: str
    german: str
    english: str


@pytest.fixture(scope="session")
def sentences() -> list[Sentence]:
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    return [Sentence(*line.split("\t")) for line in lines]


@pytest.fixture(scope="session")
def spm_file(tmp_path_factory: pytest.TempPathFactory, sentences: list[Sentence]) -> Path:
    """A small SentencePiece model over both languages; ids: </s> 0, <unk> 1, <pad> 2."""
    import sentencepiece

    folder = tmp_path_factory.mktemp("spm")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for s in sentences for text in (s.german, s.english)]),
        model_prefix=str(folder / "spm"),
        vocab_size=600,
        byte_fallback=True,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        pad_id=2,
        minloglevel=2,
    )
    return folder / "spm.model"


def write_marian(folder: Path, spm: Path, *, seed: int = 1, d_model: int = 32) -> Path:
    """A Marian folder with random weights: it translates nothing, but decodes like any other model."""
    import sentencepiece
    import torch
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    folder.mkdir(parents=True, exist_ok=True)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    size = processor.get_piece_size()
    torch.manual_seed(seed)
    config = MarianConfig(
        vocab_size=size,
        d_model=d_model,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        pad_token_id=2,
        eos_token_id=0,
        bos_token_id=None,
        decoder_start_token_id=2,
        max_position_embeddings=128,
        init_std=0.3,
    )
    model = MarianMTModel(config)
    model.generation_config = GenerationConfig(
        pad_token_id=2, eos_token_id=0, decoder_start_token_id=2, forced_eos_token_id=0, bad_words_ids=[[2]]
    )
    model.save_pretrained(folder)
    pieces = {processor.id_to_piece(i): i for i in range(size)}
    (folder / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(spm.read_bytes())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "MarianTokenizer", "source_lang": "de", "target_lang": "en"}),
        encoding="utf-8",
    )
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, spm_file: Path) -> Path:
    return write_marian(tmp_path_factory.mktemp("tiny") / "model", spm_file)


@pytest.fixture(scope="session")
def reverse_folder(tmp_path_factory: pytest.TempPathFactory, spm_file: Path) -> Path:
    """A tiny model from English to German, with other weights than those of `tiny_folder`."""
    folder = write_marian(tmp_path_factory.mktemp("reverse") / "reverse", spm_file, seed=2)
    settings = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture
def first_model_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation without the second shipped model; the folder of its shipped models."""
    from ibidem.model import SHIPPED, find_folder, registry

    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (shipped / SHIPPED).symlink_to(find_folder(SHIPPED))
    monkeypatch.setattr(registry, "_SHIPPED_FOLDER", shipped)
    return shipped


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path):
    """The tiny model, loaded on the CPU."""
    from ibidem.model import load_model

    return load_model(tiny_folder, device="cpu")


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory: pytest.TempPathFactory, sentences: list[Sentence]) -> Path:
    """The project's sentences as a TSV."""
    file = tmp_path_factory.mktemp("corpus") / "corpus.tsv"
    file.write_text("".join(f"{s.german}\t{s.english}\n" for s in sentences), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def learnt(tmp_path_factory: pytest.TempPathFactory, tiny, corpus_file: Path):
    """A memory of all the sentences, learnt with the tiny model; read only."""
    from ibidem.learn import ContextualSettings, LearnSettings, MetaKSettings, TuneSettings, learn
    from ibidem.text import Corpus

    settings = LearnSettings(
        tune=TuneSettings(metak=MetaKSettings(updates=200), contextual=ContextualSettings(updates=200))
    )
    path = tmp_path_factory.mktemp("learnt") / "memory"
    return learn(tiny, Corpus([corpus_file]), path, seed=1, settings=settings)


@pytest.fixture(scope="module", params=["avx512", "avx2"])
def native_build(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every build of the native library that this machine has and can run, one after the other."""
    from ibidem.native import native

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IBIDEM_NATIVE", request.param)
        native.cache_clear()
        try:
            if native() is None:
                pytest.skip(f"no native library for {request.param} here")
            yield request.param
        finally:  # also after a skip, or later tests would run without the library
            native.cache_clear()


@pytest.fixture
def no_native(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the native library had not been built."""
    from ibidem.native import native

    monkeypatch.setenv("IBIDEM_NATIVE", "0")
    native.cache_clear()
    yield
    native.cache_clear()
