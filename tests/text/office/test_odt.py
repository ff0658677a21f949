"""ODT documents."""

from __future__ import annotations

import pytest

from ibidem.errors import TextError
from ibidem.text.inline import plain_text
from ibidem.text.office import read_odt_document

from ..samples import filled, parse
from ..translators import backwards, shout
from .archives import archive, members_of, odt


def translated(body: str, translate: object = shout) -> str:
    data = odt(body)
    document = read_odt_document(data, "a.odt")
    same, _ = filled(document, list)
    assert same == data
    written, report = filled(document, translate)  # type: ignore[arg-type]
    assert report.failed == []
    members = members_of(written)
    parse(members["content.xml"])
    assert written[30:38] == b"mimetype"
    return members["content.xml"].decode().partition("<office:body>")[2].partition("</office:body>")[0]


def test_spans_links_and_spaces() -> None:
    text = '<text:p text:style-name="P">ein <text:span text:style-name="T">fettes</text:span> wort</text:p>'
    assert translated(text) == text.replace("ein", "EIN").replace("fettes", "FETTES").replace("wort", "WORT")
    moved = '<text:p text:style-name="P">wort <text:span text:style-name="T">fettes</text:span> ein</text:p>'
    assert translated(text, backwards) == moved
    spaced = '<text:h>a<text:s text:c="2"/>b<text:tab/>c<text:line-break/>d</text:h>'
    assert translated(spaced) == "<text:h>A <text:s/>B<text:tab/>C<text:line-break/>D</text:h>"


def test_white_space_is_as_it_is_shown() -> None:
    """A space at the beginning of a paragraph is shown only as an element, and line breaks are shown as one space."""
    indented = '<text:p><text:s text:c="3"/>ein wort</text:p>'
    assert translated(indented) == f"<text:p>{3 * '<text:s/>'}EIN WORT</text:p>"
    spanned = '<text:p><text:span><text:s text:c="2"/>ein</text:span> wort</text:p>'
    assert translated(spanned) == "<text:p><text:span><text:s/><text:s/>EIN</text:span> WORT</text:p>"
    wrapped = "<text:p>\n  ein\n  <text:span>\n  wort</text:span>\n\t<text:span>mehr</text:span>\n</text:p>"
    assert translated(wrapped) == "<text:p>\nEIN <text:span>WORT</text:span> <text:span>MEHR</text:span> </text:p>"
    document = read_odt_document(odt("<text:p>\n 10\u00a0km\n &amp;\n mehr</text:p>"), "a.odt")
    assert [plain_text(segment.source) for segment in document.segments] == ["10\u00a0km & mehr"]


def test_notes_and_lists() -> None:
    content = "<text:note-body><text:p>die note</text:p></text:note-body>"
    note = f"<text:note><text:note-citation>1</text:note-citation>{content}</text:note>"
    text = f"<text:list><text:list-item><text:p>vorher{note} nachher</text:p></text:list-item></text:list>"
    expected = text.replace("vorher", "VORHER").replace("die note", "DIE NOTE").replace("nachher", "NACHHER")
    assert translated(text) == expected


def test_wrong_files() -> None:
    with pytest.raises(TextError, match="without the parts of an ODT file"):
        read_odt_document(archive({"mimetype": "x"}), "a.odt")
    encrypted = {"content.xml": "x", "META-INF/manifest.xml": "<manifest><encryption-data/></manifest>"}
    with pytest.raises(TextError, match=r"a\.odt: the document is encrypted"):
        read_odt_document(archive(dict(encrypted)), "a.odt")
