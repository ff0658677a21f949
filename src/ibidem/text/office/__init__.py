"""Documents of office programs, which are zip archives of XML files: DOCX, XLSX and ODT."""

from __future__ import annotations

from ibidem.text.office.docx import read_docx_document
from ibidem.text.office.odt import read_odt_document
from ibidem.text.office.xlsx import read_xlsx, read_xlsx_document

__all__ = ["read_docx_document", "read_odt_document", "read_xlsx", "read_xlsx_document"]
