"""The client finds over sockets what the index finds in one process, and goes on when shards are lost or slow."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from ibidem.errors import ShardError, UsageError
from ibidem.learn import index_memory
from ibidem.memory import remove_pairs
from ibidem.retrieve import ExactIndex, LoadedPart
from ibidem.retrieve.memory_index import hide, join
from ibidem.retrieve.sharded import ServerLimits, connect_parts
from ibidem.retrieve.sharded.shared_memory import is_supported

from .conftest import ANY, connect, serving, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.memory import Memory
    from ibidem.retrieve import Found, Rows

SECRET = b"a secret of the tests"
CPU = torch.device("cpu")


def queries_of(memory: Memory, count: int = 40) -> torch.Tensor:
    keys = memory.search_keys.gather(np.arange(0, memory.entries, max(1, memory.entries // count)))
    return torch.from_numpy(keys.astype(np.float32)) + 0.01


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@dataclass(frozen=True)
class SlowPart(LoadedPart):
    """A part that sleeps before some searches."""

    pauses: tuple[float, ...] = ()
    made: tuple[list[int], ...] = ([],)

    def search(self, rows: Rows) -> Found:
        done = len(self.made[0])
        self.made[0].append(done)
        time.sleep(self.pauses[done] if done < len(self.pauses) else 0)
        return super().search(rows)


def slow(*pauses: float) -> Callable[[LoadedPart], LoadedPart]:
    return lambda part: SlowPart(part.index, part.plan, part.gone, pauses, ([],))


@pytest.mark.parametrize("k", [1, 8, 300])
def test_shards_equal_the_whole_index_bit_for_bit(divided: Memory, shards: list[str], k: int) -> None:
    base, parts = connect(divided, shards)
    queries = queries_of(divided)
    queries[3] = torch.nan
    found = base.index.search(queries, k)
    expected = ExactIndex(divided.search_keys).search(queries, k)
    assert torch.equal(found.distances, expected.distances)
    assert torch.equal(found.entries, expected.entries)
    assert (parts.steps, parts.missed_steps) == (1, 0)


def test_hidden_removed_and_sealed_entries_are_not_found(own: Memory) -> None:
    """The shards were started before the removals, and need no restart."""
    with ExitStack() as stack:
        addresses = [str(stack.enter_context(serving(own, number)).address) for number in (1, 2)]
        base, _ = connect(own, addresses)
        queries = queries_of(own)
        for step in range(3):
            remove_pairs(own, ids=[step, own.pairs - 1 - step])
            changed = own.refresh()
            hidden = changed.excluded_entries()
            found = join(base.parts(changed, hidden, CPU), changed.entries, changed.dimension).search(queries, 8)
            expected = hide(ExactIndex(changed.search_keys), hidden).search(queries, 8)
            assert torch.equal(found.distances, expected.distances)
            assert torch.equal(found.entries, expected.entries)
        sealed = own.refresh().sealed()
        expected = ExactIndex(sealed.search_keys).search(queries, 8)
        again, _ = connect(sealed, addresses)
        for one in (base, again):
            parts = one.parts(sealed, np.empty(0, np.int64), CPU)
            found = join(parts, sealed.entries, sealed.dimension).search(queries, 8)
            assert torch.equal(found.entries, expected.entries)


def test_a_lost_shard_is_left_out_and_taken_up_again(divided: Memory) -> None:
    queries = queries_of(divided)
    with serving(divided, 1) as one:
        with serving(divided, 2) as two:
            base, parts = connect(divided, [str(one.address), str(two.address)])
            complete = base.index.search(queries, 8)
        with pytest.warns(UserWarning, match="Shard 2 of .* is left out"):
            partial = base.index.search(queries, 8)
        assert (partial.entries < base.index.plan.parts[1].first).all()  # type: ignore[attr-defined]
        assert (parts.steps, parts.missed_steps) == (2, 1)
        with serving(divided, 2, str(two.address)):
            wait_for(lambda: parts.states()[1].connected == 1)
            assert torch.equal(base.index.search(queries, 8).entries, complete.entries)
    assert [(state.missed, state.lost) for state in parts.states()] == [(0, 0), (1, 1)]


def test_refuse_makes_a_missing_shard_an_error(divided: Memory) -> None:
    with serving(divided, 1) as one:
        with serving(divided, 2) as two:
            base, _ = connect(divided, [str(one.address), str(two.address)], missing="refuse")
            base.index.search(queries_of(divided), 1)
        for _ in range(2):
            with pytest.raises(ShardError, match=r"Shard 2 of .* does not answer.*--missing flag"):
                base.index.search(queries_of(divided), 1)


def test_a_late_answer_is_dropped(divided: Memory) -> None:
    """The answer to the first step arrives during later ones, for other queries, and none takes it for its own."""
    queries = queries_of(divided)
    with serving(divided, 1) as one, serving(divided, 2, change=slow(0.4)) as two:
        base, parts = connect(divided, [str(one.address), str(two.address)], deadline_ms=50)
        expected = ExactIndex(divided.search_keys).search(queries.flip(0), 8)
        begun = time.monotonic()
        with pytest.warns(UserWarning, match="no answer within 50 ms"):
            base.index.search(queries, 8)
        assert time.monotonic() - begun < 0.3
        partial = base.index.search(queries.flip(0), 8)  # the shard still owes the first answer
        assert not torch.equal(partial.entries, expected.entries)
        time.sleep(0.5)
        found = base.index.search(queries.flip(0), 8)
        assert torch.equal(found.entries, expected.entries)
        assert torch.equal(found.distances, expected.distances)
    state = parts.states()[1]
    assert (state.missed, state.late, state.lost) == (2, 1, 0)


def test_replicas_are_used_in_turn(divided: Memory) -> None:
    with serving(divided, 1) as one, serving(divided, 2) as two, serving(divided, 2) as three:
        base, _ = connect(divided, [str(server.address) for server in (one, two, three)])
        for _ in range(6):
            base.index.search(queries_of(divided), 1)
        assert (one.searches, two.searches, three.searches) == (6, 3, 3)


def test_a_replica_answers_for_one_that_is_lost_or_slow(divided: Memory) -> None:
    queries = queries_of(divided)
    expected = ExactIndex(divided.search_keys).search(queries, 8).entries
    with (
        serving(divided, 1) as one,
        serving(divided, 2, change=slow(*[0.7] * 9)) as two,
        serving(divided, 2) as three,
    ):
        addresses = [str(server.address) for server in (one, two, three)]
        base, parts = connect(divided, addresses, deadline_ms=500)
        for _ in range(3):
            assert torch.equal(base.index.search(queries, 8).entries, expected)
        assert parts.missed_steps == 0
    with serving(divided, 1) as one, serving(divided, 2) as two:
        with serving(divided, 2) as three:
            base, parts = connect(divided, [str(server.address) for server in (one, two, three)])
            base.index.search(queries, 8)
        for _ in range(4):
            assert torch.equal(base.index.search(queries, 8).entries, expected)
        assert parts.missed_steps == 0


def test_a_part_without_a_shard_is_named_at_the_start(divided: Memory, shards: list[str]) -> None:
    with pytest.raises(ShardError, match="No shard serves part 2 of 2"):
        connect(divided, shards[:1])
    with pytest.raises(ShardError, match=r"part 2 of 2.*127\.0\.0\.1:1 cannot be used: no program listens there"):
        connect(divided, [shards[0], "127.0.0.1:1"])


def test_a_memory_without_shards_is_an_error(learnt: Memory) -> None:
    with pytest.raises(UsageError, match=r"ibidem index -m .* --shards N"):
        connect_parts(learnt, settings_of([ANY]))


def test_shards_of_another_plan_are_refused(own: Memory, shards: list[str]) -> None:
    other = index_memory(own, "exact", shards=2)[0]
    connect(other, shards)[1].close()  # the same plan of the same entries
    changed = index_memory(own, "exact", shards=3)[0]
    with pytest.raises(ShardError, match=r"serves other shards of .* restart `ibidem shard`"):
        connect(changed, shards)


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"memory": "0" * 64, "name": "law"}, r"serves another memory \(law\)"),
        ({"plan": "0" * 64}, "serves other shards of"),
        ({"first": 1}, "describes its part in another way"),
        ({"part": 3, "parts": 3}, "describes its part in another way"),
        ({"precise": False}, "describes its part in another way"),
    ],
)
def test_a_shard_that_does_not_fit_is_refused_by_name(
    divided: Memory, shards: list[str], described: dict[str, object], message: str
) -> None:
    with (
        serving(divided, 1, described=described) as wrong,
        pytest.raises(ShardError, match=f"{wrong.address} {message}"),
    ):
        connect(divided, [*shards, str(wrong.address)])


def test_secrets(divided: Memory) -> None:
    with (
        serving(divided, 1, secret=SECRET) as one,
        serving(divided, 2, secret=SECRET) as two,
        serving(divided, 2) as opened,
    ):
        addresses = [str(one.address), str(two.address)]
        base, _ = connect(divided, addresses, secret=SECRET)
        assert len(base.index.search(queries_of(divided), 1).entries)
        with pytest.raises(ShardError, match="refuses this client: the secret of this client is another one"):
            connect(divided, addresses, secret=b"another secret of the tests")
        with pytest.raises(ShardError, match="needs the secret"):
            connect(divided, addresses)
        with pytest.raises(ShardError, match="without a secret"):
            connect(divided, [str(one.address), str(opened.address)], secret=SECRET)


def test_an_address_that_others_reach_needs_a_secret(divided: Memory) -> None:
    with pytest.raises(UsageError, match="IBIDEM_SHARD_SECRET"), serving(divided, 1, "0.0.0.0:0"):
        pass
    with serving(divided, 1, "0.0.0.0:0", secret=SECRET) as server:
        assert server.address.port


def test_unix_sockets(divided: Memory, tmp_path: Path) -> None:
    addresses = [f"unix:{tmp_path}/shard-{number}" for number in (1, 2)]
    (tmp_path / "shard-1").touch()
    with pytest.raises(UsageError, match="another file"), serving(divided, 1, addresses[0]):
        pass
    (tmp_path / "shard-1").unlink()
    with serving(divided, 1, addresses[0]), serving(divided, 2, addresses[1]):
        assert (tmp_path / "shard-1").stat().st_mode & 0o077 == 0
        base, parts = connect(divided, addresses)
        assert all(replicas[0].shares_memory == is_supported() for replicas in parts._replicas)
        expected = ExactIndex(divided.search_keys)
        for k in (8, 300, 1000):  # 1000 neighbours of 800 queries do not fit into the shared memory
            queries = queries_of(divided, 800 if k > 300 else 40)
            found = base.index.search(queries, k)
            assert torch.equal(found.entries, expected.search(queries, k).entries)
        hidden = np.arange(0, divided.entries, 2)
        for _ in range(2):
            found = hide(base.index, hidden).search(queries_of(divided), 8)
            assert torch.equal(found.entries, hide(expected, hidden).search(queries_of(divided), 8).entries)
        assert parts.missed_steps == 0
        with pytest.raises(UsageError, match="Another program listens"), serving(divided, 1, addresses[0]):
            pass
    assert not (tmp_path / "shard-1").exists()


def test_a_port_in_use_is_an_error(divided: Memory, shards: list[str]) -> None:
    with pytest.raises(UsageError, match="Another program listens on"), serving(divided, 1, shards[0]):
        pass


def test_more_clients_than_allowed_are_refused(divided: Memory) -> None:
    limits = ServerLimits(connections=2)
    with serving(divided, 1, limits=limits) as one, serving(divided, 2, limits=limits) as two:
        addresses = [str(one.address), str(two.address)]
        clients = [connect(divided, addresses) for _ in range(2)]
        with pytest.raises(ShardError, match="it has 2 clients"):
            connect(divided, addresses)
        clients[0][1].close()
        wait_for(lambda: len(one._connected) == 1 and len(two._connected) == 1)
        connect(divided, addresses)[1].close()


def test_too_many_neighbours_are_an_error(divided: Memory, shards: list[str]) -> None:
    base, _ = connect(divided, shards)
    with pytest.raises(UsageError, match="at most 1,024 neighbours"):
        base.index.search(queries_of(divided), 1025)


def test_a_lost_shard_that_shared_memory_is_taken_up_again(divided: Memory, tmp_path: Path) -> None:
    addresses = [f"unix:{tmp_path}/shard-{number}" for number in (1, 2)]
    before = len(list(Path("/proc/self/fd").iterdir()))
    with serving(divided, 1, addresses[0]):
        with serving(divided, 2, addresses[1]):
            base, parts = connect(divided, addresses)
            complete = base.index.search(queries_of(divided), 8)
        with pytest.warns(UserWarning, match="Shard 2 of"):
            base.index.search(queries_of(divided), 8)
        with serving(divided, 2, addresses[1]):
            wait_for(lambda: parts.states()[1].connected == 1)
            assert torch.equal(base.index.search(queries_of(divided), 8).entries, complete.entries)
        parts.close()
    wait_for(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before)


def test_a_late_answer_in_shared_memory_is_dropped(divided: Memory, tmp_path: Path) -> None:
    addresses = [f"unix:{tmp_path}/shard-{number}" for number in (1, 2)]
    queries = queries_of(divided)
    with serving(divided, 1, addresses[0]), serving(divided, 2, addresses[1], change=slow(0.4)):
        base, parts = connect(divided, addresses, deadline_ms=50)
        with pytest.warns(UserWarning, match="no answer within 50 ms"):
            base.index.search(queries, 8)
        time.sleep(0.5)
        found = base.index.search(queries.flip(0), 8)
        assert torch.equal(found.entries, ExactIndex(divided.search_keys).search(queries.flip(0), 8).entries)
    assert (parts.states()[1].missed, parts.states()[1].late) == (1, 1)
