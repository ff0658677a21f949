"""English names of languages."""

from __future__ import annotations

_NAMES = """
af:Afrikaans sq:Albanian am:Amharic ar:Arabic hy:Armenian as:Assamese az:Azerbaijani eu:Basque be:Belarusian bn:Bengali
bs:Bosnian bg:Bulgarian my:Burmese ca:Catalan zh:Chinese hr:Croatian cs:Czech da:Danish nl:Dutch en:English eo:Esperanto
et:Estonian fi:Finnish fr:French gl:Galician ka:Georgian de:German el:Greek gu:Gujarati he:Hebrew hi:Hindi hu:Hungarian
is:Icelandic id:Indonesian ga:Irish it:Italian ja:Japanese kn:Kannada kk:Kazakh km:Khmer ko:Korean ky:Kyrgyz lo:Lao
la:Latin lv:Latvian lt:Lithuanian lb:Luxembourgish mk:Macedonian ms:Malay ml:Malayalam mt:Maltese mr:Marathi
mn:Mongolian ne:Nepali no:Norwegian nb:Norwegian nn:Norwegian or:Odia fa:Persian pl:Polish pt:Portuguese pa:Punjabi
ro:Romanian
ru:Russian sr:Serbian si:Sinhala sk:Slovak sl:Slovenian so:Somali es:Spanish sw:Swahili sv:Swedish tl:Tagalog tg:Tajik
ta:Tamil te:Telugu th:Thai tr:Turkish tk:Turkmen uk:Ukrainian ur:Urdu ug:Uyghur uz:Uzbek vi:Vietnamese cy:Welsh xh:Xhosa
yo:Yoruba zu:Zulu
"""
_BY_CODE = dict(pair.split(":") for pair in _NAMES.split())


def language_name(code: str) -> str:
    """The English name of a language, or its code where that is not known."""
    return _BY_CODE.get(code, code)
