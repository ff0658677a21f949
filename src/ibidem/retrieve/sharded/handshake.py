"""The handshake of a shard and a client: version, secret, and what the shard serves.

Both sides prove that they have the secret by the HMAC-SHA256 of two random numbers, one of each side; the secret itself
is never sent. The frames that follow are neither encrypted nor signed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

from ibidem.errors import ShardError
from ibidem.retrieve.parts import plan_digest
from ibidem.retrieve.sharded.protocol import (
    CHALLENGE,
    HELLO,
    PROOF,
    REFUSED,
    WELCOME,
    Frame,
    WireError,
)

if TYPE_CHECKING:
    from ibidem.memory import Memory
    from ibidem.retrieve.parts import IndexPlan

_NUMBER = 32
_MAC = 32
_CLIENT, _SHARD = b"ibidem shard client", b"ibidem shard server"
_MOST_REASON = 400


class Channel(Protocol):
    """Sends and receives whole frames within a time limit."""

    def send(self, kind: int, payload: bytes) -> None:
        """Send a frame."""
        ...

    def receive(self, kind: int) -> Frame:
        """Receive the next frame, which must be of this kind; raise WireError otherwise."""
        ...


class RefusedShardError(ShardError):
    """Raised when a shard and a client do not fit each other, so that to try again is of no use."""


@dataclass(frozen=True)
class Description:
    """What a shard serves.

    Attributes:
        part: The number of its part, from 1.
        parts: The number of parts.
        first: The first entry of the part.
        last: The entry after the last.
        dimension: The components of a key.
        precise: Whether distances are float64.
        plan: The digest of the plan and of the indexes of all parts.
        memory: The identity of the memory; see `memory_identity`.
        name: The name of its folder.
        generation: The generation of the memory that was loaded.
    """

    part: int
    parts: int
    first: int
    last: int
    dimension: int
    precise: bool
    plan: str
    memory: str
    name: str
    generation: int

    @property
    def size(self) -> int:
        """The number of entries of the part, as they were numbered when the plan was made."""
        return self.last - self.first

    def to_bytes(self) -> bytes:
        """Encode the description."""
        return json.dumps(asdict(self), sort_keys=True).encode("utf-8")

    @classmethod
    def from_bytes(cls, content: bytes) -> Description:
        """Decode a description.

        Args:
            content: What `to_bytes` returned.

        Raises:
            WireError: It is none.
        """
        try:
            fields = json.loads(content)
            kinds = {name: type(value) for name, value in asdict(_EXAMPLE).items()}
            if {name: type(value) for name, value in fields.items()} != kinds:
                raise ValueError
            made = cls(**fields)
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise WireError("it sent a description that is none") from None
        if not (made.name + made.plan).isprintable():  # both are shown on terminals
            raise WireError("it sent a description with control characters")
        if not 1 <= made.part <= made.parts or not 0 <= made.first < made.last:
            raise WireError("it sent a description that is not possible")
        return made


_EXAMPLE = Description(1, 1, 0, 1, 1, False, "", "", "", 1)


def memory_identity(memory: Memory) -> str:
    """Return a digest that identifies a memory; all generations and copies of it have the same.

    Args:
        memory: The memory.
    """
    manifest, model = memory.manifest, memory.identity
    facts = [model.model_fingerprint, model.tokenizer_fingerprint, model.dimension, manifest.created, manifest.seed]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def describe_part(memory: Memory, plan: IndexPlan, number: int) -> Description:
    """Describe a part of a memory.

    Args:
        memory: The memory.
        plan: Its plan.
        number: The number of the part, from 1.
    """
    part = plan.parts[number - 1]
    return Description(
        part=number,
        parts=len(plan.parts),
        first=part.first,
        last=part.last,
        dimension=plan.dimension,
        precise=part.kind == "exact",
        plan=plan_digest(memory) or "",
        memory=memory_identity(memory),
        name="".join(letter if letter.isprintable() else "?" for letter in memory.path.resolve().name[:100]),
        generation=memory.generation,
    )


def greet(channel: Channel, secret: bytes | None, address: object) -> Description:
    """Make the handshake of a client.

    Args:
        channel: The connection.
        secret: The secret; None for none.
        address: The address of the shard, for messages.

    Returns:
        What the shard serves.

    Raises:
        RefusedShardError: The shard refuses this client, or has another secret.
        WireError: The other side is no shard.
    """
    mine = secrets.token_bytes(_NUMBER)
    channel.send(HELLO, mine)
    challenge = bytes(_expect(channel, CHALLENGE, address))
    if len(challenge) != _NUMBER + 1:
        raise WireError("it sent a challenge that is none")
    theirs, is_needed = challenge[:_NUMBER], bool(challenge[_NUMBER])
    if is_needed and secret is None:
        raise RefusedShardError(
            f"The shard {address} needs the secret that it was started with: set IBIDEM_SHARD_SECRET, or give "
            "--shard-secret FILE."
        )
    if secret is not None and not is_needed:
        raise RefusedShardError(
            f"The shard {address} was started without a secret, so it cannot prove that it is the right one: start it "
            "with the same secret, or use none here."
        )
    channel.send(PROOF, bytes(_MAC) if secret is None else _sign(secret, _CLIENT, mine + theirs))
    answer = bytes(_expect(channel, WELCOME, address))
    signature, content = answer[:_MAC], answer[_MAC:]
    if secret is not None and not hmac.compare_digest(signature, _sign(secret, _SHARD, mine + theirs + content)):
        raise RefusedShardError(f"The shard {address} has another secret: start both with the same one.")
    return Description.from_bytes(content)


def welcome(channel: Channel, secret: bytes | None, description: Description) -> None:
    """Make the handshake of a shard.

    Args:
        channel: The connection.
        secret: The secret; None for none.
        description: What the shard serves.

    Raises:
        WireError: The client has another secret, or is none.
    """
    theirs = bytes(channel.receive(HELLO).payload)
    if len(theirs) != _NUMBER:
        raise WireError("it sent a greeting that is none")
    mine = secrets.token_bytes(_NUMBER)
    channel.send(CHALLENGE, mine + bytes([secret is not None]))
    proof = bytes(channel.receive(PROOF).payload)
    if secret is not None and not hmac.compare_digest(proof, _sign(secret, _CLIENT, theirs + mine)):
        channel.send(REFUSED, b"the secret of this client is another one")
        raise WireError("its secret is another one")
    content = description.to_bytes()
    signature = bytes(_MAC) if secret is None else _sign(secret, _SHARD, theirs + mine + content)
    channel.send(WELCOME, signature + content)


def _expect(channel: Channel, kind: int, address: object) -> memoryview:
    """Return the payload of the next frame; raise RefusedShardError for a refusal."""
    frame = channel.receive(kind)
    if frame.kind == REFUSED:
        reason = bytes(frame.payload[:_MOST_REASON]).decode("utf-8", "replace")
        shown = "".join(letter if letter.isprintable() else " " for letter in reason)
        raise RefusedShardError(f"The shard {address} refuses this client: {shown}.")
    return frame.payload


def _sign(secret: bytes, role: bytes, content: bytes) -> bytes:
    return hmac.new(secret, role + b"\0" + content, hashlib.sha256).digest()
