"""The folder on disk that holds what was learned of one domain; it knows nothing of models or search."""

from ibidem.memory.artefacts import Artefact
from ibidem.memory.damage import Damage
from ibidem.memory.edit import Edit
from ibidem.memory.keys import KeyView
from ibidem.memory.layout import Layout
from ibidem.memory.manifest import ArtefactRecord, Manifest, ModelIdentity, SegmentRecord
from ibidem.memory.memory import Memory
from ibidem.memory.pairs import SegmentData, StoredPair
from ibidem.memory.removing import remove_pairs
from ibidem.memory.salvage import accept_loss
from ibidem.memory.tail import Tail
from ibidem.memory.verification import verify_folder
from ibidem.memory.writer import Writer

__all__ = [
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
    "StoredPair",
    "Tail",
    "Writer",
    "accept_loss",
    "remove_pairs",
    "verify_folder",
]
