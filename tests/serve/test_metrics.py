"""Metrics in Prometheus' format."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ibidem.retrieve.sharded import PartState
from ibidem.serve.metrics import Metrics
from ibidem.serve.schemas import MemoryInfo

if TYPE_CHECKING:
    from .conftest import Client


def test_metrics_format() -> None:
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
        *("ibidem_memory_pairs", "ibidem_memory_entries", "ibidem_memory_generation"),
        *("ibidem_follow_seconds_behind", "ibidem_follow_stale", "ibidem_follow_missing_bytes"),
        *("ibidem_shard_connections", "ibidem_shard_missed_steps", "ibidem_shard_late_answers", "ibidem_shard_lost"),
        *("ibidem_follow_received_bytes", "ibidem_follow_failures", "ibidem_follow_refused_files"),
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


def test_clients_cannot_create_labels(client: Client) -> None:
    client.get("/made-up-by-me")
    client.send("BREW", "/translate")
    figures = client.get("/metrics")
    assert figures.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "made-up" not in figures.body.decode()
    for line in figures.body.decode().splitlines():
        assert re.fullmatch(r'# TYPE \w+ \w+|# HELP \w+ [\w -]+|\w+(\{(\w+="[^"]*",?)+\})? [\d.e+-]+', line), line


def test_shards_have_gauges() -> None:
    metrics = Metrics()
    metrics.set_shards("it", [PartState(1, connected=2), PartState(2, missed=7, late=3, lost=1)])
    lines = metrics.render(0, []).decode().splitlines()
    assert 'ibidem_shard_connections{memory="it",shard="1"} 2.0' in lines
    assert 'ibidem_shard_missed_steps{memory="it",shard="2"} 7.0' in lines
    assert 'ibidem_shard_late_answers{memory="it",shard="2"} 3.0' in lines
    assert 'ibidem_shard_lost{memory="it",shard="2"} 1.0' in lines
