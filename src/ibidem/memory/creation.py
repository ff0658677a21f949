"""Creation of the folder of a memory, and the check that its place is empty."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safetensors.numpy import save

from ibidem.errors import MemoryFolderError
from ibidem.memory.artefacts import COMPACTOR_ARTEFACT, SOURCE_PROJECTION_ARTEFACT, write_artefact
from ibidem.memory.files import TEMPORARY, make_directory, replace_file, write_errors
from ibidem.memory.generations import ARTEFACTS, SEGMENTS, put_manifest, remove_unused_files
from ibidem.memory.journal import ENDS, JOURNALS, Ends, encode_ends
from ibidem.memory.key_coding import KeyCoding
from ibidem.memory.lock import HOLDER, LOCK, writer_lock
from ibidem.memory.manifest import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ibidem.memory.manifest import Manifest
    from ibidem.memory.source_projection import SourceProjection

# The stems of the files that `create_folder` writes before the first manifest.
_CREATED = ("source_projection-000001", "compactor-000001")


def create_folder(
    folder: Path,
    manifest: Manifest,
    source_projection: SourceProjection | None,
    compactor: tuple[bytes, Mapping[str, object]] | None,
) -> None:
    """Create the folder of a memory with generation 1.

    Args:
        folder: A new or empty folder.
        manifest: The manifest of generation 1, without artefacts.
        source_projection: The map from mean encoder states to source vectors, to be stored.
        compactor: The file of a compactor with the coding of its keys, and its summary. The memory then stores
            compact keys only.

    Raises:
        MemoryFolderError: The folder is not empty or cannot be written.
    """
    check_empty_folder(folder)
    with write_errors(folder):
        make_directory(folder)
    with writer_lock(folder), write_errors(folder):
        check_empty_folder(folder)  # another process may have made a memory before the lock was acquired
        make_directory(folder / SEGMENTS)
        make_directory(folder / ARTEFACTS)
        artefacts, layout = {}, Layout()
        if source_projection is not None:
            artefacts[SOURCE_PROJECTION_ARTEFACT] = write_artefact(
                folder / ARTEFACTS,
                SOURCE_PROJECTION_ARTEFACT,
                1,
                "safetensors",
                save(source_projection.tensors()),
                source_projection.summary(),
            )
        if compactor is not None:
            payload, summary = compactor
            artefacts[COMPACTOR_ARTEFACT] = write_artefact(
                folder / ARTEFACTS, COMPACTOR_ARTEFACT, 1, "safetensors", payload, summary
            )
            layout = Layout(keys=False, compact=KeyCoding.read(payload).dimension)
        replace_file(folder / ENDS, encode_ends(Ends()))
        put_manifest(folder, replace(manifest, artefacts=artefacts, layout=layout))
        remove_unused_files(folder)


def check_empty_folder(folder: Path) -> None:
    """Check that a folder is missing or empty, apart from what a killed `create_folder` leaves in it.

    Args:
        folder: The folder of a memory to be created.

    Raises:
        MemoryFolderError: The folder contains other files, or the path is a file.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise MemoryFolderError(f"{folder} is a file: give the path of a new folder")
    for path in folder.iterdir():
        left_over = path.name in (LOCK, HOLDER, ENDS) or path.name.startswith(TEMPORARY)
        empty = path.name in (SEGMENTS, JOURNALS) and path.is_dir() and not any(path.iterdir())
        created = path.name == ARTEFACTS and path.is_dir() and all(map(_is_of_create, path.iterdir()))
        if not left_over and not empty and not created:
            raise MemoryFolderError(f"{folder} is not empty ({path.name} is there): give the path of a new folder")


def _is_of_create(artefact: Path) -> bool:
    """Return whether a file may be what a killed `create_folder` has written; the next one replaces it."""
    return artefact.name.startswith(TEMPORARY) or artefact.stem in _CREATED
