"""Make a golden memory of the current format, tests/trust/golden/format-N.tar.xz: `python tests/trust/golden.py`.

The archive holds a tiny model, a memory that was learnt with it, and `expected.json`: what the memory holds. It is made
once for each format and never again, so that the tests show whether a later version reads what an earlier one wrote.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

FOLDER = Path(__file__).with_name("golden")
PAIRS = 60
DEV = 60


def describe(folder: Path) -> dict[str, Any]:
    """Return what a memory holds, without times, generations and formats."""
    from ibidem.memory import Memory
    from trust.workload import held

    memory = Memory.open(folder)
    rows = sorted(held(memory).items())
    return {
        "pairs": [[id, *row[:4]] for id, row in rows],
        "tokens": [row[4] for _, row in rows],
        "values": [row[5] for _, row in rows],
        "keys": hashlib.sha256(b"".join(row[6] for _, row in rows)).hexdigest(),
        "source vectors": hashlib.sha256(b"".join(row[7] for _, row in rows)).hexdigest(),
        "artefacts": sorted(memory.manifest.artefacts),
        "snapshots": sorted(memory.snapshots()),
    }


def make(folder: Path) -> None:
    """Make the model and the memory in a folder, with all that a memory can have.

    The paths are relative, so that the memory names no folder of this machine.
    """
    os.chdir(folder)
    import sentencepiece

    from conftest import SENTENCES, write_marian
    from ibidem.learn import (
        CompactSettings,
        ContextualSettings,
        ExtractSettings,
        LearnSettings,
        MemoryWriter,
        MetaKSettings,
        PruneSettings,
        TuneSettings,
        index_memory,
        learn,
        prune_memory,
    )
    from ibidem.memory import Memory
    from ibidem.model import load_model
    from ibidem.text import Corpus, Pair

    lines = [line.split("\t")[1:3] for line in SENTENCES.read_text("utf-8").splitlines()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for line in lines for text in line]),
        model_prefix="spm",
        vocab_size=400,
        byte_fallback=True,
        normalization_rule_name="identity",
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        pad_id=2,
        minloglevel=2,
    )
    model = load_model(write_marian(Path("model"), Path("spm.model"), d_model=16), device="cpu")
    model.name = "tiny"
    for file in folder.glob("spm.*"):
        file.unlink()
    parts = {"corpus.tsv": lines[:PAIRS], "dev.tsv": lines[-DEV:]}
    for name, part in parts.items():
        Path(name).write_text("".join(f"{source}\t{target}\n" for source, target in part), "utf-8")
    mine = Path("memory")
    tune = TuneSettings(
        k=4, confidence_sentences=DEV, metak=MetaKSettings(updates=20), contextual=ContextualSettings(updates=20)
    )
    settings = LearnSettings(
        extract=ExtractSettings(segment_bytes=1 << 13),
        compact=CompactSettings(method="pca", dimension=8),
        tune=tune,
        index="native",
    )
    learn(model, Corpus(["corpus.tsv"]), mine, dev=Corpus(["dev.tsv"]), seed=1, settings=settings)
    writer = MemoryWriter(mine, model)
    writer.remove_pair(*lines[3])
    writer.add([Pair(*line, "later.tsv", number) for number, line in enumerate(lines[PAIRS : PAIRS + 6])])
    Memory.open(mine).sealed()
    prune_memory(Memory.open(mine), PruneSettings(rate=0.2))
    index_memory(Memory.open(mine), "native")
    writer = MemoryWriter(mine, model)
    writer.add([Pair(*line, "last.tsv", number) for number, line in enumerate(lines[PAIRS + 6 : PAIRS + 9])])
    writer.remove_pair(*lines[5])
    writer.remove_pair(*lines[PAIRS + 7])
    for name in parts:
        Path(name).unlink()
    (folder / "expected.json").write_text(json.dumps(describe(mine), ensure_ascii=False) + "\n", "utf-8")


def main() -> int:
    from ibidem.memory.manifest import FORMAT

    target = FOLDER / f"format-{FORMAT}.tar.xz"
    if target.exists():
        sys.exit(f"{target} exists: a golden memory is made once for each format")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        make(Path(scratch))
        os.chdir(FOLDER)
        with tarfile.open(target, "w:xz", format=tarfile.PAX_FORMAT) as archive:
            for each in sorted(Path(scratch).iterdir()):
                archive.add(each, each.name, filter=_anonymous)
    print(f"{target}: {target.stat().st_size:,} bytes")
    return 0


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if Path(member.name).name in ("lock", "lock.holder") else member


if __name__ == "__main__":
    sys.exit(main())
