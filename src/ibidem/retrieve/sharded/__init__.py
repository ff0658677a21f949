"""Shards: parts of an index that are served by other processes, on this machine or on others."""

from __future__ import annotations

from ibidem.retrieve.sharded.address import SECRET, Address, parse_address, parse_addresses, read_secret
from ibidem.retrieve.sharded.client import (
    DEADLINE_MS,
    MISSING,
    PartState,
    RemoteParts,
    ShardSettings,
    connect_parts,
    shard_settings,
)
from ibidem.retrieve.sharded.handshake import describe_part
from ibidem.retrieve.sharded.server import ServerLimits, ShardServer, check_open

__all__ = [
    "DEADLINE_MS",
    "MISSING",
    "SECRET",
    "Address",
    "PartState",
    "RemoteParts",
    "ServerLimits",
    "ShardServer",
    "ShardSettings",
    "check_open",
    "connect_parts",
    "describe_part",
    "parse_address",
    "parse_addresses",
    "read_secret",
    "shard_settings",
]
