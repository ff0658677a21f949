"""Translate random texts with random memories, on several threads: `python tests/trust/random_translations.py --help`.

A memory has random pairs, duplicates among them, of which some are removed, sealed, pruned or restored, and an index or
none; its model has a random dimension. Texts are near, far, empty, huge or hostile. Two translators on threads of their
own and a writer share the memory, and afterwards one thread translates alone. With a sanitized build of the library
(`make sanitize`) every memory access of the native code is checked too.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import sentencepiece
import torch

from conftest import SENTENCES, write_marian
from ibidem.decode import SearchSettings, Translator
from ibidem.learn import MemoryWriter, index_memory
from ibidem.memory import Memory, verify_folder
from ibidem.model import load_model
from ibidem.text import Pair
from trust.test_default import EMPTY, FAR, HOSTILE, HUGE
from trust.workload import prune, restore

DIMENSIONS = (16, 32, 64, 96)
INDEXES = ("auto", "native", "native;nprobe=2;rerank=4", "exact")


def make_models(folder: Path) -> dict[int, Any]:
    """Return a model with random weights for each dimension."""
    lines = [line.split("\t") for line in SENTENCES.read_text("utf-8").splitlines()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for line in lines for text in line[1:]]),
        model_prefix=str(folder / "spm"),
        vocab_size=600,
        byte_fallback=True,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        pad_id=2,
        minloglevel=2,
    )
    return {
        size: load_model(
            write_marian(folder / f"model-{size}", folder / "spm.model", seed=size, d_model=size), device="cpu"
        )
        for size in DIMENSIONS
    }


def draw_pairs(generator: random.Random, count: int) -> list[Pair]:
    """Return pairs of random words, some of which occur several times, also with other targets."""
    words = [word for line in SENTENCES.read_text("utf-8").splitlines() for word in line.split()]
    pairs = [
        Pair(
            " ".join(generator.choices(words, k=generator.randrange(1, 12))),
            " ".join(generator.choices(words, k=generator.randrange(1, 12))),
            f"{generator.randrange(3)}.tsv",
            number,
        )
        for number in range(count)
    ]
    again = generator.choices(pairs, k=count // 5)
    return (
        pairs + again + [Pair(one.source, other.target, "4.tsv", 0) for one, other in zip(again, pairs, strict=False)]
    )


def change(folder: Path, writer: MemoryWriter, generator: random.Random) -> None:
    """Remove, seal, prune, restore and index, in random order."""
    for _ in range(generator.randrange(5)):
        match generator.randrange(5):
            case 0:
                ids = [pair.id for pair in Memory.open(folder).sentences()]
                writer.remove(generator.sample(ids, len(ids) // generator.choice([2, 10])))
            case 1:
                Memory.open(folder).sealed()
            case 2 if not Memory.open(folder).snapshots() and Memory.open(folder).sealed().entries:
                prune(folder)
            case 3 if Memory.open(folder).snapshots():
                restore(folder)
            case 4 if Memory.open(folder).sealed().entries:
                index_memory(Memory.open(folder), generator.choice(INDEXES), threads=1)


def translate_with_memory(models: dict[int, Any], folder: Path, generator: random.Random) -> int:
    """Make one memory, translate with it on threads while it changes, and return the number of texts."""
    torch.set_num_threads(generator.choice([1, 1, 2]))
    model = models[generator.choice(DIMENSIONS)]
    writer = MemoryWriter(folder, model)
    pairs = draw_pairs(generator, generator.choice([1, 30, 120]))
    writer.add(pairs)
    change(folder, writer, generator)
    near = [pair.source for pair in generator.sample(pairs, min(len(pairs), 8))]
    texts = [*near, *FAR, *EMPTY, *HOSTILE, generator.choice(HUGE)[:400]]
    generator.shuffle(texts)
    # Hypotheses of a random model seldom end, so most memories have short ones.
    short = SearchSettings(beam=2, max_length_ratio=0, max_length_extra=8)
    settings = generator.choice([None, short, short, short, short])
    failures: list[BaseException] = []
    stop = threading.Event()

    def translate() -> None:
        try:
            found = Translator(model, folder, settings=settings).translate(texts)
            assert len(found) == len(texts)
        except BaseException as error:
            failures.append(error)

    def write() -> None:
        try:
            for number in range(40):
                if stop.is_set():
                    return
                writer.remove([writer.add_pair(f"Neu {number}", f"new {number}").id])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=each) for each in (translate, translate, write)]
    for thread in threads:
        thread.start()
    for thread in threads[:2]:
        thread.join()
    stop.set()
    threads[2].join()
    if failures:
        raise failures[0]
    assert verify_folder(folder)[1] == []
    translator = Translator(model, folder, settings=settings)
    alone = translator.translate(texts)
    assert Translator(model, folder, settings=settings).translate(texts) == alone
    explained = [each.translation for each in translator.explain(near)]
    assert explained == translator.translate(near)
    return 4 * len(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the first memory; the next ones follow")
    chosen = parser.parse_args()
    end, seed, texts = time.monotonic() + chosen.seconds, chosen.seed, 0
    with tempfile.TemporaryDirectory() as name:
        models = make_models(Path(name))
        while time.monotonic() < end or seed == chosen.seed:
            folder = Path(name, "mine")
            try:
                texts += translate_with_memory(models, folder, random.Random(seed))
            except BaseException as error:
                error.add_note(f"with the memory of seed {seed}")
                raise
            shutil.rmtree(folder)
            seed += 1
            print(f"{seed - chosen.seed} memories, {texts} texts", flush=True)
    print("no error", flush=True)


if __name__ == "__main__":
    main()
