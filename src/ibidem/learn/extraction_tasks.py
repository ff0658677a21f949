"""Extraction in tasks: workers compute and seal a segment for each chunk, and the driver adopts them in order."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any

from safetensors.numpy import save

from ibidem.learn.compact import read_stored
from ibidem.learn.extraction import STAGE, extract_chunk, identify_model, shipped_projection, store_compact
from ibidem.learn.jobs import Context, Job, ModelSource, Task, describe_environment
from ibidem.learn.provenance import digest
from ibidem.memory import (
    COMPACTOR_ARTEFACT,
    SOURCE_PROJECTION_ARTEFACT,
    SourceProjection,
    replace_file,
    seal_segment,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ibidem.learn.compact import GivenCompactor
    from ibidem.learn.extraction import Chunk
    from ibidem.learn.jobs import Distribution
    from ibidem.memory import Edit, Memory
    from ibidem.model import BaseModel
    from ibidem.progress import Progress
    from ibidem.text import Corpus

_COMPACTOR = "compactor.safetensors"
_PROJECTION = "projection.safetensors"


@dataclass(frozen=True)
class ChunkOrder:
    """The argument of a task of extraction.

    Attributes:
        chunk: The pairs with their token ids.
        batch_tokens: The most padded tokens of a batch.
        origins: The number of each origin of the pairs.
        projection: The sha256 of the projection of sources in the work folder; None fits one to this chunk.
        compactor: The sha256 of the compactor in the work folder; None stores the model's own keys.
    """

    chunk: Chunk
    batch_tokens: int
    origins: Mapping[str, int]
    projection: str | None
    compactor: str | None


def extract_part(order: ChunkOrder, context: Context, folder: Path) -> dict[str, Any]:
    """Compute the segment of a chunk, and seal it.

    Args:
        order: The chunk and the settings.
        context: The model and the work folder.
        folder: The folder of the part.

    Returns:
        The number of entries.
    """
    model = context.model
    assert model is not None
    data, means = extract_chunk(model, order.chunk, order.batch_tokens, lambda _: None)
    if order.projection is None:
        projection = SourceProjection.fit(means)
        replace_file(folder / _PROJECTION, save(projection.tensors()))
    else:
        projection = SourceProjection.read((context.folder / _PROJECTION).read_bytes())
    data = replace(data, source_vectors=projection.vectors(means))
    if order.compactor is not None:
        data = store_compact(data, *read_stored((context.folder / _COMPACTOR).read_bytes()), model.device)
    seal_segment(folder, data, identify_model(model), order.origins, compactor=order.compactor)
    return {"entries": data.entries, "pairs": data.pairs}


def extract_in_tasks(
    edit: Edit,
    model: BaseModel,
    chunks: Iterator[Chunk],
    corpus: Corpus,
    notes: Mapping[str, Any],
    batch_tokens: int,
    given: GivenCompactor | None,
    distribution: Distribution,
    progress: Progress,
) -> Memory:
    """Extract all chunks that are not stored yet, and commit each as a generation, in the order of the corpus.

    Args:
        edit: The edit of the memory.
        model: The base model.
        chunks: The chunks that are not stored yet.
        corpus: The corpus that they come from, for the share that was read.
        notes: The notes of the stage while it is unfinished.
        batch_tokens: The most padded tokens of a batch.
        given: The compactor; None stores the model's own keys.
        distribution: Runs the tasks.
        progress: Receives the number of tokens.

    Returns:
        The memory with all chunks.
    """
    memory = edit.memory
    first = next(chunks, None)
    if first is None:
        return memory
    source = ModelSource.of(model)
    compactor = None if given is None else sha256(given.payload).hexdigest()
    wanted = digest(memory.identity, memory.manifest.seed, dict(notes), compactor, source, describe_environment())
    folder = edit.workspace(STAGE, wanted)
    if given is not None:
        replace_file(folder / _COMPACTOR, given.payload)
    payload = None
    if (stored := memory.artefact(SOURCE_PROJECTION_ARTEFACT)) is not None:
        payload = stored.path.read_bytes()
    elif (shipped := shipped_projection(model)) is not None:
        payload = save(shipped.tensors())
    numbers = {name: number for number, name in enumerate(memory.manifest.origins)}

    def task(number: int, chunk: Chunk, projection: str | None, share: float | None) -> Task:
        for pair in chunk.pairs:
            numbers.setdefault(pair.origin, len(numbers))
        origins = {pair.origin: numbers[pair.origin] for pair in chunk.pairs}
        order = ChunkOrder(chunk, batch_tokens, origins, projection, compactor)
        content = digest([asdict(pair) for pair in chunk.pairs], chunk.sources, chunk.targets, origins, projection)
        return Task(number, content, extract_part, order, chunk.entries, share)

    def commit(tasks: Iterator[Task]) -> Memory:
        nonlocal payload
        job = Job(
            distribution, folder, "Extracting", "tokens", model=source, done=edit.memory.entries, progress=progress
        )
        for _, part in job.run(tasks):
            payload = payload or part.read(_PROJECTION)
            if edit.memory.artefact(SOURCE_PROJECTION_ARTEFACT) is None:
                summary = SourceProjection.read(payload).summary()
                edit.put_artefact(SOURCE_PROJECTION_ARTEFACT, "safetensors", payload, summary)
            if given is not None:
                edit.put_artefact(COMPACTOR_ARTEFACT, "safetensors", given.payload, given.compactor.summary())
            edit.adopt_segment(part.folder)
            edit.set_stage(STAGE, notes)
            edit.commit()
            part.remove()
        return edit.memory

    number = len(memory.manifest.segments)
    if payload is None:  # all other chunks need the projection that is fitted to the first
        memory = commit(iter([task(number, first, None, corpus.fraction())]))
        first, number = None, number + 1
    assert payload is not None
    replace_file(folder / _PROJECTION, payload)
    known = sha256(payload).hexdigest()
    rest = chain([] if first is None else [first], chunks)
    return commit(task(place, chunk, known, corpus.fraction()) for place, chunk in enumerate(rest, start=number))
