"""Counters of a server for Prometheus, and the route that exposes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ibidem.retrieve.sharded import PartState
    from ibidem.serve.replication import FollowState
    from ibidem.serve.schemas import MemoryInfo
    from ibidem.serve.service import Service

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LINES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

# The library would add a series with the time of creation to every counter and histogram.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Counts the requests and the work of one server; any thread may call the methods."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("ibidem_requests", "Requests by path and status", ["path", "code"], registry=registry)
        self._seconds = Histogram(
            "ibidem_request_seconds", "Duration of requests by path", ["path"], buckets=_SECONDS, registry=registry
        )
        self._batches = Histogram("ibidem_batch_lines", "Lines of a batch", buckets=_LINES, registry=registry)
        self._characters = Counter("ibidem_characters", "Translated characters", registry=registry)
        self._decoding = Counter("ibidem_decoding_seconds", "Seconds of decoding", registry=registry)
        self._learnt = Counter("ibidem_learnt_pairs", "Pairs added to memories", registry=registry)
        self._waiting = Gauge("ibidem_waiting_characters", "Characters that wait for the decoder", registry=registry)
        self._pairs = Gauge("ibidem_memory_pairs", "Pairs of a memory", ["memory"], registry=registry)
        self._entries = Gauge("ibidem_memory_entries", "Entries of a memory", ["memory"], registry=registry)

        name = ["memory"]
        self._generation = Gauge("ibidem_memory_generation", "Generation of a memory", name, registry=registry)
        self._behind = Gauge(
            "ibidem_follow_seconds_behind",
            "Seconds since a memory of a read-only server was up to date",
            name,
            registry=registry,
        )
        self._stale = Gauge(
            "ibidem_follow_stale", "1 if a memory is longer behind than stale_seconds", name, registry=registry
        )
        self._missing = Gauge(
            "ibidem_follow_missing_bytes", "Bytes that the update in progress still needs", name, registry=registry
        )
        self._received = Gauge(
            "ibidem_follow_received_bytes", "Bytes received from the source", name, registry=registry
        )
        self._failures = Gauge("ibidem_follow_failures", "Failed updates since the start", name, registry=registry)
        self._refused = Gauge(
            "ibidem_follow_refused_files", "Files refused because of their checksum", name, registry=registry
        )

        shard = ["memory", "shard"]
        self._shard_up = Gauge("ibidem_shard_connections", "Connections to a shard", shard, registry=registry)
        self._shard_missed = Gauge(
            "ibidem_shard_missed_steps", "Decoding steps without an answer of a shard in time", shard, registry=registry
        )
        self._shard_late = Gauge(
            "ibidem_shard_late_answers", "Answers of a shard that arrived after their step", shard, registry=registry
        )
        self._shard_lost = Gauge("ibidem_shard_lost", "Lost connections to a shard", shard, registry=registry)

    @property
    def characters(self) -> int:
        """Number of translated characters."""
        return int(self._registry.get_sample_value("ibidem_characters_total") or 0)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a response.

        Args:
            path: Path as the route declares it, so that clients cannot create labels.
            status: HTTP status.
            seconds: Duration of the request.
        """
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_batch(self, lines: int, characters: int, seconds: float) -> None:
        """Count a decoded batch.

        Args:
            lines: Lines of the batch.
            characters: Characters of these lines.
            seconds: Duration of decoding.
        """
        self._batches.observe(lines)
        self._characters.inc(characters)
        self._decoding.inc(seconds)

    def count_learnt(self, pairs: int) -> None:
        """Count pairs that were added to a memory.

        Args:
            pairs: Number of new pairs.
        """
        self._learnt.inc(pairs)

    def set_followed(self, states: Iterable[FollowState], stale_seconds: float) -> None:
        """Set the gauges of a read-only server.

        Args:
            states: The state of each memory.
            stale_seconds: The limit of this name.
        """
        for state in states:
            values = (
                (self._generation, state.generation),
                (self._behind, state.seconds),
                (self._stale, state.seconds > stale_seconds),
                (self._missing, state.missing),
                (self._received, state.received),
                (self._failures, state.failures),
                (self._refused, state.refused),
            )
            for gauge, value in values:
                gauge.labels(state.memory).set(value)

    def set_shards(self, memory: str, states: Iterable[PartState]) -> None:
        """Set the gauges of the shards of a memory.

        Args:
            memory: The name of the memory.
            states: The state of each shard.
        """
        for state in states:
            for gauge, value in (
                (self._shard_up, state.connected),
                (self._shard_missed, state.missed),
                (self._shard_late, state.late),
                (self._shard_lost, state.lost),
            ):
                gauge.labels(memory, str(state.part)).set(value)

    def render(self, waiting_characters: int, memories: Iterable[MemoryInfo]) -> bytes:
        """Return all metrics in Prometheus' text format.

        Args:
            waiting_characters: Characters that wait for the decoder now.
            memories: Current sizes of the memories.

        Returns:
            Text in UTF-8.
        """
        self._waiting.set(waiting_characters)
        for gauge in (self._pairs, self._entries):
            gauge.clear()  # memories may have been renamed or deleted
        for memory in memories:
            self._pairs.labels(memory.name).set(memory.pairs)
            self._entries.labels(memory.name).set(memory.entries)
        return generate_latest(self._registry)


def make_routes(service: Service) -> APIRouter:
    """Create the route `/metrics`.

    Args:
        service: The service whose metrics are sent.
    """
    router = APIRouter(tags=["Metrics"])

    @router.get("/metrics", response_class=Response, summary="Metrics in Prometheus' text format")
    async def metrics(request: Request) -> Response:
        """Counts and times; they contain no text of any request."""
        service.authenticator.check(request, scope="admin")
        memories = await service.run_in_thread(service.writers.list_memories)
        if service.followers is not None:
            service.metrics.set_followed(service.followers.states(), service.limits.stale_seconds)
        for name, loaded in service.engine.memories.items():
            service.metrics.set_shards(name, loaded.shard_states)
        content = service.metrics.render(service.batcher.waiting_characters, memories)
        return Response(content, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router
