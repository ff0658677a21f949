"""Resource files: JSON, YAML, Android, Apple, Java and .NET."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text.language import Languages
from ibidem.text.resources import (
    read_android_document,
    read_json_document,
    read_properties_document,
    read_resx_document,
    read_strings_document,
    read_yaml_document,
)

from ..samples import filled, find_all, parse
from ..translators import shout

if TYPE_CHECKING:
    from ibidem.text.document import Document

LANGUAGES = Languages("de", "en")


def translated(document: Document) -> str:
    written, report = filled(document, shout)
    assert report.failed == []
    return written.decode()


def reasons(document: Document) -> list[str]:
    return [failure.reason for failure in filled(document, shout)[1].failed]


def test_json() -> None:
    text = '{\n\t"a": "hallo {name}", "b": ["zwei", {"c": "drei {{x}} $t(key)"}], "n": 1e3, "t": true, "leer": ""\n}'
    expected = text.replace("hallo", "HALLO").replace("zwei", "ZWEI").replace("drei", "DREI")
    assert translated(read_json_document(text.encode(), "a.json")) == expected
    icu = '{"n": "{n, plural, one {# datei} other {# dateien}}"}'
    assert reasons(read_json_document(icu.encode(), "a.json")) == [
        "an ICU message with several texts in one (plural, select) is left to a person"
    ]
    arb = '{"@@locale": "de", "a": "hallo", "@a": {"description": "bleibt"}}'
    assert translated(read_json_document(arb.encode(), "a.arb")) == arb.replace("hallo", "HALLO")
    chrome = '{"a": {"message": "hallo", "description": "bleibt"}}'
    assert translated(read_json_document(chrome.encode(), "a.json")) == chrome.replace("hallo", "HALLO")
    escaped = '{"a": "gr\\u00fc\\u00dfe"}'
    assert json.loads(translated(read_json_document(escaped.encode(), "a.json"))) == {"a": "GRÜSSE"}
    assert translated(read_json_document(escaped.encode(), "a.json")).isascii()


_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(st.characters(codec="utf-8"))),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(st.characters(codec="utf-8")), inner)),
)


@given(_values)
def test_any_json(value: object) -> None:
    def strings(one: object) -> list[str]:
        if isinstance(one, dict):
            return [text for key, inner in one.items() if not key.startswith("@") for text in strings(inner)]
        if isinstance(one, list):
            return [text for inner in one for text in strings(inner)]
        return [one] if isinstance(one, str) and any(map(str.isalpha, one)) else []

    data = json.dumps(value, ensure_ascii=False).encode()
    found = [
        str(segment.source[0]) for segment in read_json_document(data, "a.json").segments if "$t(" not in str(segment)
    ]
    if not any(key in data for key in (b"description", b"placeholders", b"$t(")):
        assert found == strings(value)


@pytest.mark.parametrize(
    "text", ['{"a": "b"', '{"a" "b"}', '["a",', '{"a": "b"}}', '"\\x"', "{'a': 1}", '{"a": "b" "c"}', "[}"]
)
def test_invalid_json(text: str) -> None:
    with pytest.raises(TextError, match=r"a\.json, line 1: not valid JSON"):
        read_json_document(text.encode(), "a.json")


def test_deep_json_and_yaml() -> None:
    with pytest.raises(TextError, match="more than 256 levels"):
        read_json_document(b"[" * 100_000, "a.json")
    with pytest.raises(TextError, match=r"more than 256 levels|nested too deeply"):
        read_yaml_document(b"[" * 5_000, "a.yaml", LANGUAGES)


YAML = """de:
  titel: mein titel # kommentar
  ja: yes
  zahl: 12
  einfach: 'das ist''s'
  doppelt: "zwei\\nzeilen %{name}"
  block: |
    erste zeile

    zweite zeile
  gefaltet: >-
    über zwei
    zeilen
  liste:
    - eins zwei
    - {a: drei vier}
  anker: &a fester wert
  verweis: *a
"""


def test_yaml() -> None:
    found = translated(read_yaml_document(YAML.encode(), "a.yml", LANGUAGES))
    before, after = yaml.safe_load(YAML)["de"], yaml.safe_load(found)["en"]
    assert after == {
        **before,
        "titel": "MEIN TITEL",
        "einfach": "DAS IST'S",
        "doppelt": "ZWEI\nZEILEN %{name}",
        "block": "ERSTE ZEILE\n\nZWEITE ZEILE\n",
        "gefaltet": "ÜBER ZWEI ZEILEN",
        "liste": ["EINS ZWEI", {"a": "DREI VIER"}],
    }
    assert "# kommentar" in found
    assert "&a fester wert" in found
    assert "'DAS IST''S'" in found
    with pytest.raises(TextError, match=r"a\.yml, line 2: not valid YAML"):
        read_yaml_document(b"a: 'x\nb: \"", "a.yml", LANGUAGES)


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_translation_is_read_back_from_yaml(target: str) -> None:
    target = f"x{' '.join(target.split())}"
    data = b"a: ein wort\nb: 'ein wort'\nc: \"ein wort\"\nd: |\n  ein wort\n"
    written, report = filled(read_yaml_document(data, "a.yml", LANGUAGES), lambda texts: [target for _ in texts])
    if not report.failed:
        assert yaml.safe_load(written) == {"a": target, "b": target, "c": target, "d": f"{target}\n"}


def test_a_reference_bomb_is_not_expanded() -> None:
    bomb = "a: &a [x y]\n" + "".join(f"b{n}: &b{n} [{', '.join(['*a'] * 9)}]\n" for n in range(50))
    assert len(read_yaml_document(bomb.encode(), "a.yml", LANGUAGES).segments) == 1


def test_android() -> None:
    text = (
        '<?xml version="1.0" encoding="utf-8"?>\n<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">\n'
        '  <string name="a">geht\\\'s <b>fett</b> %1$s &amp; mehr</string>\n'
        '  <string name="b" translatable="false">bleibt</string>\n  <string name="c">@string/a</string>\n'
        '  <string name="d">hallo <xliff:g id="n">%s</xliff:g></string>\n'
        '  <plurals name="p"><item quantity="one">%d datei</item></plurals>\n'
        '  <string-array name="s"><item>eins</item></string-array>\n</resources>\n'
    )
    expected = text
    for word in ("fett", " mehr", "hallo", "datei", "eins"):
        expected = expected.replace(word, word.upper())
    expected = expected.replace("geht\\'s", "GEHT\\'S")
    assert translated(read_android_document(text.encode(), "strings.xml")) == expected
    quotes = b'<resources><string name="a">hallo</string></resources>'
    written, _ = filled(read_android_document(quotes, "a"), lambda texts: ['it\'s "here" @x' for _ in texts])
    assert find_all(parse(written), "string")[0].text == 'it\\\'s \\"here\\" @x'
    kept = '<resources><string name="a">" eins  zwei "</string></resources>'
    assert translated(read_android_document(kept.encode(), "a")) == kept.replace("eins  zwei", "EINS  ZWEI")
    with pytest.raises(TextError, match="<other> where <resources> must be"):
        read_android_document(b"<other/>", "strings.xml")


def test_cdata_stays_cdata() -> None:
    text = '<resources><string name="a"><![CDATA[<b>hallo</b> it\\\'s]]></string></resources>'
    expected = text.replace("hallo", "HALLO").replace("it\\'s", "IT\\'S")
    assert translated(read_android_document(text.encode(), "strings.xml")) == expected
    resx = '<root><data name="a"><value><![CDATA[hallo\r\n<b>da</b>]]></value></data></root>'
    assert translated(read_resx_document(resx.encode(), "a.resx")) == resx.replace("hallo", "HALLO").replace(
        "da<", "DA<"
    )
    latin = f'<?xml version="1.0" encoding="latin-1"?>{resx}'.encode("latin-1")
    written, _ = filled(read_resx_document(latin, "a.resx"), lambda texts: [f"{text} \u20ac" for text in texts])
    assert parse(written)[0][0].text == "hallo \u20ac\n<b>da \u20ac</b>"


def test_apple_strings() -> None:
    text = '/* "k" = "v"; */\n"a b" = "hallo \\"du\\" %@\\n";\n// k\nname = "zwei";\n'
    expected = text.replace("hallo", "HALLO").replace("du", "DU").replace("zwei", "ZWEI")
    assert translated(read_strings_document(text.encode(), "L.strings")) == expected
    written, _ = filled(read_strings_document(text.encode("utf-16"), "L.strings"), shout)
    assert written.decode("utf-16") == expected
    with pytest.raises(TextError, match=r"L\.strings, line 2: not an entry of the form"):
        read_strings_document(b'"a" = "b";\n"c" = d e;\n', "L.strings")


@pytest.mark.parametrize(
    "text", ['["a",]', '{"a":}', '{"a"}', '{"a": "b",}', "[x]", "[01]", '{"a": "b"}]', "", '"a" "b"']
)
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        json.loads(text)
    with pytest.raises(TextError, match="not valid JSON"):
        read_json_document(text.encode(), "a.json")


def test_properties() -> None:
    text = "# kommentar=bleibt\n! auch\na=hallo {0}, it''s da\nb : zwei \\\n    drei\\tvier\nc d\nleer=\n"
    expected = "# kommentar=bleibt\n! auch\na=HALLO {0}, IT''S DA\nb : ZWEI DREI\\tVIER\nc D\nleer=\n"
    assert translated(read_properties_document(text.encode(), "m.properties")) == expected
    escaped = b"a=gr\\u00fc\\u00dfe\n"
    assert translated(read_properties_document(escaped, "m.properties")) == "a=GR\\u00dcSSE\n"
    written, _ = filled(read_properties_document("a=grüße\n".encode("latin-1"), "m.properties"), shout)
    assert written == b"a=GR\\u00dcSSE\n"


def test_resx() -> None:
    text = (
        '<root>\r\n  <data name="a" xml:space="preserve"><value>&amp;datei {0}</value>'
        "<comment>bleibt</comment></data>\r\n"
        '  <data name="b" type="System.Int32"><value>bleibt</value></data>\r\n'
        '  <data name="&gt;&gt;c.Name"><value>bleibt</value></data>\r\n</root>'
    )
    assert translated(read_resx_document(text.encode(), "a.resx")) == text.replace("datei", "DATEI")
