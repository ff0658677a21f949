"""SRT and WebVTT."""

from __future__ import annotations

import pytest

from ibidem.errors import TextError
from ibidem.text.subtitles import read_subtitle_document

from .samples import filled
from .translators import shout

TIME = "00:00:01,000 --> 00:00:02,500"


def translated(text: str, name: str = "a.srt") -> str:
    written, report = filled(read_subtitle_document(text.encode(), name), shout)
    assert report.failed == []
    return written.decode()


def test_lines_of_a_subtitle_are_one_text() -> None:
    document = read_subtitle_document(f"1\n{TIME}\neine lange zeile\nund noch eine\n".encode(), "a.srt")
    assert [segment.source for segment in document.segments] == [("eine lange zeile und noch eine",)]
    assert (
        translated(f"1\n{TIME}\neine lange zeile\nund noch eine\n\n")
        == f"1\n{TIME}\nEINE LANGE ZEILE\nUND NOCH EINE\n\n"
    )
    spoken = f"1\r\n{TIME}\r\n- ja.\r\n- nein!\r\n\r\n2\r\n{TIME}\r\n{{\\an8}}<i>oben hier</i>"
    assert translated(spoken) == spoken.replace("ja", "JA").replace("nein", "NEIN").replace("oben hier", "OBEN HIER")


def test_positions_and_dashes_of_speakers_stay() -> None:
    text = f"1\n{TIME}\n- wer ist da?\n{{\\an8}}- ich bin es.\n\n2\n{TIME}\n{{\\an8}}der vertrag\nendet\n"
    document = read_subtitle_document(text.encode(), "a.srt")
    assert [segment.source for segment in document.segments] == [
        ("wer ist da?",),
        ("ich bin es.",),
        ("der vertrag endet",),
    ]
    written, _ = filled(document, lambda texts: [f"{one} x" for one in texts])
    expected = text.replace("da?", "da? x").replace("es.", "es. x").replace("endet", "endet x")
    assert written.decode() == expected


def test_webvtt_keeps_notes_styles_and_settings() -> None:
    text = (
        "WEBVTT - titel\n\nNOTE\nbleibt\n\nSTYLE\n::cue { color: red }\n\nkapitel\n00:01.000 --> 00:02.000 align:left\n"
        "<v Anna>hallo <00:01.500>du &amp; ich</v>\n"
    )
    expected = text.replace("hallo", "HALLO").replace("du ", "DU ").replace(" ich", " ICH")
    assert translated(text, "a.vtt") == expected


def test_wrong_files() -> None:
    with pytest.raises(TextError, match=r"a\.srt: no line with the time of a subtitle"):
        read_subtitle_document(b"nur text\n", "a.srt")
    document = read_subtitle_document(f"1\n{TIME}\nhallo\n".encode(), "a.srt")
    _, report = filled(document, lambda texts: [f"{text} --> x" for text in texts])
    assert [failure.reason for failure in report.failed] != []


def test_a_subtitle_that_no_blank_line_ends() -> None:
    """Its successor has a number and a time of its own, which must stay."""
    text = f"1\n{TIME}\neins\n2\n{TIME}\nzwei\n{TIME}\n12 monate\n\n3\n{TIME}\n4\n{TIME}\nvier"
    document = read_subtitle_document(text.encode(), "a.srt")
    assert [segment.source for segment in document.segments] == [("eins",), ("zwei",), ("12 monate",), ("vier",)]
    assert translated(text) == text.replace("eins", "EINS").replace("zwei", "ZWEI").replace("monate", "MONATE").replace(
        "vier", "VIER"
    )


def test_a_subtitle_of_many_lines_takes_linear_time() -> None:
    """Quadratic time would be minutes."""
    lines = "a b\n" * 60_000
    document = read_subtitle_document(f"1\n{TIME}\n{lines}".encode(), "a.srt")
    [segment] = document.segments
    assert document.encode(segment, (" ".join(["x y"] * 60_000),)) == ("x y\n" * 60_000).strip().encode()
