"""Office documents made of strings with the zip library of Python."""

from __future__ import annotations

import io
import zipfile

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
SHEET = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
OPEN_DOCUMENT = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" xmlns:xlink="http://www.w3.org/1999/xlink"'
)
_TYPES = "application/vnd.openxmlformats-officedocument."


def archive(members: dict[str, str | bytes], *, stored: tuple[str, ...] = ()) -> bytes:
    """Pack members in order; those in `stored` are not compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            kind = zipfile.ZIP_STORED if name in stored else zipfile.ZIP_DEFLATED
            file.writestr(name, content, compress_type=kind)
    return buffer.getvalue()


def members_of(data: bytes) -> dict[str, bytes]:
    """Unpack all members, with a check of their checksums."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.testzip() is None
        return {name: file.read(name) for name in file.namelist()}


def content_types(overrides: dict[str, str]) -> str:
    listed = "".join(f'<Override PartName="/{name}" ContentType="{_TYPES}{kind}"/>' for name, kind in overrides.items())
    return f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{listed}</Types>'


def docx(body: str, **parts: str) -> bytes:
    """A DOCX file with a body, and other parts (`header`, `footnotes`) by name."""
    kinds = {"word/document.xml": "wordprocessingml.document.main+xml"}
    members: dict[str, str | bytes] = {
        "word/document.xml": f"<?xml version='1.0'?><w:document {WORD}><w:body>{body}</w:body></w:document>",
        "word/media/image.png": bytes(range(256)) * 20,
    }
    for name, content in parts.items():
        kinds[f"word/{name}.xml"] = f"wordprocessingml.{name}+xml"
        members[f"word/{name}.xml"] = f"<w:{name} {WORD}>{content}</w:{name}>"
    return archive({"[Content_Types].xml": content_types(kinds), **members, "word/vbaProject.bin": b"\0macro"})


def xlsx(shared: str, sheet: str = "", **tables: str) -> bytes:
    """An XLSX file with shared strings, the rows of a sheet, and the columns of tables."""
    kinds = {
        "xl/workbook.xml": "spreadsheetml.sheet.main+xml",
        "xl/sharedStrings.xml": "spreadsheetml.sharedStrings+xml",
        "xl/worksheets/sheet1.xml": "spreadsheetml.worksheet+xml",
    }
    return archive(
        {
            "[Content_Types].xml": content_types(kinds),
            "xl/workbook.xml": f"<workbook {SHEET}/>",
            "xl/worksheets/sheet1.xml": f"<worksheet {SHEET}><sheetData>{sheet}</sheetData></worksheet>",
            "xl/sharedStrings.xml": f"<sst {SHEET}>{shared}</sst>",
            **{f"xl/tables/{name}.xml": f"<table {SHEET}>{columns}</table>" for name, columns in tables.items()},
        }
    )


def odt(body: str) -> bytes:
    """An ODT file with a body."""
    return archive(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"<office:document-content {OPEN_DOCUMENT}><office:body>{body}</office:body>"
            "</office:document-content>",
            "META-INF/manifest.xml": "<manifest/>",
        },
        stored=("mimetype",),
    )
