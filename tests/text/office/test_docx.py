"""DOCX documents: runs, links, fields, text boxes, and what is left alone."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text.inline import Code, plain_text
from ibidem.text.office import read_docx_document

from ..samples import filled, parse
from ..translators import backwards, damage, shout
from .archives import archive, docx, members_of


def run(text: str, properties: str = "", attributes: str = "") -> str:
    format = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r{attributes}>{format}<w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*content: str) -> str:
    return f'<w:p><w:pPr><w:pStyle w:val="x"/></w:pPr>{"".join(content)}</w:p>'


def sources(data: bytes) -> list[str]:
    """The texts of a document, with each code as its first letters."""
    shown = {"open": "(", "close": ")", "single": "*"}
    return [
        "".join(shown[one.role.value] if isinstance(one, Code) else one for one in segment.source)
        for segment in read_docx_document(data, "a.docx").segments
    ]


def body(data: bytes) -> str:
    return members_of(data)["word/document.xml"].decode().partition("<w:body>")[2].partition("</w:body>")[0]


def translated(text: str, translate: Any = shout) -> str:
    written, report = filled(read_docx_document(docx(text), "a.docx"), translate)
    assert report.failed == []
    parse(members_of(written)["word/document.xml"])
    return body(written)


BOLD = "<w:b/>"


def test_runs_that_look_the_same_are_one_text() -> None:
    text = paragraph(
        run("ein ", attributes=' w:rsidR="1"'),
        '<w:proofErr w:type="spellStart"/>',
        run("geteiltes", '<w:lang w:val="de-DE"/>'),
        run(" wort"),
    )
    assert sources(docx(text)) == ["ein geteiltes wort"]
    assert translated(text) == paragraph(run("EIN GETEILTES WORT"))


def test_formats_stay_with_their_words() -> None:
    text = paragraph(run("eins zwei "), run("drei", BOLD), run(" vier"))
    assert sources(docx(text)) == ["eins zwei (drei) vier"]
    assert translated(text) == paragraph(run("EINS ZWEI "), run("DREI", BOLD), run(" VIER"))
    # The codes move with the words.
    assert translated(text, backwards) == paragraph(run("vier "), run("drei", BOLD), run(" zwei eins"))
    whole = paragraph(run("alles fett", BOLD))
    assert sources(docx(whole)) == ["alles fett"]
    assert translated(whole) == paragraph(run("ALLES FETT", BOLD))


def test_tabs_breaks_and_hyphens_are_text() -> None:
    text = paragraph(
        "<w:r><w:t>eins</w:t><w:tab/><w:t>zwei</w:t><w:br/><w:t>drei</w:t><w:noBreakHyphen/><w:t>x</w:t></w:r>"
    )
    assert sources(docx(text)) == ["eins\tzwei\ndrei\u2011x"]
    found = translated(text)
    assert re.sub("<[^<>]*t[ >][^<>]*>", "", found).count("<w:tab/>") == found.count("<w:br/>") == 1
    assert re.findall(">([^<]+)<", found) == ["EINS", "ZWEI", "DREI\u2011X"]


def test_links_keep_their_targets_and_formats() -> None:
    link = f'<w:hyperlink r="4">{run("der verweis", "<w:u/>")}</w:hyperlink>'
    assert sources(docx(paragraph(run("siehe "), link, run(" dort")))) == ["siehe (der verweis) dort"]
    expected = paragraph(
        run("SIEHE "), f'<w:hyperlink r="4">{run("DER VERWEIS", "<w:u/>")}</w:hyperlink>', run(" DORT")
    )
    assert translated(paragraph(run("siehe "), link, run(" dort"))) == expected
    # A link around the whole text stays outside of it.
    assert sources(docx(paragraph(link))) == ["der verweis"]


def test_fields() -> None:
    def field(instruction: str, shown: str) -> str:
        parts = ('<w:fldChar w:fldCharType="begin"/>', f"<w:instrText>{instruction}</w:instrText>")
        separate, end = '<w:fldChar w:fldCharType="separate"/>', '<w:fldChar w:fldCharType="end"/>'
        return "".join(f"<w:r>{part}</w:r>" for part in (*parts, separate)) + run(shown) + f"<w:r>{end}</w:r>"

    page = paragraph(run("seite "), field(" PAGE ", "7"), run(" von zehn"))
    assert sources(docx(page)) == ["seite * von zehn"]
    found = translated(page)
    assert field(" PAGE ", "7") in found
    link = paragraph(run("siehe "), field(' HYPERLINK "http://x" ', "den ort"), run(" dort"))
    assert sources(docx(link)) == ["siehe (den ort) dort"]
    assert field(' HYPERLINK "http://x" ', "DEN ORT") in translated(link)
    # The end of this field is in another paragraph.
    begun = paragraph('<w:r><w:fldChar w:fldCharType="begin"/></w:r>', run("inhalt"))
    assert '<w:fldChar w:fldCharType="begin"/>' in translated(begun)
    nested = paragraph(run("a "), field(f"IF {field('x', 'y')}", "z"), run(" b"))
    assert sources(docx(nested)) == ["a * b"]


def test_footnotes_bookmarks_and_comments_stay() -> None:
    note = '<w:r><w:footnoteReference w:id="2"/></w:r>'
    mark = '<w:bookmarkStart w:id="0" w:name="m"/>', '<w:bookmarkEnd w:id="0"/>'
    text = paragraph(run("ein wort"), note, run(" und "), mark[0], run("eine marke"), mark[1], run(" hier"))
    assert sources(docx(text)) == ["ein wort* und (eine marke) hier"]
    found = translated(text)
    assert found == paragraph(run("EIN WORT"), note, run(" UND "), mark[0], run("EINE MARKE"), mark[1], run(" HIER"))
    open_ended = paragraph(run("anfang "), '<w:commentRangeStart w:id="9"/>', run("mitte"))
    assert translated(open_ended) == paragraph('<w:commentRangeStart w:id="9"/>', run("ANFANG MITTE"))


def test_deleted_and_hidden_text_is_left_alone() -> None:
    gone = '<w:del w:id="1"><w:r><w:delText>weg</w:delText></w:r></w:del>'
    hidden = run("versteckt", "<w:vanish/>")
    added = f'<w:ins w:id="2">{run("neu")}</w:ins>'
    text = paragraph(run("eins "), gone, added, run(" zwei"), hidden)
    assert sources(docx(text)) == ["eins *(neu) zwei"]
    found = translated(text)
    assert gone in found
    assert hidden in found
    assert f'<w:ins w:id="2">{run("NEU")}</w:ins>' in found


def test_text_boxes_tables_headers_and_notes() -> None:
    box = f"<w:r><w:pict><w:txbxContent>{paragraph(run('im kasten'))}</w:txbxContent></w:pict></w:r>"
    table = f"<w:tbl><w:tr><w:tc>{paragraph(run('zelle'))}</w:tc></w:tr></w:tbl>"
    control = f"<w:sdt><w:sdtPr/><w:sdtContent>{run('feld')}</w:sdtContent></w:sdt>"
    choice = f"<w:sdt><w:sdtPr><w:dropDownList/></w:sdtPr><w:sdtContent>{run('wahl')}</w:sdtContent></w:sdt>"
    text = paragraph(run("vor "), box, run("nach")) + table + paragraph(run("ein "), control, choice, run(" ende"))
    data = docx(
        text, header=paragraph(run("kopf")), footnotes=paragraph(run("fußnote")), comments=paragraph(run("nein"))
    )
    assert sources(data) == ["vor ", "nach", "im kasten", "zelle", "ein (feld)* ende", "kopf", "fußnote"]
    written, _ = filled(read_docx_document(data, "a.docx"), shout)
    expected = text.replace("vor ", "VOR ").replace("nach", "NACH").replace("im kasten", "IM KASTEN")
    for word in ("zelle", "ein ", "feld", " ende"):
        expected = expected.replace(f">{word}<", f">{word.upper()}<")
    assert body(written) == expected
    before, after = members_of(data), members_of(written)
    assert [name for name in before if before[name] != after[name]] == [
        "word/document.xml",
        "word/header.xml",
        "word/footnotes.xml",
    ]


def test_a_failure_names_the_paragraph() -> None:
    data = docx(paragraph(run("eins")) + paragraph(run("{n, plural, one {x} other {y}}")))
    _, report = filled(read_docx_document(data, "a.docx"), shout)
    assert list(report.lines()) == [
        "a.docx, word/document.xml, paragraph 2: not translated: an ICU message with several texts in one (plural, "
        "select) is left to a person"
    ]
    assert report.to_json()["failed"][0]["place"] == "word/document.xml, paragraph 2"


_words = st.sampled_from(["wort ", "haus", " und", " {x} ", "5", "ä&amp;b", " "])
_runs = st.builds(run, _words, st.sampled_from(["", BOLD, "<w:i/>"]))
_links = st.lists(_runs, max_size=3).map(lambda runs: f'<w:hyperlink w:id="1">{"".join(runs)}</w:hyperlink>')
_others = st.sampled_from(
    [
        '<w:r><w:footnoteReference w:id="1"/></w:r>',
        '<w:bookmarkStart w:id="1"/>',
        '<w:bookmarkEnd w:id="1"/>',
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r>',
        '<w:r><w:fldChar w:fldCharType="separate"/></w:r>',
        '<w:r><w:t>mit </w:t><w:fldChar w:fldCharType="end"/><w:t> rest</w:t></w:r>',
        f"<w:r><w:pict>{paragraph(run('kasten'))}</w:pict></w:r>",
        "<w:del><w:r><w:delText>x</w:delText></w:r></w:del>",
    ]
)


@settings(max_examples=50)
@given(st.lists(st.one_of(_runs, _links, _others), min_size=1, max_size=12), st.integers(0, 999))
def test_any_paragraph_stays_well_formed_and_loses_nothing(parts: list[str], seed: int) -> None:
    data = docx(paragraph(*parts))
    document = read_docx_document(data, "a.docx")
    same, _ = filled(document, list)
    assert same == data
    written, _ = filled(document, damage(seed, ["{1}", "neu", "<b>"]))
    before, after = (parse(members_of(one)["word/document.xml"]) for one in (data, written))

    def count(root: Any) -> dict[str, int]:
        kept = "footnoteReference", "fldChar", "bookmarkStart", "bookmarkEnd", "hyperlink", "delText", "pict"
        return {name: sum(1 for one in root.iter() if one.tag.endswith(f"}}{name}")) for name in kept}

    assert count(before) == count(after)


def test_a_library_opens_the_result(tmp_path: Any) -> None:
    library = pytest.importorskip("docx")
    document = library.Document()
    document.add_heading("die überschrift", 1)
    text = document.add_paragraph("ein ")
    text.add_run("fettes wort").bold = True
    text.add_run(" hier.")
    document.add_table(1, 1).cell(0, 0).text = "zelle & mehr"
    document.save(tmp_path / "a.docx")
    data = (tmp_path / "a.docx").read_bytes()
    written, report = filled(read_docx_document(data, "a.docx"), shout)
    assert report.translated == 3
    result = library.Document(io.BytesIO(written))
    assert [one.text for one in result.paragraphs] == ["DIE ÜBERSCHRIFT", "EIN FETTES WORT HIER."]
    assert [(one.text, one.bold) for one in result.paragraphs[1].runs][1] == ("FETTES WORT", True)
    assert result.tables[0].cell(0, 0).text == "ZELLE & MEHR"
    assert result.paragraphs[0].style.name == "Heading 1"


def test_wrong_files() -> None:
    with pytest.raises(TextError, match=r"without the parts of a DOCX file"):
        read_docx_document(archive({"a.txt": "x"}), "a.docx")
    entity = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
    with pytest.raises(TextError, match="entity 'e' is refused"):
        read_docx_document(_with_body(f"{entity}<w:document/>"), "a.docx")
    deep = "<w:p>" * 300 + "</w:p>" * 300
    with pytest.raises(TextError, match="more than 256 elements inside one another"):
        read_docx_document(docx(deep), "a.docx")
    with pytest.raises(TextError, match="not well-formed"):
        read_docx_document(docx("<w:p>"), "a.docx")


def _with_body(document: str) -> bytes:
    members: dict[str, str | bytes] = dict(members_of(docx("")))
    return archive({**members, "word/document.xml": document})


def test_truncated_files_are_refused_by_name() -> None:
    data = docx(paragraph(run("eins")))
    for length in range(0, len(data), 97):
        with pytest.raises(TextError, match=r"^a\.docx"):
            read_docx_document(data[:length], "a.docx")
    assert zipfile.is_zipfile(io.BytesIO(data))


def test_a_paragraph_of_many_runs_takes_linear_time() -> None:
    text = paragraph(*(run(f"w{n} ", BOLD if n % 2 else "") for n in range(4_000)))
    [segment] = read_docx_document(docx(text), "a.docx").segments
    assert len(plain_text(segment.source)) > 20_000
    too_many = paragraph(*(run("w ") for _ in range(10_001)))
    [segment] = read_docx_document(docx(too_many), "a.docx").segments
    assert segment.locked == "more than 10,000 runs in a paragraph"
