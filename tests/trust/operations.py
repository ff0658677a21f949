"""A layer over the file operations of Python that change a folder: each one can be observed, ended or made to fail."""

from __future__ import annotations

import builtins
import errno
import io
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IGNORED = ("lock", "lock.holder")


class Operation(NamedTuple):
    """A file operation, before it is done.

    Attributes:
        kind: create, write, truncate, sync, sync_directory, rename, link, mkdir, unlink or rmdir.
        path: The file or directory.
        target: The new name of a rename or link.
        offset: The first byte that is written, or the new size of a truncated file.
        data: The bytes that are written.
    """

    kind: str
    path: Path
    target: Path | None = None
    offset: int = 0
    data: bytes = b""


class Outcome(NamedTuple):
    """What happens instead of a write: its first bytes are written, and then an error is raised or the count returned.

    Attributes:
        written: The number of bytes that are written.
        error: The error; None returns the number of bytes, as a short write does.
    """

    written: int
    error: OSError | None


class _Layer:
    """The replacements of the functions of `os` and `io`; operations outside the folder pass unobserved."""

    def __init__(self, root: Path, before: Callable[[Operation], Outcome | None], after: Callable[[Operation], None]):
        self.root = root.resolve()
        self.before = before
        self.after = after
        self.real = {name: getattr(os, name) for name in FUNCTIONS}
        self.open = io.open

    def path_of(self, path: Any, dir_fd: int | None = None) -> Path | None:
        """Return the path of an operation inside the folder; None for other paths."""
        if isinstance(path, int):
            found = Path(os.readlink(f"/proc/self/fd/{path}"))
        elif dir_fd is not None:
            found = Path(os.readlink(f"/proc/self/fd/{dir_fd}")) / os.fsdecode(path)
        else:
            found = Path(os.path.abspath(os.fsdecode(path)))
        return found if found.is_relative_to(self.root) and found.name not in IGNORED else None

    def do(self, operation: Operation | None, act: Callable[[], Any]) -> Any:
        if operation is None:
            return act()
        outcome = self.before(operation)
        if outcome is not None and outcome.error is not None:
            raise outcome.error
        done = act()
        self.after(operation)
        return done

    def write(self, operation: Operation | None, data: Any, act: Callable[[Any], int]) -> int:
        if operation is None:
            return act(data)
        outcome = self.before(operation)
        content = bytes(data)
        if outcome is None:
            done = act(data)
            self.after(operation._replace(data=content[:done]))
            return done
        if outcome.written:
            act(content[: outcome.written])
            self.after(operation._replace(data=content[: outcome.written]))
        if outcome.error is not None:
            raise outcome.error
        return outcome.written

    def fsync(self, descriptor: int) -> None:
        path = self.path_of(descriptor)
        kind = "sync_directory" if path is not None and path.is_dir() else "sync"
        self.do(path and Operation(kind, path), lambda: self.real["fsync"](descriptor))

    def replace(self, source: Any, target: Any, **given: Any) -> None:
        path, new = self.path_of(source), self.path_of(target)
        operation = Operation("rename", path, new) if path and new else None
        self.do(operation, lambda: self.real["replace"](source, target, **given))

    def link(self, source: Any, target: Any, **given: Any) -> None:
        path, new = self.path_of(source), self.path_of(target)
        operation = Operation("link", path, new) if path and new else None
        self.do(operation, lambda: self.real["link"](source, target, **given))

    def mkdir(self, path: Any, *args: Any, **given: Any) -> None:
        found = self.path_of(path, given.get("dir_fd"))
        operation = Operation("mkdir", found) if found and not found.exists() and found.parent.is_dir() else None
        self.do(operation, lambda: self.real["mkdir"](path, *args, **given))

    def unlink(self, path: Any, **given: Any) -> None:
        found = self.path_of(path, given.get("dir_fd"))
        operation = Operation("unlink", found) if found and (found.exists() or found.is_symlink()) else None
        self.do(operation, lambda: self.real["unlink"](path, **given))

    def rmdir(self, path: Any, **given: Any) -> None:
        found = self.path_of(path, given.get("dir_fd"))
        self.do(found and Operation("rmdir", found), lambda: self.real["rmdir"](path, **given))

    def ftruncate(self, descriptor: int, size: int) -> None:
        path = self.path_of(descriptor)
        operation = Operation("truncate", path, offset=size) if path else None
        self.do(operation, lambda: self.real["ftruncate"](descriptor, size))

    def os_open(self, path: Any, flags: int, *args: Any, **given: Any) -> int:
        found = self.path_of(path, given.get("dir_fd")) if flags & (os.O_WRONLY | os.O_RDWR) else None
        operation = Operation("create", found) if found and flags & os.O_CREAT and not found.exists() else None
        return int(self.do(operation, lambda: self.real["open"](path, flags, *args, **given)))

    def os_write(self, descriptor: int, data: Any) -> int:
        path = self.path_of(descriptor)
        offset = os.lseek(descriptor, 0, os.SEEK_CUR) if path else 0
        operation = Operation("write", path, offset=offset, data=bytes(data)) if path else None
        return self.write(operation, data, lambda rest: int(self.real["write"](descriptor, rest)))

    def open_file(self, file: Any, mode: str = "r", *args: Any, **given: Any) -> Any:
        path = None if isinstance(file, int) or not set(mode) & set("wax+") else self.path_of(file)
        if path is None:
            return self.open(file, mode, *args, **given)
        if path.exists():
            if "w" in mode:
                operation = Operation("truncate", path)
                raw = self.do(operation, lambda: _File(self, path, mode))
            else:
                raw = _File(self, path, mode)
        else:
            raw = self.do(Operation("create", path), lambda: _File(self, path, mode))
        if args and args[0] == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, given.get("encoding"), given.get("errors"), given.get("newline"))


class _File(io.FileIO):
    """A file whose writes are observed."""

    def __init__(self, layer: _Layer, path: Path, mode: str) -> None:
        self._layer = layer
        self._path = path
        super().__init__(str(path), mode.replace("b", "").replace("t", ""))

    def write(self, data: Any) -> int:
        offset = 0 if "a" in self.mode else self.tell()
        operation = Operation("write", self._path, offset=offset, data=bytes(data))
        return self._layer.write(operation, data, super().write)

    def truncate(self, size: int | None = None) -> int:
        operation = Operation("truncate", self._path, offset=self.tell() if size is None else size)
        return int(self._layer.do(operation, lambda: io.FileIO.truncate(self, size)))


FUNCTIONS = ("fsync", "replace", "link", "mkdir", "unlink", "rmdir", "ftruncate", "open", "write")


@contextmanager
def observed(
    root: Path,
    before: Callable[[Operation], Outcome | None] = lambda _: None,
    after: Callable[[Operation], None] = lambda _: None,
) -> Iterator[None]:
    """Call a function before and after each operation that changes a folder.

    Args:
        root: The folder.
        before: Returns None to do the operation, or what happens instead; it may raise, or end the process.
        after: Called when the operation was done.
    """
    layer = _Layer(root, before, after)
    replacements: dict[str, Any] = {
        "fsync": layer.fsync,
        "replace": layer.replace,
        "link": layer.link,
        "mkdir": layer.mkdir,
        "unlink": layer.unlink,
        "rmdir": layer.rmdir,
        "ftruncate": layer.ftruncate,
        "open": layer.os_open,
        "write": layer.os_write,
    }
    for name, function in replacements.items():
        setattr(os, name, function)
    io.open = builtins.open = layer.open_file  # type: ignore[assignment]
    try:
        yield
    finally:
        for name, function in layer.real.items():
            setattr(os, name, function)
        io.open = builtins.open = layer.open  # type: ignore[assignment]


def count_operations(root: Path, act: Callable[[], object]) -> list[Operation]:
    """Do something and return the operations that changed a folder."""
    found: list[Operation] = []
    with observed(root, after=found.append):
        act()
    return found


def kill_at(number: int, share: float = 0.0) -> Callable[[Operation], Outcome | None]:
    """Return a function for `observed` that ends this process with SIGKILL before an operation.

    Args:
        number: The number of the operation, from 0.
        share: The share of the bytes that a write still writes.
    """
    left = iter(range(number))

    def before(operation: Operation) -> Outcome | None:
        if next(left, None) is not None:
            return None
        if operation.kind == "write" and share:
            part = operation.data[: int(len(operation.data) * share)]
            with io.FileIO(os.open(operation.path, os.O_WRONLY), "r+") as file:
                file.seek(operation.offset)
                file.write(part)
        os.kill(os.getpid(), 9)
        return None

    return before


def fail_at(number: int, kind: str, *, lasting: bool = False) -> Callable[[Operation], Outcome | None]:
    """Return a function for `observed` that makes one operation fail, or all from it on.

    Args:
        number: The number of the operation, from 0.
        kind: EIO or ENOSPC; `torn` writes half of the bytes and then fails; `short` writes half of them and returns.
        lasting: Whether all later operations fail too.
    """
    count = 0

    def before(operation: Operation) -> Outcome | None:
        nonlocal count
        count += 1
        if count - 1 != number and not (lasting and count > number):
            return None
        half = len(operation.data) // 2
        if kind == "short":
            return Outcome(half, None) if half else None
        code = errno.EIO if kind == "EIO" else errno.ENOSPC
        return Outcome(half if kind == "torn" else 0, OSError(code, os.strerror(code), str(operation.path)))

    return before
