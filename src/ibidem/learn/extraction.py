"""Extraction: store each target token of a corpus with the decoder state that predicts it (the paper's section 2)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import save

from ibidem.compact import compact_keys
from ibidem.errors import DamagedMemoryError, MismatchError, ModelError, TextError, UsageError
from ibidem.learn.compact import GivenCompactor, read_given
from ibidem.learn.provenance import contents, extracted, given_digest
from ibidem.memory import (
    COMPACTOR_ARTEFACT,
    SOURCE_PROJECTION_ARTEFACT,
    Memory,
    ModelIdentity,
    SegmentData,
    SourceProjection,
    check_identity,
)
from ibidem.progress import Progress, silent
from ibidem.retrieve import ArrayKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import torch
    from numpy.typing import NDArray

    from ibidem.compact import Compactor
    from ibidem.learn.jobs import Distribution
    from ibidem.memory import KeyCoding
    from ibidem.model import BaseModel, Tokens
    from ibidem.text import Corpus, Counts, Pair

STAGE = "extract"
# numpy accepts no negative seed, faiss none above 31 bits.
SEEDS = range(1 << 31)
_PAIRS_PER_ENCODING = 2048
_CHARACTERS_PER_ENCODING = 2**20


@dataclass(frozen=True)
class ExtractSettings:
    """Settings of extraction.

    Attributes:
        segment_bytes: The size of the keys that are held in RAM and committed together as one segment.
        batch_tokens: The most padded tokens, source and target together, of one forward pass.
    """

    segment_bytes: int = 256 << 20
    batch_tokens: int = 4096

    def segment_entries(self, dimension: int) -> int:
        """Return the number of entries of a segment with float16 keys of this dimension.

        Args:
            dimension: The dimension of the keys.
        """
        return max(1, self.segment_bytes // (2 * dimension))


@dataclass
class Chunk:
    """Pairs with their token ids; one chunk becomes one segment of the memory.

    Attributes:
        pairs: The sentence pairs.
        sources: The token ids of each source.
        targets: The token ids of each target.
        entries: The number of target tokens.
    """

    pairs: list[Pair] = field(default_factory=list)
    sources: list[list[int]] = field(default_factory=list)
    targets: list[list[int]] = field(default_factory=list)
    entries: int = 0

    def add(self, pair: Pair, source: list[int], target: list[int]) -> None:
        """Append a pair.

        Args:
            pair: The sentence pair.
            source: The token ids of its source.
            target: The token ids of its target, each of which becomes an entry.
        """
        self.pairs.append(pair)
        self.sources.append(source)
        self.targets.append(target)
        self.entries += len(target)


def cut_chunks(pairs: Iterable[Pair], tokens: Tokens, entries: int, counts: Counts) -> Iterator[Chunk]:
    """Encode pairs and divide them into chunks; the same pairs give the same chunks.

    Args:
        pairs: The pairs, in corpus order.
        tokens: The tokenizer of the base model.
        entries: The least target tokens of a chunk; only the last chunk may have fewer.
        counts: Receives the number of pairs that are dropped because they exceed the length limit of the model.

    Yields:
        The chunks, in corpus order.
    """
    chunk = Chunk()
    for block in _encoding_blocks(pairs):
        sources = tokens.encode_sources(pair.source for pair in block)
        targets = tokens.encode_targets(pair.target for pair in block)
        for pair, source, target in zip(block, sources, targets, strict=True):
            if len(source) > tokens.max_source_length or len(target) > tokens.max_target_length:
                counts.kept -= 1
                counts.dropped["too long for the model"] = counts.dropped.get("too long for the model", 0) + 1
                continue
            chunk.add(pair, source, target)
            if chunk.entries >= entries:
                yield chunk
                chunk = Chunk()
    if chunk.pairs:
        yield chunk


def _encoding_blocks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Divide pairs into blocks that are encoded together, limited in characters, since a pair may have two million."""
    block: list[Pair] = []
    characters = 0
    for pair in pairs:
        block.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(block) == _PAIRS_PER_ENCODING or characters >= _CHARACTERS_PER_ENCODING:
            yield block
            block, characters = [], 0
    if block:
        yield block


def make_batches(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Divide pairs into batches of similar length.

    Args:
        sources: The token ids of each source.
        targets: The token ids of each target.
        tokens: The most padded tokens of a batch, source and target together; one longer pair is a batch of its own.

    Returns:
        The row numbers of each batch.

    Examples:
        >>> make_batches([[1], [1, 2, 3], [1]], [[4], [4, 5], [4]], tokens=4)
        [[0, 2], [1]]
    """
    order = sorted(range(len(sources)), key=lambda i: (len(targets[i]), len(sources[i]), i))
    batches: list[list[int]] = []
    batch: list[int] = []
    widest_source = widest_target = 0
    for i in order:
        source, target = max(widest_source, len(sources[i])), max(widest_target, len(targets[i]))
        if batch and (len(batch) + 1) * (source + target) > tokens:
            batches.append(batch)
            batch, source, target = [], len(sources[i]), len(targets[i])
        batch.append(i)
        widest_source, widest_target = source, target
    return [*batches, batch] if batch else batches


def identify_model(model: BaseModel) -> ModelIdentity:
    """Return the identity of a model as a memory stores it.

    Args:
        model: The base model.
    """
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
    distribution: Distribution | None = None,
    progress: Progress = silent,
) -> Memory:
    """Write the entries of every pair of a corpus into the memory at `path`.

    An entry is a target token (its value) with the decoder state that predicts it (its key), computed with teacher
    forcing. Segments are committed one by one: an interrupted extraction continues with the same call, and the
    result has the bytes of an uninterrupted one. To continue, the corpus is read again and must begin with the stored
    pairs.

    Args:
        model: The base model.
        corpus: The parallel text.
        path: The folder of the memory; it is created if it does not exist.
        seed: The seed of all later stages, from 0 to 2³¹ - 1.
        settings: The sizes of segments and batches.
        compactor: The file of a compactor that was trained on another memory. Only compact keys are then stored. A
            memory that was started with the model's own keys continues with these, to be compacted later.
        distribution: Runs the chunks as tasks; None computes them in this process, with the same result.
        progress: Receives the number of tokens that are done.

    Returns:
        The complete memory.

    Raises:
        MismatchError: The memory was started with another model, corpus, seed or other settings.
        TextError: The corpus has no usable pair; nothing is written.
        UsageError: The seed is invalid.

    Examples:
        >>> from pathlib import Path
        >>> from ibidem.learn import extract
        >>> from ibidem.model import load_model
        >>> from ibidem.text import Corpus
        >>> memory = extract(load_model(), Corpus(["train.tsv"]), Path("memories/extracted"))
        >>> memory.complete, memory.entries == memory.tokens
        (True, True)
    """
    settings = settings or ExtractSettings()
    given = None if compactor is None else read_given(compactor, model.name, model.fingerprint)
    if seed not in SEEDS:
        raise UsageError(f"Invalid seed {seed}: give one from 0 to {SEEDS.stop - 1}, the range of every library.")
    pairs = iter(corpus)  # resets the counts, to which the chunks then add
    cut = cut_chunks(pairs, model.tokens, settings.segment_entries(model.dimension), corpus.counts)
    first = next(cut, None)
    if first is None:
        raise TextError(
            f"No pair could be used of {corpus.description}: {corpus.counts.describe()}. "
            "Check the files, their format and the languages."
        )
    chunks = chain([first], cut)
    memory = Memory.open(path) if Memory.exists(path) else Memory.create(path, identify_model(model), seed=seed)
    check_identity(memory, model)
    if memory.manifest.seed != seed:
        raise MismatchError(f"{path} was started with the seed {memory.manifest.seed}: give the same to continue.")
    with memory.edit() as edit:
        memory = edit.memory
        notes: dict[str, object] = {
            "corpus": corpus.description,
            "settings": asdict(settings),
            "dtype": model.arithmetic,
            "special_tokens": model.tokens.special_ids(),
        }
        _check_settings(memory, notes, path)
        given = _choose_compactor(memory, given)
        _skip_stored(memory, chunks, path)
        if memory.complete and next(chunks, None) is None:
            return memory
        if memory.complete:
            raise MismatchError(f"{path} is complete, but the corpus has more pairs: name another folder for it.")
        if distribution is not None:
            from ibidem.learn.extraction_tasks import extract_in_tasks

            batch_tokens = settings.batch_tokens
            memory = extract_in_tasks(edit, model, chunks, corpus, notes, batch_tokens, given, distribution, progress)
        start = corpus.fraction() if memory.pairs else 0.0
        for chunk in chunks:  # none is left after tasks
            end = corpus.fraction()
            report = partial(_report, progress, chunk.entries, memory.entries, start, end)
            data, means = extract_chunk(model, chunk, settings.batch_tokens, report)
            if memory.artefact(SOURCE_PROJECTION_ARTEFACT) is None:
                projection = shipped_projection(model) or SourceProjection.fit(means)
                payload = save(projection.tensors())
                edit.put_artefact(SOURCE_PROJECTION_ARTEFACT, "safetensors", payload, projection.summary())
            else:
                projection = memory.source_projection
            data = replace(data, source_vectors=projection.vectors(means))
            if given is not None:
                data = store_compact(data, given.compactor, given.coding, model.device)
                edit.put_artefact(COMPACTOR_ARTEFACT, "safetensors", given.payload, given.compactor.summary())
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
        memory = edit.commit()
        edit.clear_workspace(STAGE)
        return memory


def _check_settings(memory: Memory, notes: dict[str, object], path: Path) -> None:
    """Refuse to continue with another arithmetic or other batches than those of the stored entries."""
    stored = memory.manifest.stages.get(STAGE)
    for name in ("settings", "dtype"):
        if stored is not None and not memory.complete and stored[name] != notes[name]:
            raise MismatchError(
                f"{path} was started with the {name} {stored[name]}, not {notes[name]}: give the same to continue, "
                "name another folder, or remove this one."
            )


def _choose_compactor(memory: Memory, given: GivenCompactor | None) -> GivenCompactor | None:
    """Return the compactor to store keys with: the one that the memory was started with, if any."""
    if memory.pairs == 0 or memory.complete:
        return given
    if memory.layout.keys:
        return None
    stored = memory.artefact(COMPACTOR_ARTEFACT)
    if given is None or stored is None or stored.path.read_bytes() != given.payload:
        raise MismatchError(
            f"{memory.path} was started with a compactor, and holds compact keys only: give the same --compactor to "
            "continue, without --set keep_keys=true, or name another folder."
        )
    return given


def store_compact(data: SegmentData, compactor: Compactor, coding: KeyCoding, device: torch.device) -> SegmentData:
    """Replace the keys of entries by compact keys.

    Args:
        data: The entries with the model's own keys.
        compactor: The compactor.
        coding: The codes of its compact keys.
        device: The device of the computation.
    """
    assert data.keys is not None
    # The first block is for a chunk without entries: then there are no others.
    blocks = [np.empty((0, coding.dimension), np.float16)]
    blocks += compact_keys(compactor, ArrayKeys(data.keys), device=device)
    return replace(data, keys=None, compact=coding.encode(np.concatenate(blocks)))


def _skip_stored(memory: Memory, chunks: Iterator[Chunk], path: Path) -> None:
    """Skip the chunks that are stored already, and check that they hold the same pairs.

    The ids of pairs follow the order of the corpus: an id without a pair was removed since, and pairs that were added
    later have higher ids.
    """
    notes = memory.manifest.stages.get(STAGE, {})
    extracted = int(notes.get("kept", 0)) if memory.complete else memory.pairs
    mismatch = MismatchError(
        f"{path} was started with another corpus or other settings: give the same ones to continue, "
        "name another folder, or remove this one."
    )
    stored = memory.sentences()
    next_stored = next(stored, None)
    skipped = 0
    while skipped < extracted:
        pairs = next(chunks, Chunk()).pairs
        if not pairs or skipped + len(pairs) > extracted:
            raise mismatch
        for id, pair in enumerate(pairs, start=skipped):
            if next_stored is not None and next_stored.id == id:
                if (next_stored.source, next_stored.target) != (pair.source, pair.target):
                    raise mismatch
                next_stored = next(stored, None)
        skipped += len(pairs)


def _report(progress: Progress, entries: int, before: int, start: float | None, end: float | None, done: int) -> None:
    """Report the progress in a chunk, which is read whole, from share `start` of the corpus to `end`, then computed."""
    share = None if start is None or end is None else start + (end - start) * done / entries
    progress("Extracting", share, before + done, "tokens")


def shipped_projection(model: BaseModel) -> SourceProjection | None:
    """Return the projection of sources that ships with a model; None where there is none.

    Args:
        model: The base model.

    Raises:
        ModelError: The file of the projection is damaged.
    """
    if model.general is None:
        return None
    file = model.general / "source_projection.safetensors"
    try:
        return SourceProjection.read(file.read_bytes())
    except (OSError, DamagedMemoryError) as error:
        raise ModelError(f"The projection {file} cannot be read ({error}): install the model again.") from error


def extract_chunk(
    model: BaseModel, chunk: Chunk, batch_tokens: int, report: Callable[[int], None]
) -> tuple[SegmentData, NDArray[np.float32]]:
    """Compute the entries of a chunk in batches of similar length.

    Args:
        model: The base model.
        chunk: The encoded pairs.
        batch_tokens: The most padded tokens of a batch.
        report: Receives the number of entries that are done.

    Returns:
        The entries in corpus order: keys [entries, dimension] float16, values and log-probabilities [entries]; and the
        mean encoder state of each source [pairs, dimension].
    """
    lengths = np.array([len(target) for target in chunk.targets], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    keys = np.empty((chunk.entries, model.dimension), dtype=np.float16)
    values = np.empty(chunk.entries, dtype=np.int32)
    log_probs = np.empty(chunk.entries, dtype=np.float32)
    means = np.empty((len(chunk.pairs), model.dimension), dtype=np.float32)
    done = 0
    for rows in make_batches(chunk.sources, chunk.targets, batch_tokens):
        states = model.states([chunk.sources[i] for i in rows], [chunk.targets[i] for i in rows])
        place = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in rows])
        keys[place] = states.keys.half().cpu().numpy()
        values[place] = states.values.cpu().numpy()
        log_probs[place] = model.log_probs(states).cpu().numpy()
        means[rows] = states.source_means.cpu().numpy()
        done += len(place)
        report(done)
    data = SegmentData(
        keys=keys,
        values=values,
        log_probs=log_probs,
        lengths=lengths,
        sources=[pair.source for pair in chunk.pairs],
        targets=[pair.target for pair in chunk.pairs],
        origins=[pair.origin for pair in chunk.pairs],
        locations=[pair.location for pair in chunk.pairs],
    )
    return data, means
