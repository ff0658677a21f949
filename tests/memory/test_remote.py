"""What a server sends in place of a view is an error of the memory's folder, whatever it is."""

from __future__ import annotations

import socket
import struct
from threading import Thread

import pytest

from ibidem.errors import MemoryFolderError
from ibidem.memory import ServerSource

HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n100\r\nhalf", 20.0),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n", 20.0),
        (HEAD + b"Content-Length: 1000\r\n\r\nhalf", 20.0),
        (HEAD + b"Content-Length: 1000\r\n\r\nhalf", 0.2),
        (b"", 20.0),
        (b"\xff\xff\xff\r\n", 20.0),
        (HEAD + b"A: " + b"b" * 70_000, 20.0),
    ],
    ids=["half a chunk", "no chunk", "half a view", "silence", "nothing", "no HTTP", "a long header"],
)
def test_a_broken_view_is_an_error_with_the_name_of_the_server(sent: bytes, seconds: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connected, _ = listener.accept()
            with connected:
                connected.recv(1 << 16)
                connected.sendall(sent)
                if seconds < 1:
                    connected.recv(1)  # until the client leaves
                elif sent:  # a reset, where the connection is not simply closed
                    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))

        thread = Thread(target=serve)
        thread.start()
        source = ServerSource(f"http://127.0.0.1:{listener.getsockname()[1]}", "it", timeout=seconds)
        with pytest.raises(MemoryFolderError, match=r"127\.0\.0\.1"):
            source.read_view("")
        thread.join()


def test_a_host_without_a_valid_name_is_an_error() -> None:
    with pytest.raises(MemoryFolderError, match="cannot reach"):
        ServerSource("http://writer..org:5000", "it").read_view("")
