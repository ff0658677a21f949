"""The language of a sentence, by frequent words and by script; it prefers no answer to a wrong one."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

# Frequent words that are rarely content words. A word of several languages counts for each of them in part.
_WORDS = {
    "de": """der die das und ist nicht ein eine einen einem einer eines mit für auf von zu den dem des im wird werden
        wurde wurden sind sich auch als bei oder nach aus wie kann können wenn nur noch über durch haben hat ich sie er
        wir ihr es dass daß diese dieser dieses diesem diesen zum zur vom um bis keine kein mehr soll sollte müssen muss
        alle unter zwischen hier da doch was mich mir uns euch du dir dich mein dein sein seine ihre ihren ihrem ihnen
        aber denn damit weil wo wer schon sehr man einmal immer wieder ja nein ob vor am so an in war habe bin bist
        seid hatte wäre würde könnte muß darf dann also""",
    "en": """the of and to is that for it with as be on are this by you not or from at have has an will can was were
        which if all when your they he she we his her their its would should may must been do does no there what more
        but in a so am my me us our them him who how why where then than into about only also any some these those
        could had did don't doesn't isn't you're it's there's i don one out up being such each other man""",
    "fr": """le la les des et est un une dans que qui pour pas sur avec au aux du ne se ce cette il elle nous vous ils
        sont plus par ou être avoir fait mais comme tout votre leur de en a son sa ses je tu y où c'est d'une""",
    "es": """el la los las de que en y un una por con para del es se no su al lo como más pero sus le ya o este sí esta
        son entre cuando muy sin sobre ser también me hasta hay donde quien desde todo nos está""",
    "it": """il lo la i gli le di che e un una per con non del della dei delle è si da in al alla sono come più ma anche
        se nel nella questo questa essere ha hanno dal dalla sul sulla ci suo sua loro quando""",
    "nl": """de het een en van is dat in op te niet met voor zijn aan er om als ook dan maar bij uit naar wordt worden
        deze dit heeft hebben kan kunnen je ik hij zij wij geen nog door over tot die wat moet meer""",
    "pt": """o a os as de que e do da em um uma para com não por se na no mais dos das como mas ao ele ela seu sua ou
        ser quando muito está já também só pelo pela até isso são foi esta este você""",
    "pl": """i w na z nie się to jest że do o jak a od za przez po dla są tak być może które który która jego jej ich
        ale czy lub tylko już jeśli oraz tym tego przy""",
    "sv": """och att det som en på är av för med den till inte om ett har de jag var vid kan från så sig men eller vi du
        ska när också ej bara efter detta denna finns""",
    "da": """og at det som en på er af for med den til ikke om et har de jeg var ved kan fra så sig men eller vi du skal
        når også kun efter dette denne findes hvis""",
    "cs": """a se na je že v to s z do o k i za by pro jako ale po jsou jsem být který která které nebo pokud není tak
        při od jeho její jen také může už""",
}
_SCRIPTS = {
    "CYRILLIC": frozenset({"ru", "uk", "be", "bg", "sr", "mk", "kk", "ky", "tg", "mn"}),
    "GREEK": frozenset({"el"}),
    "ARABIC": frozenset({"ar", "fa", "ur", "ps", "ug"}),
    "HEBREW": frozenset({"he", "yi"}),
    "DEVANAGARI": frozenset({"hi", "mr", "ne"}),
    "THAI": frozenset({"th"}),
    "HANGUL": frozenset({"ko"}),
    "HIRAGANA": frozenset({"ja"}),
    "KATAKANA": frozenset({"ja"}),
    "CJK": frozenset({"zh", "ja"}),
    "GEORGIAN": frozenset({"ka"}),
    "ARMENIAN": frozenset({"hy"}),
}
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_NOT_LATIN = re.compile("[\u0370-\u1dff\u2c00-\uabff\uac00-\ud7ff]")
_UMLAUTS = re.compile("[äöüß]")
_MAX_WORDS = 60
_MAX_CHARACTERS = 600
# A text needs words worth this much, and this many times as much as the second language.
_LEAST = 1.5
_MARGIN = 2.0
# A third language needs so many different words that neither of the two languages has.
_LEAST_FOREIGN = 3
_MARGIN_FOREIGN = 3.0
_SCRIPT_SHARE = 0.6
_LEAST_LETTERS = 4


def _weigh_words() -> dict[str, dict[str, float]]:
    known: dict[str, list[str]] = {}
    for language, words in _WORDS.items():
        for word in words.split():
            known.setdefault(word, []).append(language)
    return {word: dict.fromkeys(languages, 1 / len(languages)) for word, languages in known.items()}


_WEIGHTS = _weigh_words()


class Side(NamedTuple):
    """The language of one text.

    Attributes:
        language: The language, None if it is uncertain.
        named: How the language is named in messages.
    """

    language: str | None
    named: str = ""


UNCERTAIN = Side(None)


def knows_language(language: str) -> bool:
    """Return whether a language can be recognised by words.

    Args:
        language: A two-letter code.
    """
    return language in _WORDS


def recognize_language(text: str, expected: str, other: str) -> Side:
    """Recognise the language of a text that should be in one of two languages.

    A third language needs more evidence than these two.

    Args:
        text: One sentence.
        expected: The language that the text should have, a two-letter code.
        other: The second language of the corpus.

    Returns:
        The language, `UNCERTAIN` for short texts, names and numbers.

    Examples:
        >>> recognize_language("Die Datei ist nicht lesbar.", "de", "en").language
        'de'
        >>> recognize_language("Server 2.0", "de", "en").language is None
        True
    """
    text = text[:_MAX_CHARACTERS]
    if foreign := _NOT_LATIN.findall(text):
        script = unicodedata.name(foreign[0], "").partition(" ")[0]
        letters = sum(map(str.isalpha, text))
        languages = _SCRIPTS.get(script)
        enough = letters >= _LEAST_LETTERS and len(foreign) >= _SCRIPT_SHARE * letters
        if languages is not None and enough:
            return Side(expected if expected in languages else other if other in languages else script, script.title())
    scores: dict[str, float] = {}
    foreign_words = 0
    # A word counts once: a format such as %s may be repeated.
    for word in dict.fromkeys(_WORD.findall(text.lower())[:_MAX_WORDS]):
        weights = _WEIGHTS.get(word, _NO_WEIGHTS)
        for language, weight in weights.items():
            scores[language] = scores.get(language, 0.0) + weight
        foreign_words += len(word) > 1 and bool(weights) and expected not in weights and other not in weights
        if _UMLAUTS.search(word):
            scores["de"] = scores.get("de", 0.0) + 0.5
    if not scores:
        return UNCERTAIN
    best = max(scores, key=lambda language: scores[language])
    if best in (expected, other):
        rest = max((score for language, score in scores.items() if language != best), default=0.0)
        return Side(best, best) if scores[best] >= _LEAST and scores[best] >= _MARGIN * rest else UNCERTAIN
    known = max(scores.get(expected, 0.0), scores.get(other, 0.0))
    certain = foreign_words >= _LEAST_FOREIGN and foreign_words >= _MARGIN_FOREIGN * known
    return Side(best, best) if certain else UNCERTAIN


_NO_WEIGHTS: dict[str, float] = {}
