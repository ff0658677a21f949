"""XLIFF as parallel text."""

from __future__ import annotations

import pytest

from ibidem.errors import TextError
from ibidem.text import Corpus, Pair

from .conftest import Write, sides

ONE = """<xliff version="1.2"><file source-language="{}" target-language="{}"><body>
<trans-unit approved="yes"><source>das <g id="1">Haus</g></source><target>the <g id="1">house</g></target></trans-unit>
<trans-unit><source>nicht</source></trans-unit>
<trans-unit><source>a. b.</source><seg-source><mrk mtype="seg" mid="1">a.</mrk> <mrk mtype="seg" mid="2">b.</mrk>
</seg-source><target><mrk mtype="seg" mid="1">A.</mrk> <mrk mtype="seg" mid="2"/></target></trans-unit>
<trans-unit><source>c. d.</source><seg-source><mrk mtype="seg" mid="1">c.</mrk> <mrk mtype="seg" mid="2">d.</mrk>
</seg-source><target>C and D.</target></trans-unit>
</body></file></xliff>"""
TWO = """<xliff version="2.0" srcLang="{}" trgLang="{}"><file id="f"><unit id="u">
<segment><source>das <ph id="1"/> Haus</source><target>the house</target></segment>
<segment><source>nicht</source><target/></segment></unit></file></xliff>"""


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_translated_segments_are_pairs(write: Write, ending: str) -> None:
    path = write(f"a.xlf{ending}", ONE.format("de-DE", "en"))
    corpus = Corpus([path])
    assert list(corpus) == [
        Pair("das Haus", "the house", path, 2),
        Pair("a.", "A.", path, 4),
        Pair("c. d.", "C and D.", path, 6),
    ]
    assert corpus.counts.dropped == {"untranslated": 2}
    assert sides(Corpus([write("b.xliff", TWO.format("de", "en-US"))])) == [("das  Haus", "the house")]


def test_either_direction_and_no_other(write: Write) -> None:
    assert sides(Corpus([write("a.xlf", ONE.format("en", "de"))]))[0] == ("the house", "das Haus")
    assert sides(Corpus([write("a.xlf", TWO.format("en", "de"))]))[0] == ("the house", "das  Haus")
    with pytest.raises(TextError, match=r"line 1: its language is 'fr', and one of 'de' and 'en' is needed"):
        list(Corpus([write("a.xlf", ONE.format("de", "fr"))]))
    both = ONE.format("de", "en").replace("</file>", "</file>" + ONE.format("en", "de")[21:-8])
    with pytest.raises(TextError, match="translate in both directions"):
        list(Corpus([write("a.xlf", both)]))
