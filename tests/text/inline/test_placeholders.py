"""Placeholders and identifiers found by their form."""

from __future__ import annotations

import pytest

from ibidem.text.inline.placeholders import PLACEHOLDER, PRINTF_PLACEHOLDER, find_identifiers


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Datei %s, %d, %5.2f, %-10s, %ld, %zu, %.*f", "%s %d %5.2f %-10s %ld %zu %.*f"),
        ("%1$s %2$d %(name)s %(n)d %<PRIu64> %<name>s", "%1$s %2$d %(name)s %(n)d %<PRIu64> %<name>s"),
        ("%1 von %2, %L1, %n, %@", "%1 %2 %L1 %n %@"),
        ("{name} {0} {} {0:>10} {count, number}", "{name}|{0}|{}|{0:>10}|{count, number}"),
        ("{{ user }} {% tag %} {$ x | y $}", "{{ user }}|{% tag %}|{$ x | y $}"),
        ("%{name} ${var} $VAR $1 $(x) $NAME$ #{y}", "%{name} ${var} $VAR $1 $(x) $NAME$ #{y}"),
        ('<b>x</b> <a href="a>b">y</a> a < b > c <br/>', '<b>|</b>|<a href="a>b">|</a>|<br/>'),
        ("<1>hier</1> <2/> 3 <4> a<5", "<1>|</1>|<2/>|<4>"),
        ('s!x!<a..=\\2">y</a>!', '<a..=\\2">|</a>'),
        ("&amp; &#228; &#xe4; a & b", "&amp; &#228; &#xe4;"),
        ("https://example.org/a?b=1&c=2. Und an me@example.org!", "https://example.org/a?b=1&c=2 me@example.org"),
        ("https://example.org/a?b=1&amp;c=2; da", "https://example.org/a?b=1&amp;c=2"),
        ("https://example.org/a?b=1&amp; da", "https://example.org/a?b=1 &amp;"),
        ("https://example.org/a&nbsp;da", "https://example.org/a &nbsp;"),
        ("-v, --version=X, E-Mail, Vor- und Nachname", "-v --version"),
        ("a\\nb\\tc", "\\n \\t"),
        ("100% der Zeit, 100%ige, 5 % mehr, 5%-Hürde", ""),
        ("3%s, 0x%x, 3%-5d", "%s %x %-5d"),
        ("5 $, $5.00, 3 {, } und {zwei Wörter hier}", ""),
        ("Preis: 100%%", "%%"),
        ("\U000f0001 und \x1b", "\U000f0001 \x1b"),
    ],
)
def test_placeholders_are_found_by_their_form(text: str, found: str) -> None:
    expected = found.split("|" if "|" in found else None)
    if "$ x" in found:
        expected = ["{{ user }}", "{% tag %}", "{$ x | y $}"]
    assert [match[0] for match in PLACEHOLDER.finditer(text)] == expected


def test_in_a_format_string_every_percent_sign_begins_one() -> None:
    assert [match[0] for match in PRINTF_PLACEHOLDER.finditer("100%ige % d %%")] == ["%i", "% d", "%%"]


def test_identifiers_are_found() -> None:
    text = "file_name, MAX_SIZE, __init__, _start, end_, ein Wort"
    assert [match[0] for match in find_identifiers(text)] == ["file_name", "MAX_SIZE", "__init__"]
