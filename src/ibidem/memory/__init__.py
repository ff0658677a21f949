"""The folder on disk that holds what was learned of one domain; it knows nothing of models or search."""

from ibidem.memory.artefacts import Artefact
from ibidem.memory.damage import Damage
from ibidem.memory.edit import Edit
from ibidem.memory.files import TEMPORARY, link_file, make_directory, remove_file, replace_file
from ibidem.memory.generations import WORK
from ibidem.memory.identity import check_complete, check_identity, load_values
from ibidem.memory.keys import KeyView
from ibidem.memory.layout import Layout
from ibidem.memory.lock import LOCK, writer_lock
from ibidem.memory.manifest import ArtefactRecord, Manifest, ModelIdentity, SegmentRecord
from ibidem.memory.memory import Memory
from ibidem.memory.pairs import SegmentData, StoredPair
from ibidem.memory.removals import numbers_among, serials_of
from ibidem.memory.removing import remove_pairs
from ibidem.memory.salvage import accept_loss
from ibidem.memory.tail import Tail
from ibidem.memory.verification import verify_folder
from ibidem.memory.writer import SegmentWriter

__all__ = [
    "LOCK",
    "TEMPORARY",
    "WORK",
    "Artefact",
    "ArtefactRecord",
    "Damage",
    "Edit",
    "KeyView",
    "Layout",
    "Manifest",
    "Memory",
    "ModelIdentity",
    "SegmentData",
    "SegmentRecord",
    "SegmentWriter",
    "StoredPair",
    "Tail",
    "accept_loss",
    "check_complete",
    "check_identity",
    "link_file",
    "load_values",
    "make_directory",
    "numbers_among",
    "remove_file",
    "remove_pairs",
    "replace_file",
    "serials_of",
    "verify_folder",
    "writer_lock",
]
