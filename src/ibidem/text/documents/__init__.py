"""Files with text to translate, written back byte for byte but for the targets: XLIFF, PO, TMX, TSV, JSONL, plain."""

from ibidem.text.documents.document import Claim, Document, Edit
from ibidem.text.documents.filling import Failure, FillReport, FillSettings, check_languages, fill
from ibidem.text.documents.opening import format_of, open_document
from ibidem.text.documents.segment import Segment, State

__all__ = [
    "Claim",
    "Document",
    "Edit",
    "Failure",
    "FillReport",
    "FillSettings",
    "Segment",
    "State",
    "check_languages",
    "fill",
    "format_of",
    "open_document",
]
