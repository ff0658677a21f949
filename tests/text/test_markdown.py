"""Markdown documents."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ibidem.errors import TextError
from ibidem.text import markdown as markdown_module
from ibidem.text.inline import Code, plain_text
from ibidem.text.markdown import read_markdown_document

from .samples import filled
from .translators import backwards, damage, shout


def translated(text: str) -> str:
    written, report = filled(read_markdown_document(text.encode(), "a.md"), shout)
    assert report.failed == []
    return written.decode()


def shown(text: str) -> list[str]:
    marks = {"open": "(", "close": ")", "single": "*"}
    return [
        "".join(marks[one.role.value] if isinstance(one, Code) else one for one in segment.source)
        for segment in read_markdown_document(text.encode(), "a.md").segments
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# titel #\n", "# TITEL #\n"),
        ("titel\n=====\n", "TITEL\n=====\n"),
        ("- eins\n- [ ] zwei\n  1. drei\n", "- EINS\n- [ ] ZWEI\n  1. DREI\n"),
        ("> zitat\n> weiter\n", "> ZITAT\n> WEITER\n"),
        ("| a | b |\n|---|:-:|\n| eins | 12 |\n", "| A | B |\n|---|:-:|\n| EINS | 12 |\n"),
        ("---\ntitle: bleibt\n---\n\ntext\n", "---\ntitle: bleibt\n---\n\nTEXT\n"),
        ("```\nbleibt\n```\n\n    bleibt\n\n<div>bleibt</div>\n", None),
        ("[ref]: http://x 'bleibt'\n", None),
        ("zeile  \nhart\n", "ZEILE  \nHART\n"),
        ("zeile\\\nhart\r\n", "ZEILE\\\r\nHART\r\n"),
        ("5 * 3 und \\*kein\\* stern\n", "5 * 3 UND \\*KEIN\\* STERN\n"),
    ],
)
def test_blocks(text: str, expected: str | None) -> None:
    assert translated(text) == (text if expected is None else expected)


def test_a_bar_in_a_cell_is_text() -> None:
    table = "| eins | zwei |\n|---|---|\n| drei \\| vier | `a\\|b` fünf |\n"
    assert translated(table) == table.upper().replace("A\\|B", "a\\|b")
    document = read_markdown_document(table.encode(), "a.md")
    assert [plain_text(segment.source) for segment in document.segments] == ["eins", "zwei", "drei | vier", " fünf"]
    written, _ = filled(document, lambda texts: [f"| {text} | x" for text in texts])
    cells = [token.content for token in MarkdownIt().enable("table").parse(written.decode()) if token.type == "inline"]
    assert cells == ["| eins | x", "| zwei | x", "| drei | vier | x", "| `a|b` fünf | x"]


def test_inline_marks() -> None:
    assert shown("ein **fettes** _wort_ in `code` und <http://x>\n") == ["ein (fettes) (wort) in * und *"]
    assert shown('[der ort](http://x/a(b) "t") und ![bild](b.png)[^1]\n') == ["(der ort) und (bild)*"]
    assert translated("[der ort] hier\n\n[der ort]: http://x\n") == "[DER ORT][der ort] HIER\n\n[der ort]: http://x\n"
    assert shown("kein [verweis] und snake_case_name\n") == ["kein [verweis] und snake_case_name"]


def test_long_lines_are_wrapped_as_before() -> None:
    text = "- eins zwei drei vier fünf\n  sechs sieben acht neun\n"
    assert translated(text) == text.upper()
    written, _ = filled(read_markdown_document(text.encode(), "a.md"), backwards)
    assert [len(line) <= 30 for line in written.decode().splitlines()] == [True, True]
    assert written.decode().splitlines()[1].startswith("  ")


def test_a_translation_that_looks_like_a_block_is_escaped() -> None:
    document = read_markdown_document(b"text\n", "a.md")
    for target, expected in (("# x", "\\# x"), ("- x", "\\- x"), ("1. x", "1\\. x"), ("* x", "\\* x")):
        written, _ = filled(document, lambda texts, target=target: [target for _ in texts])  # type: ignore[misc]
        assert written.decode() == f"{expected}\n"


_bits = st.sampled_from(
    [
        "wort",
        "**fett**",
        "*a",
        "`c`",
        "[v](u)",
        "![b](u)",
        "\n",
        "\n\n",
        "- ",
        "> ",
        "# ",
        "| x |",
        "  \n",
        "\\*",
        "1. ",
    ]
)


@settings(max_examples=60)
@given(st.lists(_bits, min_size=1, max_size=15).map(" ".join), st.integers(0, 999))
def test_the_structure_is_kept(text: str, seed: int) -> None:
    document = read_markdown_document(text.encode(), "a.md")
    same, _ = filled(document, list)
    assert same == text.encode()
    bad = damage(seed, ["- x", "#", "*", "`", "[", "\\", ">"])
    written, _ = filled(document, lambda texts: [f"x {one} y" for one in bad(texts)])
    blocks = [
        [token.type for token in MarkdownIt().parse(one) if token.type != "inline"] for one in (text, written.decode())
    ]
    assert blocks[0] == blocks[1]


def test_a_file_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown_module, "MAX_MARKDOWN_BYTES", 10)
    with pytest.raises(TextError, match="larger than 10 bytes"):
        read_markdown_document(b"x" * 11, "a.md")
