"""Extraction: every target token of a corpus, with the decoder state that predicts it, into a memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ibidem.compact import compact_keys
from ibidem.errors import MismatchError, TextError, UsageError
from ibidem.learn.chunks import Chunk, cut_chunks, make_batches
from ibidem.learn.compact.given import GivenCompactor, read_given
from ibidem.learn.digests import contents, extracted, given_digest
from ibidem.memory import Memory, ModelIdentity, SegmentData, check_identity
from ibidem.progress import Progress, silent
from ibidem.retrieve import INDEX_ARTEFACT as COMPACTOR
from ibidem.retrieve import ArrayKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import torch

    from ibidem.compact import Compactor
    from ibidem.model import BaseModel
    from ibidem.text import Corpus

STAGE = "extract"
# numpy takes no negative seed, faiss none above 31 bits.
SEEDS = range(1 << 31)


@dataclass(frozen=True)
class ExtractSettings:
    """`segment_bytes` of keys are held in RAM and committed at once; `batch_tokens` bounds a forward pass."""

    segment_bytes: int = 256 << 20
    batch_tokens: int = 4096

    def segment_entries(self, dimension: int) -> int:
        return max(1, self.segment_bytes // (2 * dimension))


def identify(model: BaseModel) -> ModelIdentity:
    """What a memory must remember of its model."""
    return ModelIdentity(
        name=model.name,
        model_fingerprint=model.fingerprint,
        tokenizer_fingerprint=model.tokenizer_fingerprint,
        dimension=model.dimension,
        vocabulary_size=model.vocabulary_size,
        source_language=model.tokens.source_language,
        target_language=model.tokens.target_language,
        source_prefix=model.tokens.source_prefix,
    )


def extract(
    model: BaseModel,
    corpus: Corpus,
    path: Path,
    *,
    seed: int = 0,
    settings: ExtractSettings | None = None,
    compactor: Path | None = None,
    progress: Progress = silent,
) -> Memory:
    """Write every pair of the corpus into the memory at `path`; a killed extraction goes on where it was.

    Segments are committed one by one. Going on, the corpus is read again and must begin with the pairs
    already stored; the bytes are then those of an uninterrupted run. Raises MismatchError for another model
    or corpus than the memory was begun with; TextError, with nothing written, for a corpus without a pair.

    compactor: the file of one trained on another memory. The keys are then stored in its space alone, and the model's
    own never written; a memory that was begun with the model's own goes on with them, to be compacted later.
    """
    settings = settings or ExtractSettings()
    given = None if compactor is None else read_given(compactor, model.name, model.fingerprint)
    if seed not in SEEDS:
        raise UsageError(f"The seed {seed} does not suit every library: give one from 0 to {SEEDS.stop - 1}.")
    pairs = iter(corpus)  # which begins the counts anew: the chunks must add to those
    cut = cut_chunks(pairs, model.tokens, settings.segment_entries(model.dimension), corpus.counts)
    first = next(cut, None)
    if first is None:
        raise TextError(
            f"No pair could be used of {corpus.description}: {corpus.counts.describe()}. "
            "Check the files, their format and the languages."
        )
    chunks = chain([first], cut)
    memory = Memory.open(path) if Memory.exists(path) else Memory.create(path, identify(model), seed=seed)
    check_identity(memory, model)
    if memory.manifest.seed != seed:
        raise MismatchError(f"{path} was begun with the seed {memory.manifest.seed}: give that one to go on.")
    with memory.edit() as edit:
        memory = edit.memory
        notes: dict[str, object] = {
            "corpus": corpus.description,
            "settings": asdict(settings),
            "dtype": model.arithmetic,
            "special_tokens": model.tokens.special_ids(),
        }
        _check_settings(memory, notes, path)
        given = _check_space(memory, given)
        _check_stored(memory, chunks, path)
        if memory.complete and next(chunks, None) is None:
            return memory
        if memory.complete:
            raise MismatchError(f"{path} is complete, but the corpus has more pairs: name another folder for it.")
        start = corpus.fraction() if memory.pairs else 0.0
        for chunk in chunks:
            end = corpus.fraction()
            report = partial(_report, progress, chunk.entries, memory.entries, start, end)
            data = extract_chunk(model, chunk, settings.batch_tokens, report)
            if given is not None:
                data = _compacted(data, given.compactor, model.device)
                edit.put_artefact(COMPACTOR, "safetensors", given.payload, given.compactor.summary())
            edit.append_segment(data)
            edit.set_stage(STAGE, notes)
            memory = edit.commit()
            start = end
        edit.set_stage(STAGE, {**asdict(corpus.counts), **notes})
        if given is not None:
            memory = edit.commit()
            made = {"digest": given_digest(given.sha256, extracted(memory)), "contents": contents(memory)}
            edit.set_stage("compact", {**made, **given.notes()})
        edit.set_complete(True)
        return edit.commit()


def _check_settings(memory: Memory, notes: dict[str, object], path: Path) -> None:
    """Refuse to go on in another arithmetic or with other batches than the stored entries were computed with."""
    stored = memory.manifest.stages.get(STAGE)
    for name in ("settings", "dtype"):
        if stored is not None and not memory.complete and stored[name] != notes[name]:
            raise MismatchError(
                f"{path} was begun with the {name} {stored[name]}, not {notes[name]}: give the same to go on, "
                "name another folder, or remove this one."
            )


def _check_space(memory: Memory, given: GivenCompactor | None) -> GivenCompactor | None:
    """The compactor to store keys with, which is the one that the memory was begun with, if any."""
    if memory.pairs == 0 or memory.complete:
        return given
    if memory.layout.keys:
        return None
    stored = memory.artefact(COMPACTOR)
    if given is None or stored is None or stored.path.read_bytes() != given.payload:
        raise MismatchError(
            f"{memory.path} was begun with a compactor, and keeps compact keys alone: give the same --compactor to go "
            "on, without --keep-keys, or name another folder."
        )
    return given


def _compacted(data: SegmentData, compactor: Compactor, device: torch.device) -> SegmentData:
    """The same entries with compact keys alone."""
    assert data.keys is not None
    blocks = compact_keys(compactor, ArrayKeys(data.keys), device=device)
    return replace(data, keys=None, compact=np.concatenate(list(blocks)))


def _check_stored(memory: Memory, chunks: Iterator[Chunk], path: Path) -> None:
    """Pass over the chunks that are stored already, and make sure that they are these.

    Pairs have their ids in the order of the corpus: one that was removed since is passed over, and those that were
    added later have ids after all of them.
    """
    notes = memory.manifest.stages.get(STAGE, {})
    extracted = int(notes.get("kept", 0)) if memory.complete else memory.pairs
    other = MismatchError(
        f"{path} was begun with another corpus or other settings: give the same ones to go on, "
        "name another folder, or remove this one."
    )
    stored = memory.sentences()
    kept = next(stored, None)
    passed = 0
    while passed < extracted:
        pairs = next(chunks, Chunk()).pairs
        if not pairs or passed + len(pairs) > extracted:
            raise other
        for id, pair in enumerate(pairs, start=passed):
            if kept is not None and kept.id == id:
                if (kept.source, kept.target) != (pair.source, pair.target):
                    raise other
                kept = next(stored, None)
        passed += len(pairs)


def _report(progress: Progress, entries: int, before: int, start: float | None, end: float | None, done: int) -> None:
    """Tell how far a chunk is: it was read whole, from share `start` of the corpus to `end`, and is computed after."""
    share = None if start is None or end is None else start + (end - start) * done / entries
    progress("Extracting", share, before + done, "tokens")


def extract_chunk(model: BaseModel, chunk: Chunk, batch_tokens: int, report: Callable[[int], None]) -> SegmentData:
    """The entries of a chunk, computed in batches of similar length and laid out in corpus order."""
    lengths = np.array([len(target) for target in chunk.targets], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    keys = np.empty((chunk.entries, model.dimension), dtype=np.float16)
    values = np.empty(chunk.entries, dtype=np.int32)
    log_probs = np.empty(chunk.entries, dtype=np.float32)
    done = 0
    for rows in make_batches(chunk.sources, chunk.targets, batch_tokens):
        states = model.states([chunk.sources[i] for i in rows], [chunk.targets[i] for i in rows])
        place = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in rows])
        keys[place] = states.keys.half().cpu().numpy()
        values[place] = states.values.cpu().numpy()
        log_probs[place] = model.log_probs(states).cpu().numpy()
        done += len(place)
        report(done)
    return SegmentData(
        keys=keys,
        values=values,
        log_probs=log_probs,
        lengths=lengths,
        sources=[pair.source for pair in chunk.pairs],
        targets=[pair.target for pair in chunk.pairs],
        origins=[pair.origin for pair in chunk.pairs],
        locations=[pair.location for pair in chunk.pairs],
    )
