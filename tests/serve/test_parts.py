"""Layouts, keys, rates and figures."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.serve import Limits
from ibidem.serve.auth import KeyStore, RateLimiter, add_key, hash_key, read_keys
from ibidem.serve.memory_writer import file_name
from ibidem.serve.metrics import Metrics
from ibidem.serve.schemas import MemoryInfo
from ibidem.serve.service import split_lines

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = st.text(st.sampled_from("ab \t\n\r\x0b\x85\u2028ß😀"), max_size=30)


@given(TEXTS)
def test_a_layout_filled_with_its_own_lines_is_the_text(text: str) -> None:
    layout = split_lines(text)
    filled, starts = layout.fill(layout.lines)
    assert filled == text
    assert all(line == line.strip() and line and not {"\n", "\r"} & set(line) for line in layout.lines)
    assert [text[start : start + len(line)] for start, line in zip(starts, layout.lines, strict=True)] == list(
        layout.lines
    )


def test_lines_keep_their_place() -> None:
    layout = split_lines("  eins\r\n\r\n\tzwei \n")
    assert layout.lines == ("eins", "zwei")
    assert layout.fill(["1", "22"]) == ("  1\r\n\r\n\t22 \n", [2, 8])


def test_a_key_opens_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    first, second = add_key(file, "for Weblate\nand more"), add_key(file, "for me")
    assert first != second
    content = file.read_text()
    assert first not in content
    assert second not in content
    assert content.count("\n") == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    keys = KeyStore(read_keys(file))
    assert (keys.find(first), keys.find(second)) == (0, 1)
    assert keys.find(first[:-1]) is keys.find("") is keys.find("\ud800") is None
    assert keys.find(hash_key(first)) is None, "a hash is no key"


def test_a_file_of_something_else_is_not_taken_for_keys(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("# comment\n\nsha256:" + "0" * 64 + "\nmy secret\n")
    with pytest.raises(UsageError, match="line 4"):
        add_key(file, "")
    assert file.read_text().endswith("my secret\n")
    with pytest.raises(UsageError, match="cannot be read"):
        read_keys(tmp_path / "missing")


def test_rates_refill_and_say_when() -> None:
    now = 0.0
    rates = RateLimiter(rate=2.0, burst=3, clock=lambda: now)
    assert [rates.take("a") for _ in range(3)] == [0, 0, 0]
    assert rates.take("a") == pytest.approx(0.5)
    assert rates.take("b") == 0
    now = 0.25
    assert rates.take("a") == pytest.approx(0.25)
    now = 0.5
    assert rates.take("a") == 0
    now = 1000.0
    assert [rates.take("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_rates_forget_those_seen_long_ago() -> None:
    rates = RateLimiter(rate=1e-9, burst=1, clock=lambda: 0.0)
    assert rates.take("first") == 0
    assert rates.take("first") > 0
    for number in range(20_000):
        rates.take(number)
    assert len(rates._buckets) == 10_000


def test_figures_are_what_prometheus_reads() -> None:
    metrics = Metrics()
    metrics.count_request("/translate", 200, 0.02)
    metrics.count_request("/translate", 503, 99.0)
    metrics.count_batch(32, 700, 0.5)
    metrics.count_learnt(2)
    memory = MemoryInfo(name='a"b', pairs=3, entries=20, weight=1.0, learns=True)
    text = metrics.render(80, [memory]).decode()
    lines = text.splitlines()
    assert text.endswith("\n")
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == {
        *("ibidem_requests_total", "ibidem_request_seconds", "ibidem_batch_lines", "ibidem_characters_total"),
        *("ibidem_decoding_seconds_total", "ibidem_learnt_pairs_total", "ibidem_waiting_characters"),
        *("ibidem_memory_pairs", "ibidem_memory_entries"),
    }
    assert 'ibidem_requests_total{code="503",path="/translate"} 1.0' in lines
    assert 'ibidem_request_seconds_bucket{le="0.025",path="/translate"} 1.0' in lines
    assert 'ibidem_request_seconds_bucket{le="30.0",path="/translate"} 1.0' in lines
    assert 'ibidem_request_seconds_bucket{le="+Inf",path="/translate"} 2.0' in lines
    assert 'ibidem_batch_lines_bucket{le="16.0"} 0.0' in lines
    assert 'ibidem_batch_lines_bucket{le="32.0"} 1.0' in lines
    assert "ibidem_characters_total 700.0" in lines
    assert "ibidem_learnt_pairs_total 2.0" in lines
    assert "ibidem_waiting_characters 80.0" in lines
    assert 'ibidem_memory_pairs{memory="a\\"b"} 3.0' in lines
    assert metrics.characters == 700
    assert Metrics().characters == 0, "each server has its own registry"


@pytest.mark.parametrize("origin", ["it.tmx", "/srv/secret/it.tmx", "C:\\Users\\me\\it.tmx", "../it.tmx"])
def test_where_files_lie_is_not_told(origin: str) -> None:
    assert file_name(origin) == "it.tmx"


def test_limits_are_above_nothing() -> None:
    with pytest.raises(UsageError, match="characters"):
        Limits(characters=0)
