"""Ends of sentences: rules for German and English that are safe for other languages.

A stop ends a sentence if white space follows it and the next word may begin a sentence. Stops of abbreviations,
ordinals ("3. Oktober"), initials and list markers, and stops inside brackets, do not end a sentence. Where the rules
cannot decide, the text is not split, since a missing boundary does less harm than a wrong one. Time is linear in the
length of the text.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from ibidem.text.language import primary_language

if TYPE_CHECKING:
    from collections.abc import Iterator

# A stop, the marks that close a quotation or a bracket after it, and white space. Tags and numbered placeholders count
# as closing marks. Chinese and Japanese have no white space after a stop.
_CLOSING = r"""(?:["'”’“‘»«›‹)\]}*_]|</[\w:.-]{1,40}>|\{\d{1,3}\})"""
_STOP = re.compile(
    rf"(?<![.!?…])(?P<stop>[.!?…]+|[؟۔।॥։።။។]|(?<=\w);(?=\s)){_CLOSING}*+(?P<space>\s+)|"
    r"(?P<wide>[。！？｡][。！？｡]*+[」』”’）》】]*+)(?![」』”’）》】])\s*"
)
# The marks before the first word of a sentence.
_OPENING = re.compile(r"""(?:["'„“”‚‘’«»‹›(\[¿¡*_#]|<[A-Za-z][^<>]{0,100}>)*+""")
_PLACEHOLDER = re.compile(
    r"%(?:\d+\$)?[-+#0-9.]{0,8}[a-zA-Z@]|%\([^()\s]{1,40}\)[a-z]|\$?\{[^{}]{0,40}\}|\$\w{1,40}|%\d"
)
_ITEM = re.compile(r"[-–—•●▪◦·*‣]\s+\S|[•●▪◦‣]|[a-zA-Z0-9]{1,3}\s?\)\s|\(\s?[a-zA-Z0-9]{1,3}\s?\)\s")
_DAYS = re.compile(r"\d{1,2}\.?[-–/]\d{1,2}")
_MIXED_CASE = re.compile(r"[a-z]{1,2}[A-Z]")
_MARKER = re.compile(r"""["'„“«»(\[]*(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})""")
_WORD = re.compile(r"\w+(?:[-'’]\w+)*")
_ROMAN = re.compile(r"[IVXLC]{2,7}")
_INITIALS = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_BRACKET = re.compile(r"[()\[\]]")
# A bracket that is not closed within this many characters is a slip of the pen.
_MAX_BRACKET = 300
_MAX_WORD = 60

# Languages that write ordinals as a number with a full stop; unknown languages are treated alike.
_ORDINAL_CODES = "de lb da nb nn no is fo fi et lv cs sk pl sl hr sr bs mk hu tr eu sq hsb dsb"
_ORDINAL_LANGUAGES = frozenset(_ORDINAL_CODES.split())
_GREEK = "el"

# Never the last word of a sentence.
_ALWAYS_INSIDE_WORDS = """
dr prof hr hrn fr frl dipl mag ing hrsg vgl bzw ca evtl ggf inkl exkl sog geb gest zzgl abzgl insb bspw allg gem lt mr
mrs ms messrs mx gen col sgt capt cpt gov sen rep rev hon pres fig figs eq eqs cf approx viz vs resp sig sigg dott avv
mme mlle sra srta dhr mevr mgr phdr
"""
_ALWAYS_INSIDE = frozenset(_ALWAYS_INSIDE_WORDS.split())
# Abbreviations that may end a sentence; one does if the next word often begins sentences.
_SOMETIMES_LAST_WORDS = """
abb tab kap art abs bd bde nr nrn ziff anm aufl ausg bsp fa tel str st usf usw etc dgl desgl mio mrd tsd std min sek
max mind mwst ust zz zt jh jhd jan feb mrz apr jun jul aug sep sept okt nov dez mo di mi do fr sa so bez betr verf inc
corp ltd co bros jr sr oct dec mon tue tues wed thu thur thurs sat sun dept univ assn ave blvd rd hwy mt ft sec ch
chap vol pp p ff f al ed eds trans ex esp incl excl tbl ref refs app op ibid lb lbs oz hrs mins secs no nos ecc env
cap pag tom bl blz enz bijv nl ok
"""
_SOMETIMES_LAST = frozenset(_SOMETIMES_LAST_WORDS.split())
# In English a capital after these words begins a sentence, since nouns are not capitalised.
_LISTS = frozenset(["etc"])
# Words before a cardinal number: its full stop ends a sentence.
_NUMBERED_WORDS = """
nr nummer seite s abb abbildung tab tabelle kap kapitel abschnitt version punkt schritt teil zeile spalte absatz abs
art artikel paragraph band bd heft platz klasse stufe raum zimmer gleis windows office kolonne position pos ebene zu
auf um
"""
_NUMBERED = frozenset(_NUMBERED_WORDS.split())
_STREETS = ("str", "straße", "strasse", "weg", "platz", "gasse", "allee")
# Words that often begin sentences and seldom follow an abbreviation.
_STARTERS_WORDS = """
Der Die Das Dem Den Des Ein Eine Einen Einem Einer Eines Er Sie Es Wir Ihr Ich Du Man Dies Diese Dieser Dieses Diesen
Diesem Jede Jeder Jedes Alle Beide Mein Meine Sein Seine Ihre Ihren Unser Unsere Kein Keine Wenn Falls Da Dann Danach
Dort Hier Heute Jetzt Nun Auch Aber Und Oder Doch Denn Daher Deshalb Dafür Dabei Dadurch Damit Dazu Darin Somit Als Ob
Weil Obwohl Nachdem Bevor Im In An Am Auf Aus Bei Beim Bis Für Mit Nach Ohne Um Unter Vor Zur Über Durch Gegen
Zwischen Während Seit Wegen Trotz Laut Bitte Nur Noch Schon So Wie Was Wer Wo Wann Warum Welche Welcher Ja Nein Nicht
Nachts Morgens Abends Vielleicht Leider Sonst Zuerst Zudem Außerdem Jedoch Hierzu Hierbei Darauf Darüber The This That
These Those He She It We They You There Here On At For From With By If When While After Before But And Or Then However
His Her Their Its Our My Your Not Now All Some Many Most Please Why How Where Who Yes It's I I'm Nobody Nothing
Because Although Since Once Every Each Both Another Such Also
"""
_STARTERS = frozenset(_STARTERS_WORDS.split())


def find_sentences(text: str, language: str | None = None) -> list[tuple[int, int]]:
    """Find the sentences of a text.

    Args:
        text: The text. Line breaks count as spaces.
        language: The tag of its language, such as "de"; None if it is unknown.

    Returns:
        The start and end of each sentence, without the white space around it; none for a blank text. All characters
        that are not white space are in a sentence.

    Examples:
        >>> text = "Wir treffen uns am 3. Oktober. Dr. Meier kommt auch."
        >>> [text[start:end] for start, end in find_sentences(text, "de")]
        ['Wir treffen uns am 3. Oktober.', 'Dr. Meier kommt auch.']
    """
    if not text or text.isspace():
        return []
    rules = _Rules(text, None if language is None else primary_language(language))
    cuts = [0, *rules.boundaries(), len(text)]
    spans = []
    for start, end in pairwise(cuts):
        part = text[start:end]
        spans.append((start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())))
    return [(start, end) for start, end in spans if start < end]


class _Rules:
    """The decisions about the stops of one text."""

    def __init__(self, text: str, language: str | None) -> None:
        self._text = text
        self._greek = language == _GREEK
        self._ordinals = language is None or language in _ORDINAL_LANGUAGES
        self._english = language == "en"
        self._brackets = _match_brackets(text)

    def boundaries(self) -> Iterator[int]:
        """Yield the position at which each sentence but the first begins."""
        text = self._text
        first = len(text) - len(text.lstrip())
        bracket = 0
        for found in _STOP.finditer(text):
            after = found.end()
            if after == len(text):
                return
            if found["wide"] is None:
                while bracket < len(self._brackets) and self._brackets[bracket][1] < found.start("space"):
                    bracket += 1
                inside = bracket < len(self._brackets) and first < self._brackets[bracket][0] < found.start()
                if inside or not self._ends(found, first, after):
                    continue
            yield after
            first = after

    def _ends(self, found: re.Match[str], first: int, after: int) -> bool:
        """Return whether a stop with white space after it ends the sentence that begins at `first`."""
        stop = found["stop"]
        if stop == ";" and not self._greek:
            return False
        opened = _OPENING.match(self._text, after)
        word_start = after if opened is None else opened.end()
        if not (self._may_begin(word_start) or _ITEM.match(self._text, after)):
            return False
        if stop != ".":
            return True
        return self._full_stop_ends(found.start(), first, word_start)

    def _may_begin(self, start: int) -> bool:
        """Return whether the word at a position may be the first of a sentence."""
        text = self._text
        placeholder = _PLACEHOLDER.match(text, start)
        if placeholder is not None:
            glued = text[placeholder.end() : placeholder.end() + 1]
            return not glued.islower()
        character = text[start : start + 1]
        if character.islower():
            return _MIXED_CASE.match(text, start) is not None or _ITEM.match(text, start) is not None
        return character.isalnum() or character in "§©®€$£#@/\\~+" or _ITEM.match(text, start) is not None

    def _full_stop_ends(self, place: int, first: int, word_start: int) -> bool:
        """Return whether the single full stop at `place` ends the sentence that begins at `first`."""
        text = self._text
        head = text[max(first, place - _MAX_WORD) : place]
        words = head.split()
        if not words or head[-1].isspace():
            return True
        token = words[-1].lstrip("\"'„“”‚‘’«»‹›([¿¡*_")
        if len(words) == 1 and place - first <= _MAX_WORD and _MARKER.fullmatch(words[0]):
            return False
        following = _WORD.match(text, word_start)
        next_word = "" if following is None else following[0]
        starter = next_word in _STARTERS
        if token.isdecimal() or _DAYS.fullmatch(token):
            return self._number_ends(token, words, starter)
        if len(token) == 1 and token.isalpha():
            return starter and token.isupper()
        if self._ordinals and _ROMAN.fullmatch(token):
            return starter
        if _INITIALS.fullmatch(token):
            return starter and token.lower() not in ("e.g", "i.e", "z.b", "d.h", "u.a", "s.o", "s.u")
        lowered = token.lower()
        last_part = lowered.rsplit("-", 1)[-1].rsplit("/", 1)[-1].rsplit("(", 1)[-1]
        if last_part in _ALWAYS_INSIDE:
            return False
        if last_part in ("no", "nos") and not next_word[:1].isdigit():
            return True
        if last_part in _LISTS and self._english:
            return True
        if last_part in _SOMETIMES_LAST or (len(token) > 3 and lowered.endswith("str")):
            return starter
        return True

    def _number_ends(self, token: str, words: list[str], starter: bool) -> bool:
        """Return whether the full stop after a number ends a sentence; else the number is an ordinal or in a date."""
        if not self._ordinals or (token.isdecimal() and len(token) > 3):
            return True
        before = words[-2].rstrip(".").lower() if len(words) > 1 else ""
        return starter or before in _NUMBERED or before.endswith(_STREETS)


def _match_brackets(text: str) -> list[tuple[int, int]]:
    """Return the outermost pairs of brackets, without very long ones, in the order of their positions."""
    pairs: list[tuple[int, int]] = []
    unclosed: list[int] = []
    for found in _BRACKET.finditer(text):
        if found[0] in "([":
            unclosed.append(found.start())
        elif unclosed:
            start = unclosed.pop()
            if found.start() - start <= _MAX_BRACKET:
                while pairs and pairs[-1][0] > start:
                    pairs.pop()
                pairs.append((start, found.start()))
    return pairs
