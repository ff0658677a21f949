"""The folder of a memory on disk: manifest, segments, journals, artefacts; its checks, its backup and its repair."""

from ibidem.memory.artefacts import (
    ADAPTIVE_COMBINER_ARTEFACT,
    COMPACTOR_ARTEFACT,
    CONFIDENCE_ARTEFACT,
    CONTEXTUAL_COMBINER_ARTEFACT,
    FIXED_COMBINER_ARTEFACT,
    INDEX_ARTEFACT,
    INDEX_PLAN_ARTEFACT,
    SOURCE_PROJECTION_ARTEFACT,
    Artefact,
    index_part_artefact,
    is_index_artefact,
    numbers_among,
    serials_of,
)
from ibidem.memory.backup import Backup, back_up
from ibidem.memory.edit import Edit
from ibidem.memory.files import (
    TEMPORARY,
    Damage,
    fill_file,
    link_file,
    make_directory,
    remove_file,
    rename,
    replace_file,
    sync_directory,
    temporary_path,
)
from ibidem.memory.generations import MANIFEST, WORK
from ibidem.memory.integrity import check_complete, check_identity, verify_folder
from ibidem.memory.journal import ENDS, JOURNAL_NAME
from ibidem.memory.journal_writer import JournalWriter, remove_pairs
from ibidem.memory.json_document import encode_document, has_valid_checksum
from ibidem.memory.json_document import parse as read_document
from ibidem.memory.key_coding import KeyCoding
from ibidem.memory.lock import LOCK, writer_lock
from ibidem.memory.lookup import KeyView
from ibidem.memory.manifest import (
    ARTEFACT_FILE,
    SEGMENT_NAME,
    ArtefactRecord,
    Layout,
    Manifest,
    ModelIdentity,
    SegmentRecord,
)
from ibidem.memory.matches import Match, find_matches, similarity
from ibidem.memory.memory import Memory
from ibidem.memory.pairs import SegmentData, StoredPair
from ibidem.memory.relocation import move_folder
from ibidem.memory.remote import RefusedError, ServerSource
from ibidem.memory.repair import Repair, repair_folder
from ibidem.memory.replica import ChangedSourceError, Replica, Source, Transfer
from ibidem.memory.sealed import SealedSegment, open_sealed, seal_segment, unique_path
from ibidem.memory.search import SearchResult, search_pairs
from ibidem.memory.several_sentences import count_sources, has_similar_source
from ibidem.memory.source_projection import SourceProjection
from ibidem.memory.store import LostRaceError, Push, Store
from ibidem.memory.tail import Tail
from ibidem.memory.view import RecordedFile, View, encode_view, read_view

__all__ = [
    "ADAPTIVE_COMBINER_ARTEFACT",
    "ARTEFACT_FILE",
    "COMPACTOR_ARTEFACT",
    "CONFIDENCE_ARTEFACT",
    "CONTEXTUAL_COMBINER_ARTEFACT",
    "ENDS",
    "FIXED_COMBINER_ARTEFACT",
    "INDEX_ARTEFACT",
    "INDEX_PLAN_ARTEFACT",
    "JOURNAL_NAME",
    "LOCK",
    "MANIFEST",
    "SEGMENT_NAME",
    "SOURCE_PROJECTION_ARTEFACT",
    "TEMPORARY",
    "WORK",
    "Artefact",
    "ArtefactRecord",
    "Backup",
    "ChangedSourceError",
    "Damage",
    "Edit",
    "JournalWriter",
    "KeyCoding",
    "KeyView",
    "Layout",
    "LostRaceError",
    "Manifest",
    "Match",
    "Memory",
    "ModelIdentity",
    "Push",
    "RecordedFile",
    "RefusedError",
    "Repair",
    "Replica",
    "SealedSegment",
    "SearchResult",
    "SegmentData",
    "SegmentRecord",
    "ServerSource",
    "Source",
    "SourceProjection",
    "Store",
    "StoredPair",
    "Tail",
    "Transfer",
    "View",
    "back_up",
    "check_complete",
    "check_identity",
    "count_sources",
    "encode_document",
    "encode_view",
    "fill_file",
    "find_matches",
    "has_similar_source",
    "has_valid_checksum",
    "index_part_artefact",
    "is_index_artefact",
    "link_file",
    "make_directory",
    "move_folder",
    "numbers_among",
    "open_sealed",
    "read_document",
    "read_view",
    "remove_file",
    "remove_pairs",
    "rename",
    "repair_folder",
    "replace_file",
    "seal_segment",
    "search_pairs",
    "serials_of",
    "similarity",
    "sync_directory",
    "temporary_path",
    "unique_path",
    "verify_folder",
    "writer_lock",
]
