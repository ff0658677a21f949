"""Changing a memory: new segments, artefacts and notes, which count once they are committed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ibidem
from ibidem.errors import MismatchError, UsageError
from ibidem.memory.artefacts import json_copy, write_artefact
from ibidem.memory.files import reported_writes
from ibidem.memory.generations import ARTEFACTS, SEGMENTS, put_manifest, sweep
from ibidem.memory.manifest import moment
from ibidem.memory.segment import write_segment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from ibidem.memory.memory import Memory
    from ibidem.memory.pairs import SegmentData


class Edit:
    """The changes that a writer, who holds the lock, prepares; made by `Memory.edit`.

    Raises MemoryFolderError when the disk refuses a write: the memory stays at its last generation, and the
    same call may be tried again.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._draft = memory.manifest
        self._closed = False
        self._unsettled = False

    @property
    def memory(self) -> Memory:
        """The last committed generation."""
        return self._memory

    def append_segment(self, data: SegmentData) -> None:
        """Write a segment durably now; the next commit makes it part of the memory."""
        self._check_open()
        self._check_fit(data)
        self._unsettled = True
        draft = self._draft
        origins = {name: number for number, name in enumerate(dict.fromkeys((*draft.origins, *data.origins)))}
        with reported_writes(self._memory.path):
            number = max((int(segment.name) for segment in draft.segments), default=0) + 1
            record = write_segment(self._memory.path / SEGMENTS / f"{number:06d}", data, origins)
        self._draft = replace(draft, segments=(*draft.segments, record), origins=tuple(origins))

    def put_artefact(self, name: str, extension: str, payload: bytes | Path, info: Mapping[str, Any]) -> None:
        """Write bytes, or a copy of a file, as the artefact of this name from the next commit on."""
        self._check_open()
        self._unsettled = True
        with reported_writes(self._memory.path):
            record = write_artefact(
                self._memory.path / ARTEFACTS, name, self._draft.generation + 1, extension, payload, info
            )
        self._draft = replace(self._draft, artefacts={**self._draft.artefacts, name: record})

    def remove_artefact(self, name: str) -> None:
        """Leave an artefact out of the next commit; one that is not there is already out."""
        self._check_open()
        kept = {other: record for other, record in self._draft.artefacts.items() if other != name}
        self._draft = replace(self._draft, artefacts=kept)

    def set_stage(self, name: str, notes: Mapping[str, Any]) -> None:
        """Note the settings and counts of a stage of learning, in place of its earlier notes."""
        self._check_open()
        stage = json_copy(notes, f"the notes of stage {name!r}")
        self._draft = replace(self._draft, stages={**self._draft.stages, name: stage})

    def set_complete(self, complete: bool) -> None:
        """Say whether learning came to its end."""
        self._check_open()
        self._draft = replace(self._draft, complete=complete)

    def commit(self, updated: datetime | None = None) -> Memory:
        """Make all changes so far a new generation at once; may be called again for the next."""
        self._check_open()
        path = self._memory.path
        manifest = replace(
            self._draft,
            generation=self._memory.generation + 1,
            updated=moment(updated),
            ibidem_version=ibidem.__version__,
        )
        self._unsettled = True
        with reported_writes(path):
            put_manifest(path, manifest)
        sweep(path)
        self._unsettled = False
        self._memory = self._memory.refresh()
        self._draft = self._memory.manifest
        return self._memory

    def close(self) -> None:
        """Drop what was not committed."""
        self._closed = True
        if self._unsettled:
            sweep(self._memory.path)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"this edit of {self._memory.path} is over: open another with memory.edit()")

    def _check_fit(self, data: SegmentData) -> None:
        identity = self._memory.identity
        if data.keys.shape[1] != identity.dimension:
            raise MismatchError(
                f"keys of {data.keys.shape[1]} dimensions do not fit {self._memory.path}, whose model "
                f"{identity.name!r} has {identity.dimension}: use that model, or learn a new memory"
            )
        if data.entries and (largest := int(data.values.max())) >= identity.vocabulary_size:
            raise MismatchError(
                f"the token id {largest} does not fit {self._memory.path}, whose model {identity.name!r} has "
                f"a vocabulary of {identity.vocabulary_size}: use its own tokenizer, or learn a new memory"
            )
