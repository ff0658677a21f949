"""The folder of a memory on disk: manifest, segments, journals, artefacts; its checks, its backup and its repair."""

from ibidem.memory.artefacts import (
    ADAPTIVE_COMBINER_ARTEFACT,
    COMPACTOR_ARTEFACT,
    CONFIDENCE_ARTEFACT,
    CONTEXTUAL_COMBINER_ARTEFACT,
    FIXED_COMBINER_ARTEFACT,
    INDEX_ARTEFACT,
    SOURCE_PROJECTION_ARTEFACT,
    Artefact,
    numbers_among,
    serials_of,
)
from ibidem.memory.backup import Backup, back_up
from ibidem.memory.edit import Edit
from ibidem.memory.files import (
    TEMPORARY,
    Damage,
    link_file,
    make_directory,
    remove_file,
    rename,
    replace_file,
    temporary_path,
)
from ibidem.memory.generations import WORK
from ibidem.memory.integrity import check_complete, check_identity, verify_folder
from ibidem.memory.journal_writer import JournalWriter, remove_pairs
from ibidem.memory.json_document import encode_document, has_valid_checksum
from ibidem.memory.json_document import parse as read_document
from ibidem.memory.key_coding import KeyCoding
from ibidem.memory.lock import LOCK, writer_lock
from ibidem.memory.lookup import KeyView, load_values
from ibidem.memory.manifest import ArtefactRecord, Layout, Manifest, ModelIdentity, SegmentRecord
from ibidem.memory.matches import Match, find_matches, similarity
from ibidem.memory.memory import Memory
from ibidem.memory.pairs import SegmentData, StoredPair
from ibidem.memory.relocation import move_folder
from ibidem.memory.repair import Repair, repair_folder
from ibidem.memory.sealed import SealedSegment, open_sealed, remove_sealed, seal_segment, unique_path
from ibidem.memory.search import SearchResult, search_pairs
from ibidem.memory.source_projection import SourceProjection
from ibidem.memory.tail import Tail

__all__ = [
    "ADAPTIVE_COMBINER_ARTEFACT",
    "COMPACTOR_ARTEFACT",
    "CONFIDENCE_ARTEFACT",
    "CONTEXTUAL_COMBINER_ARTEFACT",
    "FIXED_COMBINER_ARTEFACT",
    "INDEX_ARTEFACT",
    "LOCK",
    "SOURCE_PROJECTION_ARTEFACT",
    "TEMPORARY",
    "WORK",
    "Artefact",
    "ArtefactRecord",
    "Backup",
    "Damage",
    "Edit",
    "JournalWriter",
    "KeyCoding",
    "KeyView",
    "Layout",
    "Manifest",
    "Match",
    "Memory",
    "ModelIdentity",
    "Repair",
    "SealedSegment",
    "SearchResult",
    "SegmentData",
    "SegmentRecord",
    "SourceProjection",
    "StoredPair",
    "Tail",
    "back_up",
    "check_complete",
    "check_identity",
    "encode_document",
    "find_matches",
    "has_valid_checksum",
    "link_file",
    "load_values",
    "make_directory",
    "move_folder",
    "numbers_among",
    "open_sealed",
    "read_document",
    "remove_file",
    "remove_pairs",
    "remove_sealed",
    "rename",
    "repair_folder",
    "replace_file",
    "seal_segment",
    "search_pairs",
    "serials_of",
    "similarity",
    "temporary_path",
    "unique_path",
    "verify_folder",
    "writer_lock",
]
