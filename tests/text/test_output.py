"""Output files: they take their names when they are complete, and errors name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibidem.errors import UsageError
from ibidem.text import open_output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_names_the_output() -> None:
    with pytest.raises(OSError, match="No space left") as raised, open_output("/dev/full") as file:
        file.write(b"a")
    assert raised.value.filename == "/dev/full"


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o640)

    def fail() -> None:
        with open_output(path) as file:
            file.write(b"new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["a.txt"]
    with open_output(path) as file:
        file.write(b"new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)


def test_the_file_that_a_link_points_to_is_replaced(tmp_path: Path) -> None:
    path, link = tmp_path / "a.txt", tmp_path / "link.txt"
    path.write_text("old")
    link.symlink_to(path)
    with open_output(link) as file:
        file.write(b"new")
    assert (link.is_symlink(), path.read_text()) == (True, "new")


def test_a_missing_folder_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"), open_output(tmp_path):
        pass
    with pytest.raises(UsageError, match="there is no folder"), open_output(tmp_path / "b" / "a.txt"):
        pass
