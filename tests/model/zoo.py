"""Tiny models of every architecture that ibidem loads, as Hugging Face folders with real tokenizers."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import sentencepiece
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BartTokenizer,
    FSMTConfig,
    FSMTForConditionalGeneration,
    GenerationConfig,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)

from ibidem.model import BaseModel, load_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

SHAPE = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 128,
    "init_std": 0.3,
}
FAIRSEQ = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]


class Texts(NamedTuple):
    german: list[str]
    english: list[str]

    def both(self) -> list[str]:
        return [*self.german, *self.english]


class Kind(NamedTuple):
    """The function that writes a folder of an architecture, and the options to load it."""

    write: Callable[[Path, Texts], None]
    options: dict[str, str]
    # The factor between the decoder's last hidden state in transformers and the key.
    scale: float = 1.0
    # The approximate rank of the end-of-sentence token at the mean state.
    end_rank: int = 4


def load_kind(name: str, folder: Path, texts: Texts) -> BaseModel:
    """Load a model of a kind; write its folder first if it is new."""
    kind = KINDS[name]
    if not folder.exists():
        folder.mkdir(parents=True)
        torch.manual_seed(7)
        kind.write(folder, texts)
        raise_end(load_model(folder, device="cpu", **kind.options), folder, texts, kind.end_rank)
    return load_model(folder, device="cpu", **kind.options)


def raise_end(model: BaseModel, folder: Path, texts: Texts, rank: int) -> None:
    """Move the output row of the end-of-sentence token towards the mean state; random models never end otherwise."""
    short = [text for text in texts.english if len(text) < 60][:32]
    states = model.states(model.tokens.encode_sources(short), model.tokens.encode_targets(short))
    typical = states.keys.mean(0)
    end = model.tokens.eos
    logits = model.project(states.keys)
    missing = (logits.topk(rank).values[:, -1] - logits[:, end]).median()
    with torch.no_grad():
        model.projection.weight[end] += missing * typical / typical.square().sum()
    model.network.save_pretrained(folder)


def train_spm(folder: Path, name: str, texts: Iterable[str], size: int) -> sentencepiece.SentencePieceProcessor:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=str(folder / name),
        vocab_size=size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
    )
    (folder / f"{name}.vocab").unlink()
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.model"))


def pieces_of(processor: sentencepiece.SentencePieceProcessor) -> list[tuple[str, float]]:
    """Return pieces and their scores, without SentencePiece's <unk>, <s> and </s>."""
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in range(3, processor.get_piece_size())]


def save(network: Any, folder: Path, **generation: Any) -> None:
    network.generation_config = GenerationConfig(**generation)
    network.save_pretrained(folder)


def write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def write_marian_shared(folder: Path, texts: Texts) -> None:
    _write_marian(folder, [texts.both()])


def write_marian_separate(folder: Path, texts: Texts) -> None:
    _write_marian(folder, [texts.german, texts.english])


def _write_marian(folder: Path, sides: Sequence[list[str]]) -> None:
    """Shuffle the ids of the pieces: as in OPUS-MT models, they differ from those of SentencePiece."""
    vocabularies = []
    for name, side in zip(("source", "target"), (sides[0], sides[-1]), strict=True):
        processor = train_spm(folder, name, side, 220 if name == "source" else 180)
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        vocabularies.append([piece for piece, _ in pieces_of(processor)])
    separate = len(sides) == 2
    if not separate:
        (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
        vocabularies[1] = vocabularies[0]
    sizes = []
    for file, vocabulary in zip(("vocab.json", "target_vocab.json")[: 1 + separate], vocabularies, strict=False):
        shuffled = random.Random(file).sample(vocabulary, len(vocabulary))
        tokens = ["</s>", "<unk>", *shuffled, "<pad>"]
        # Vocabularies of one size, since Marian has one padding id for both sides.
        sizes.append(len(tokens))
        write_json(folder / file, {token: number for number, token in enumerate(tokens)})
    if separate:
        _level_vocabularies(folder)
        sizes = [len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))] * 2
    pad = sizes[0] - 1
    config = MarianConfig(
        **SHAPE,
        vocab_size=sizes[0],
        decoder_vocab_size=sizes[-1],
        share_encoder_decoder_embeddings=not separate,
        tie_word_embeddings=True,
        pad_token_id=pad,
        eos_token_id=0,
        decoder_start_token_id=pad,
    )
    network = MarianMTModel(config)
    network.final_logits_bias.normal_(std=0.5)
    save(
        network,
        folder,
        pad_token_id=pad,
        eos_token_id=0,
        decoder_start_token_id=pad,
        forced_eos_token_id=0,
        bad_words_ids=[[pad]],
    )
    settings = {"tokenizer_class": "MarianTokenizer", "source_lang": "de", "target_lang": "en"}
    write_json(folder / "tokenizer_config.json", {**settings, "separate_vocabs": separate})


def _level_vocabularies(folder: Path) -> None:
    """Fill up the smaller vocabulary, so that the padding token has the last id on both sides."""
    files = [folder / "vocab.json", folder / "target_vocab.json"]
    tables = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    last = max(map(len, tables)) - 1
    for file, table in zip(files, tables, strict=True):
        del table["<pad>"]
        table |= {f"<unused{number}>": number for number in range(len(table), last)}
        write_json(file, {**table, "<pad>": last})


def write_fsmt(folder: Path, texts: Texts) -> None:
    """Write letters and frequent pairs of letters as pieces, with separate ids for German and English."""
    merges = [("e", "n</w>"), ("t", "h"), ("e", "r</w>"), ("c", "h"), ("th", "e</w>")]
    sizes = []
    for file, side in (("vocab-src.json", texts.german), ("vocab-tgt.json", texts.english)):
        letters = sorted({letter for text in side for letter in text if not letter.isspace()} | set("&;#"))
        pieces = [*letters, *[letter + "</w>" for letter in letters], *["".join(merge) for merge in merges]]
        table = {piece: number for number, piece in enumerate([*SPECIALS, *dict.fromkeys(pieces)])}
        sizes.append(len(table))
        write_json(folder / file, table)
    (folder / "merges.txt").write_text("".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "FSMTTokenizer", "langs": ["de", "en"]})
    config = FSMTConfig(
        **SHAPE, langs=["de", "en"], src_vocab_size=sizes[0], tgt_vocab_size=sizes[1], **FAIRSEQ, num_beams=1
    )
    save(FSMTForConditionalGeneration(config), folder, **FAIRSEQ, forced_eos_token_id=2)


def write_m2m100(folder: Path, texts: Texts) -> None:
    processor = train_spm(folder, "sentencepiece.bpe", texts.both(), 220)
    vocabulary = [*SPECIALS, *[piece for piece, _ in pieces_of(processor)]]
    write_json(folder / "vocab.json", {piece: number for number, piece in enumerate(vocabulary)})
    tokenizer = M2M100Tokenizer(folder / "vocab.json", str(folder / "sentencepiece.bpe.model"))
    size = len(vocabulary) + len(tokenizer.lang_code_to_id) + tokenizer.num_madeup_words
    tokenizer.save_pretrained(folder)
    save(
        M2M100ForConditionalGeneration(M2M100Config(**SHAPE, vocab_size=size, tie_word_embeddings=False, **FAIRSEQ)),
        folder,
        **FAIRSEQ,
    )


def write_nllb(folder: Path, texts: Texts) -> None:
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    vocabulary, merges = _train_bpe(trained, texts, SPECIALS)
    tokenizer = NllbTokenizer(vocab=vocabulary, merges=merges)
    tokenizer.save_pretrained(folder)
    config = M2M100Config(**SHAPE, vocab_size=len(tokenizer), tie_word_embeddings=False, **FAIRSEQ)
    save(M2M100ForConditionalGeneration(config), folder, **FAIRSEQ)


def write_bart(folder: Path, texts: Texts) -> None:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    vocabulary, merges = _train_bpe(trained, texts, [*SPECIALS, "<mask>"], letters)
    tokenizer = BartTokenizer(vocab=vocabulary, merges=merges)
    tokenizer.save_pretrained(folder)
    config = BartConfig(**SHAPE, vocab_size=len(tokenizer), **FAIRSEQ)
    save(BartForConditionalGeneration(config), folder, **FAIRSEQ, forced_bos_token_id=0, forced_eos_token_id=2)


def _train_bpe(
    tokenizer: Tokenizer, texts: Texts, specials: list[str], letters: Sequence[str] = ()
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    trainer = trainers.BpeTrainer(
        vocab_size=380 if letters else 220,
        special_tokens=specials,
        initial_alphabet=list(letters),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts.both(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def write_mbart(folder: Path, texts: Texts) -> None:
    tokenizer = MBartTokenizer(vocab=_unigram(folder, texts, SPECIALS, _mbart_tags(MBartTokenizer)))
    tokenizer.save_pretrained(folder)
    config = MBartConfig(**SHAPE, vocab_size=len(tokenizer), **FAIRSEQ)
    save(MBartForConditionalGeneration(config), folder, **FAIRSEQ, forced_eos_token_id=2)


def write_mbart50(folder: Path, texts: Texts) -> None:
    tokenizer = MBart50Tokenizer(vocab=_unigram(folder, texts, SPECIALS, _mbart_tags(MBart50Tokenizer)))
    tokenizer.save_pretrained(folder)
    config = MBartConfig(**SHAPE, vocab_size=len(tokenizer), **FAIRSEQ)
    save(MBartForConditionalGeneration(config), folder, **FAIRSEQ, forced_eos_token_id=2)


def _mbart_tags(tokenizer: Any) -> list[str]:
    return sorted(tag for tag in tokenizer().get_vocab() if "_" in tag and "<" not in tag)


def write_t5(folder: Path, texts: Texts) -> None:
    vocabulary = _unigram(folder, texts, ["<pad>", "</s>", "<unk>"], [])
    tokenizer = T5Tokenizer(vocab=vocabulary, extra_ids=0)
    tokenizer.save_pretrained(folder)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        initializer_factor=2.0,
        decoder_start_token_id=0,
    )
    save(T5ForConditionalGeneration(config), folder, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)


def _unigram(folder: Path, texts: Texts, first: list[str], last: list[str]) -> list[tuple[str, float]]:
    processor = train_spm(folder, "trained", texts.both(), 220)
    (folder / "trained.model").unlink()
    mask = ["<mask>"] if last else []
    return [(t, 0.0) for t in first] + pieces_of(processor) + [(t, 0.0) for t in [*last, *mask]]


KINDS = {
    "marian": Kind(write_marian_shared, {}, end_rank=2),
    "marian-separate": Kind(write_marian_separate, {}),
    "fsmt": Kind(write_fsmt, {}, end_rank=2),
    "m2m100": Kind(write_m2m100, {"source_language": "de", "target_language": "en"}),
    "nllb": Kind(write_nllb, {"source_language": "deu_Latn", "target_language": "eng_Latn"}, end_rank=30),
    "t5": Kind(write_t5, {"source_prefix": "translate German to English: "}, 32**-0.5, end_rank=3),
    "bart": Kind(write_bart, {}),
    "mbart": Kind(write_mbart, {"source_language": "de_DE", "target_language": "en_XX"}),
    "mbart50": Kind(write_mbart50, {"source_language": "de_DE", "target_language": "en_XX"}),
}
