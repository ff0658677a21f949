"""Qt Linguist's .ts files."""

from __future__ import annotations

import pytest

from ibidem.errors import TextError
from ibidem.text.document import FillSettings
from ibidem.text.resources import read_ts_document

from ..samples import filled
from ..translators import return_empty, shout

FILE = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="en_US" sourcelanguage="de">
<context>
    <name>Fenster</name>
    <message>
        <location filename="a.cpp" line="3"/>
        <source>&amp;öffnen</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>datei %1 fehlt</source>
        <translation type="unfinished"/>
    </message>
    <message numerus="yes">
        <source>%n dateien</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <source>ohne platz</source>
    </message>
    <message>
        <source>fertig</source>
        <translation>done</translation>
    </message>
    <message>
        <source>unklar</source>
        <translation type="unfinished">unclear</translation>
    </message>
    <message>
        <source>alt</source>
        <translation type="vanished">old</translation>
    </message>
</context>
</TS>
"""


def test_missing_translations_are_filled_in_and_stay_unfinished() -> None:
    document = read_ts_document(FILE.encode(), "a.ts")
    written, report = filled(document, shout)
    expected = (
        FILE.replace('unfinished"></tr', 'unfinished">&amp;ÖFFNEN</tr')
        .replace('<translation type="unfinished"/>', '<translation type="unfinished">DATEI %1 FEHLT</translation>')
        .replace("<numerusform></", "<numerusform>%n DATEIEN</")
        .replace(
            "<source>ohne platz</source>",
            '<source>ohne platz</source>\n        <translation type="unfinished">OHNE PLATZ</translation>',
        )
    )
    assert written.decode() == expected
    assert report.kept == {"translated already": 1, "fuzzy": 1, 'type="vanished"': 1}
    assert [(one.is_target, one.tag) for one in document.languages] == [(False, "de"), (True, "en_US")]


def test_overwritten_translations_become_unfinished() -> None:
    settings = FillSettings(overwrite=True)
    written, _ = filled(read_ts_document(FILE.encode(), "a.ts"), shout, settings)
    assert '<translation type="unfinished">FERTIG</translation>' in written.decode()
    assert '<translation type="unfinished">UNKLAR</translation>' in written.decode()
    assert '<translation type="vanished">old</translation>' in written.decode()


def test_failed_translations_change_no_byte() -> None:
    written, report = filled(read_ts_document(FILE.encode(), "a.ts"), return_empty)
    assert written == FILE.encode()
    assert len(report.failed) == 4


@pytest.mark.parametrize("data", [b"<resources/>", b"export const a = 1;", b"", b"<TS><message>"])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(TextError, match=r"a\.ts, line 1"):
        read_ts_document(data, "a.ts")
