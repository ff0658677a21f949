"""Whatever bytes arrive, the parsers give arrays of the announced shapes or a `WireError`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.retrieve import Found, Rows
from ibidem.retrieve.sharded import parse_address, parse_addresses
from ibidem.retrieve.sharded.handshake import Description
from ibidem.retrieve.sharded.protocol import (
    FOUND,
    SEARCH,
    FrameReader,
    WireError,
    decode_found,
    decode_hidden,
    decode_search,
    encode_found,
    encode_header,
    encode_search,
)

MOST = 4096


def read_all(content: bytes, steps: list[int]) -> list[tuple[int, bytes]]:
    """Read frames from bytes that arrive in pieces of these sizes."""
    reader, frames, place = FrameReader(MOST), [], 0
    sizes = iter(steps)
    while place < len(content):
        room = reader.place()
        taken = min(len(room), next(sizes, 1 << 20), len(content) - place)
        room[:taken] = content[place : place + taken]
        place += taken
        if (frame := reader.add(taken)) is not None:
            frames.append((frame.kind, bytes(frame.payload)))
    return frames


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(1, 9), st.binary(max_size=300)), max_size=5), st.lists(st.integers(1, 90)))
def test_frames_are_the_same_in_any_pieces(frames: list[tuple[int, bytes]], steps: list[int]) -> None:
    content = b"".join(encode_header(kind, len(payload)) + payload for kind, payload in frames)
    assert read_all(content, steps) == frames


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200), st.data())
def test_changed_frames_are_frames_or_errors(payload: bytes, data: st.DataObject) -> None:
    content = bytearray(encode_header(SEARCH, len(payload)) + payload)
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        frames = read_all(bytes(content), [7, 32, 1, 100])
    except WireError:
        return
    assert all(len(found) <= MOST for _, found in frames)


def changed(content: bytes, data: st.DataObject) -> memoryview:
    """Change, cut or extend some bytes."""
    given = bytearray(content)
    for _ in range(data.draw(st.integers(0, 5))):
        given[data.draw(st.integers(0, min(len(given), 60) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(given)))
    return memoryview(bytes(given[:cut] if data.draw(st.booleans()) else given + data.draw(st.binary(max_size=8))))


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 6), st.integers(1, 5), st.data())
def test_searches_are_read_as_they_were_sent_or_refused(rows: int, k: int, data: st.DataObject) -> None:
    queries = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
    given_rows = Rows(queries, np.arange(rows, dtype=np.uint8) % 3, 1, k)
    content = b"".join(encode_search(given_rows))
    read = decode_search(memoryview(content), 4)
    np.testing.assert_array_equal(read.queries, queries)
    np.testing.assert_array_equal(read.modes, given_rows.modes)
    assert (read.group_size, read.k) == (1, k)
    try:
        other = decode_search(changed(content, data), 4)
    except WireError:
        return
    assert other.queries.shape == (len(other.modes), 4)
    assert other.modes.max() <= 2


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 6), st.integers(1, 5), st.booleans(), st.data())
def test_answers_are_read_as_they_were_sent_or_refused(rows: int, k: int, precise: bool, data: st.DataObject) -> None:
    random = np.random.default_rng(rows * k)
    distances = np.sort(random.random((rows, k)), axis=1).astype(np.float64 if precise else np.float32)
    entries = random.integers(0, 50, (rows, k))
    distances[0, -1], entries[0, -1] = np.inf, -1
    content = b"".join(encode_found(Found(distances, entries)))
    read = decode_found(memoryview(content), rows, k, 50, precise=precise)
    np.testing.assert_array_equal(read.distances, distances)
    np.testing.assert_array_equal(read.entries, entries)
    try:
        other = decode_found(changed(content, data), rows, k, 50, precise=precise)
    except WireError:
        return
    assert other.entries.shape == other.distances.shape == (rows, k)
    assert ((other.entries >= -1) & (other.entries < 50)).all()
    assert (other.distances >= 0).all()


WRONG = {
    "an entry beyond the part": ([0.0, 1.0], [3, 50]),
    "a negative entry": ([0.0, 1.0], [3, -2]),
    "no number": ([0.0, np.nan], [3, 4]),
    "a negative distance": ([-1.0, 1.0], [3, 4]),
    "an entry at an infinite distance": ([0.0, np.inf], [3, 4]),
    "a distance without an entry": ([0.0, 1.0], [3, -1]),
    "another order": ([1.0, 0.0], [3, 4]),
}


@pytest.mark.parametrize(("distances", "entries"), WRONG.values(), ids=WRONG.keys())
def test_impossible_neighbours_are_refused(distances: list[float], entries: list[int]) -> None:
    found = Found(np.array([distances], np.float32), np.array([entries]))
    with pytest.raises(WireError):
        decode_found(memoryview(b"".join(encode_found(found))), 1, 2, 50, precise=False)


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_hidden_entries_are_ascending_or_refused(content: bytes) -> None:
    try:
        entries = decode_hidden(memoryview(content), 1 << 40)
    except WireError:
        return
    assert (np.diff(entries) > 0).all()
    assert entries[0] >= 0


def test_descriptions_are_checked() -> None:
    good = Description(1, 2, 0, 10, 4, True, "plan", "memory", "name", 3)
    assert Description.from_bytes(good.to_bytes()) == good
    for name, value in (
        ("part", 0),
        ("part", 3),
        ("last", 0),
        ("part", "1"),
        ("precise", 1),
        ("extra", 1),
        ("plan", None),
        ("name", "a\x1b[2J"),
    ):
        fields = json.loads(good.to_bytes()) | {name: value}
        with pytest.raises(WireError):
            Description.from_bytes(json.dumps(fields).encode())
    for content in (b"", b"[]", b"[" * 100_000, b"\xff", b"3", good.to_bytes()[:-1]):
        with pytest.raises(WireError):
            Description.from_bytes(content)


@pytest.mark.parametrize(
    "text",
    ["", "host", "host:", ":1", "host:x", "host:65536", "::1:80", "[x:80", "unix:", "a:٣", "a..b:1", "a" * 64 + ":1"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="address"):
        parse_address(text)
    with pytest.raises(UsageError):
        parse_addresses(f"localhost:1,{text}" if text else ",")


def test_frames_beyond_the_limit_are_refused_by_their_header() -> None:
    with pytest.raises(WireError, match="announced"):
        read_all(encode_header(FOUND, MOST + 1), [])
