"""Whole frames over a socket, each within a time limit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ibidem.retrieve.sharded.protocol import REFUSED, Frame, FrameReader, WireError, encode_header

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence


class SocketChannel:
    """Sends and receives frames over a blocking socket.

    Args:
        connected: The socket.
        most: The most bytes of a payload that is received.
        seconds: The most time of a frame, and of each wait.

    Attributes:
        reader: What puts the frames together.
        deadline: When the next frames must have been sent or received, by `time.monotonic`; None: each has `seconds`.
    """

    def __init__(self, connected: socket.socket, most: int, seconds: float) -> None:
        self.socket = connected
        self.reader = FrameReader(most)
        self.deadline: float | None = None
        self._seconds = seconds

    def send(self, kind: int, payload: bytes) -> None:
        """Send a frame.

        Args:
            kind: Its kind.
            payload: Its content.

        Raises:
            OSError: The other side does not take it in time, or is gone.
        """
        self.send_pieces(kind, [payload])

    def send_pieces(self, kind: int, pieces: Sequence[bytes | memoryview], request: int = 0, hidden: int = 0) -> None:
        """Send a frame whose payload is in pieces.

        Args:
            kind: Its kind.
            pieces: Its content, at most 7 pieces.
            request: The number of the request.
            hidden: The digest of the hidden entries.

        Raises:
            OSError: The other side does not take it in time, or is gone.
        """
        size = sum(len(piece) for piece in pieces)
        left = [memoryview(encode_header(kind, size, request, hidden)), *(memoryview(piece) for piece in pieces)]
        end = self._end()
        while left:
            self.socket.settimeout(max(1e-3, end - time.monotonic()))
            left = drop_sent(left, self.socket.sendmsg(left))

    def receive(self, kind: int) -> Frame:
        """Receive the next frame.

        Args:
            kind: The kind that it must have, or REFUSED.

        Raises:
            WireError: It is another one, or is not valid.
            OSError: It does not arrive in time, or the other side is gone.
        """
        end = self._end()
        frame = None
        while frame is None:
            self.socket.settimeout(max(1e-3, end - time.monotonic()))
            frame = self._receive_some()
        if frame.kind not in (kind, REFUSED):
            raise WireError(f"it sent a message of kind {frame.kind} in the place of {kind}")
        return frame

    def receive_any(self) -> Frame | None:
        """Receive the next frame of any kind; wait for its beginning without a limit.

        Returns:
            The frame; None where the other side closed the connection between two frames.

        Raises:
            WireError: It is not valid.
            OSError: The rest of it does not arrive in time.
        """
        end = None
        while True:
            self.socket.settimeout(None if end is None else max(1e-3, end - time.monotonic()))
            try:
                frame = self._receive_some()
            except EOFError:
                if end is None:
                    return None
                raise
            if frame is not None:
                return frame
            end = end or time.monotonic() + self._seconds

    def _receive_some(self) -> Frame | None:
        count = self.socket.recv_into(self.reader.place())
        if not count:
            raise ClosedError
        return self.reader.add(count)

    def _end(self) -> float:
        return time.monotonic() + self._seconds if self.deadline is None else self.deadline


class ClosedError(ConnectionError, EOFError):
    """Raised where the other side has closed the connection."""

    def __init__(self) -> None:
        super().__init__("it closed the connection")


def drop_sent(pieces: list[memoryview], sent: int) -> list[memoryview]:
    """Return what is left of some pieces after bytes of them were sent.

    Args:
        pieces: The pieces.
        sent: The number of bytes.

    Examples:
        >>> [bytes(piece) for piece in drop_sent([memoryview(b"abc"), memoryview(b"de")], 4)]
        [b'e']
    """
    left = []
    for piece in pieces:
        if sent >= len(piece):
            sent -= len(piece)
        else:
            left.append(piece[sent:])
            sent = 0
    return left
