"""Translation with shards: the native step, the retrieval policy, added and removed pairs, and new shards."""

from __future__ import annotations

import shutil
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.combine import FixedCombiner
from ibidem.decode import SearchSettings, Translator
from ibidem.decode.scorer import NativeScorer
from ibidem.errors import UsageError
from ibidem.learn import MemoryWriter, index_memory
from ibidem.memory import Memory, remove_pairs
from ibidem.native import native
from ibidem.retrieve import LoadedPart, load_part, read_plan
from ibidem.retrieve.sharded import ShardServer, ShardSettings, describe_part, parse_address
from ibidem.text import Pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ibidem.model import BaseModel

needs_native = pytest.mark.skipif(native() is None, reason="no native library")
SETTINGS = SearchSettings(beam=4, max_length_ratio=0, max_length_extra=14)


@contextmanager
def serving(memory: Memory, *addresses: str) -> Iterator[ShardSettings]:
    """Serve all parts of a memory; yields where they are, with a deadline that a busy machine keeps."""
    plan = read_plan(memory)
    assert plan is not None
    given = addresses or ["127.0.0.1:0"] * len(plan.parts)
    with ExitStack() as stack:
        found = []
        for number, address in enumerate(given, start=1):
            part = load_part(memory, plan, number, threads=1)
            server = ShardServer(part, describe_part(memory, plan, number), parse_address(address))
            thread = threading.Thread(target=server.run)
            thread.start()
            stack.callback(thread.join, 5)
            stack.callback(server.close)
            found.append(str(server.address))
        yield ShardSettings(tuple(map(parse_address, found)), deadline_ms=20_000)


@pytest.fixture
def divided(learnt: Memory, tmp_path: Path) -> Memory:
    """The learnt memory with two shards, native ones where there is a library."""
    memory = Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))
    return index_memory(memory, "exact" if native() is None else "native", shards=2, threads=1)[0]


def texts_of(sentences: list[Any]) -> list[str]:
    return [sentence.german for sentence in sentences[:12]]


def test_shards_translate_as_the_same_parts_in_this_process(
    tiny: BaseModel, divided: Memory, sentences: list[Any]
) -> None:
    lines = texts_of(sentences)
    with serving(divided) as addresses:
        local = Translator(tiny, divided, settings=SETTINGS)
        remote = Translator(tiny, divided, settings=SETTINGS, shards=addresses)
        assert isinstance(remote.scorer, NativeScorer) == (native() is not None)
        assert remote.alternatives(lines, 3) == local.alternatives(lines, 3)
        explained = zip(remote.explain(lines[:3]), local.explain(lines[:3]), strict=True)
        assert all(one == other for one, other in explained)
        states = remote.loaded_memories[0].shard_states
        assert [state.connected for state in states] == [1, 1]
        assert not any(state.missed for state in states)
        assert local.loaded_memories[0].shard_states == ()


@needs_native
def test_the_retrieval_policy_holds_in_shards(
    tiny: BaseModel, divided: Memory, sentences: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that skip retrieval and reduced searches reach the shards as such, with the hypotheses of a sentence."""
    seen: set[int] = set()
    groups: set[int] = set()
    search = LoadedPart.search

    def watch(part: LoadedPart, rows: Any) -> Any:
        seen.update(rows.modes.tolist())
        groups.add(rows.group_size)
        found = search(part, rows)
        assert (found.entries[rows.modes == 0] == -1).all()
        return found

    monkeypatch.setattr(LoadedPart, "search", watch)
    with serving(divided) as addresses:
        Translator(tiny, divided, settings=SETTINGS, shards=addresses).translate(texts_of(sentences))
        assert seen == {0, 1, 2}
        assert groups == {SETTINGS.beam}
        seen.clear()
        everything = SearchSettings(beam=4, max_length_ratio=0, max_length_extra=14, retrieval_margin=float("inf"))
        Translator(tiny, divided, settings=everything, shards=addresses).translate(texts_of(sentences))
        assert seen == {2}


def test_added_and_removed_pairs_count_at_once(tiny: BaseModel, divided: Memory, sentences: list[Any]) -> None:
    lines = texts_of(sentences)
    combiner = FixedCombiner(4, 0.95, 1e-2)
    with serving(divided) as addresses:
        remote = Translator(tiny, divided, settings=SETTINGS, combiner=combiner, shards=addresses)
        local = Translator(tiny, divided, settings=SETTINGS, combiner=combiner)
        assert remote.translate(lines) == local.translate(lines)
        MemoryWriter(divided, tiny).add([Pair(lines[0], "Something else.", "test", 1)])
        added = remote.translate(lines)
        assert added == local.translate(lines)
        remove_pairs(divided, ids=[0, 5, 9])
        removed = remote.translate(lines)
        assert removed == local.translate(lines)
        divided.refresh().sealed()
        assert remote.translate(lines) == local.translate(lines)
        assert remote.loaded_memories[0].shard_states[0].lost == 0, "no connection was opened again"


def test_new_shards_are_used_after_a_reload(tiny: BaseModel, divided: Memory, sentences: list[Any]) -> None:
    lines = texts_of(sentences)[:3]
    with serving(divided) as addresses:
        remote = Translator(tiny, divided, settings=SETTINGS, shards=addresses)
        before = remote.translate(lines)
        base = remote.loaded_memories[0]._base.index
        remote.loaded_memories[0].reload()
        remote.translate(lines)
        assert remote.loaded_memories[0]._base.index.searcher is base.searcher  # type: ignore[attr-defined]
    newer = index_memory(divided.refresh(), "exact", shards=2)[0]
    with serving(newer, *map(str, addresses.addresses)):
        remote.loaded_memories[0].reload()
        assert remote.translate(lines)
        assert remote.loaded_memories[0]._base.index.searcher is not base.searcher  # type: ignore[attr-defined]
        assert [state.missed for state in remote.loaded_memories[0].shard_states] == [0, 0]
    assert before


def test_shards_belong_to_one_memory(tiny: BaseModel, divided: Memory, learnt: Memory, tmp_path: Path) -> None:
    with serving(divided) as addresses:
        both = Translator(tiny, [divided, learnt], settings=SETTINGS, shards=addresses)
        assert [len(loaded.shard_states) for loaded in both.loaded_memories] == [2, 0]
        copy = Memory.open(shutil.copytree(divided.path, tmp_path / "copy"))
        with pytest.raises(UsageError, match="give only one"):
            Translator(tiny, [divided, copy], shards=addresses)
        with pytest.raises(UsageError, match="No memory has shards"):
            Translator(tiny, learnt, shards=addresses)
        with pytest.raises(UsageError, match="No memory has shards"):
            Translator(tiny, shards=addresses)
