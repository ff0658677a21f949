"""A disk with two planes: what programs see, and what survives a power cut.

Every operation on a folder is recorded. At a power cut all synced bytes and names survive. Of what was not synced, any
part may survive: each write of a file whole, torn or not at all, and each change of a directory by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from .operations import Operation


@dataclass
class File:
    """A file: the content that survives, and the changes since the last sync."""

    durable: bytes = b""
    pending: list[tuple[str, int, bytes]] = field(default_factory=list)

    def apply(self, changes: list[tuple[str, int, bytes]]) -> bytes:
        content = bytearray(self.durable)
        for kind, offset, data in changes:
            if kind == "truncate":
                content = content[:offset] + bytes(max(0, offset - len(content)))
            else:
                content += bytes(max(0, offset - len(content)))
                content[offset : offset + len(data)] = data
        return bytes(content)

    def sync(self) -> None:
        self.durable = self.apply(self.pending)
        self.pending.clear()


@dataclass
class Directory:
    """A directory: the names that survive, those that programs see, and the changes since the last sync."""

    durable: dict[str, File | Directory] = field(default_factory=dict)
    live: dict[str, File | Directory] = field(default_factory=dict)
    pending: list[dict[str, File | Directory | None]] = field(default_factory=list)

    def change(self, changes: dict[str, File | Directory | None]) -> None:
        """Change names atomically, as a rename does."""
        _apply(self.live, changes)
        self.pending.append(changes)

    def sync(self) -> None:
        self.durable = dict(self.live)
        self.pending.clear()


def _apply(names: dict[str, File | Directory], changes: dict[str, File | Directory | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Disk:
    """The two planes of a folder; `record` follows the operations."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._tree = Directory()
        self.operations = 0
        self._load(self._root, self._tree)

    def _load(self, path: Path, directory: Directory) -> None:
        """Take the present content of the folder as durable."""
        for entry in path.iterdir():
            node: File | Directory = Directory() if entry.is_dir() else File(entry.read_bytes())
            if isinstance(node, Directory):
                self._load(entry, node)
            directory.durable[entry.name] = directory.live[entry.name] = node

    def _directory(self, path: Path) -> Directory:
        found = self._tree
        for part in path.relative_to(self._root).parts:
            node = found.live[part]
            assert isinstance(node, Directory)
            found = node
        return found

    def _file(self, path: Path) -> File:
        node = self._directory(path.parent).live[path.name]
        assert isinstance(node, File)
        return node

    def record(self, operation: Operation) -> None:
        """Follow an operation that was done."""
        self.operations += 1
        path, target = operation.path, operation.target
        if operation.kind == "create":
            self._directory(path.parent).change({path.name: File()})
        elif operation.kind == "mkdir":
            self._directory(path.parent).change({path.name: Directory()})
        elif operation.kind in ("write", "truncate"):
            self._file(path).pending.append((operation.kind, operation.offset, operation.data))
        elif operation.kind == "sync":
            self._file(path).sync()
        elif operation.kind == "sync_directory":
            self._directory(path).sync()
        elif operation.kind in ("unlink", "rmdir"):
            self._directory(path.parent).change({path.name: None})
        elif operation.kind == "link":
            assert target is not None
            self._directory(target.parent).change({target.name: self._directory(path.parent).live[path.name]})
        else:
            assert target is not None
            assert target.parent == path.parent, "a rename between directories is not atomic"
            directory = self._directory(path.parent)
            directory.change({path.name: None, target.name: directory.live[path.name]})

    def cut(self, target: Path, random: Random, chance: float) -> Path:
        """Write what survives a power cut to another folder.

        Args:
            target: The new folder.
            random: Chooses what survives of the changes that were not synced.
            chance: The probability of each of them.
        """
        self._write(self._tree, target, random, chance)
        return target

    def _write(self, directory: Directory, target: Path, random: Random, chance: float) -> None:
        target.mkdir()
        names = dict(directory.durable)
        for changes in directory.pending:
            if random.random() < chance:
                _apply(names, changes)
        for name, node in names.items():
            if isinstance(node, Directory):
                self._write(node, target / name, random, chance)
                continue
            changes = []
            for kind, offset, data in node.pending:
                if random.random() < chance:
                    torn = data[: random.randrange(len(data) + 1)] if data and random.random() < 0.3 else data
                    changes.append((kind, offset, torn))
            (target / name).write_bytes(node.apply(changes))
