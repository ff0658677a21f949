"""A damaged memory is mended without a loss where that is possible; other losses must be accepted."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from ibidem.cli.app import app
from ibidem.errors import DamagedMemoryError, MemoryFolderError
from ibidem.memory import Memory, back_up, repair_folder, verify_folder

from .samples import ENDS, JOURNAL, Case, append, check_prefix, files_of, one, pairs_of, record

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.memory import Damage


def accept(folder: Path) -> list[Damage]:
    """Repair a memory with the loss accepted; nothing else may be damaged."""
    done = repair_folder(folder, accept_loss=True)
    assert done.left == []
    return done.lost


def flip(file: Path, place: int = -1) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.unlink()
    file.write_bytes(content)


def test_accept_loss_keeps_the_sound_records(case: Case) -> None:
    whole = files_of(case.path)
    file = case.path / JOURNAL
    reached = [{}, {0: 7}, {1: 8}]  # the pairs after each record, by id
    for cut in (0, 20, case.places[1], case.places[1] + 9, case.places[2], case.places[3] - 1):
        restore(case.path, whole)
        file.write_bytes(whole[JOURNAL][:cut])
        (damage,) = accept(case.path)
        assert damage.file == JOURNAL
        left = max(number for number in range(3) if case.places[number] <= cut)
        memory = Memory.open(case.path)
        assert {id: pair[3] // 100 for id, pair in pairs_of(memory).items()} == reached[left]
        assert verify_folder(case.path)[1] == []
        assert (case.path / (JOURNAL + ".damaged")).read_bytes() == whole[JOURNAL][:cut]
        assert len(pairs_of(record(case.path, one(5)))) == len(reached[left]) + 1
        assert accept(case.path) == []


def restore(path: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(path)
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    for name in ("segments", "artefacts"):
        (path / name).mkdir(exist_ok=True)


def test_accept_loss_drops_later_journals(path: Path) -> None:
    """A later journal refers to ids of the lost records."""
    append(path, 1)
    record(path, one(7)).sealed()
    record(path, one(8))
    shutil.copyfile(path / "manifest.previous.json", path / "manifest.json")  # so that both journals are needed
    assert pairs_of(Memory.open(path)).keys() == {0, 1, 2, 3, 4}
    file = path / "journals/000001.log"
    file.write_bytes(file.read_bytes()[:-1])
    lost = accept(path)
    assert [damage.file for damage in lost] == ["journals/000001.log", "journals/000002.log"]
    assert not list(path.glob("journals/*.log")), "no record is left in them"
    assert pairs_of(Memory.open(path)).keys() == {0, 1, 2}
    assert verify_folder(path)[1] == []


def test_accept_loss_of_ends_and_snapshots(case: Case) -> None:
    expected = pairs_of(Memory.open(case.path))
    with Memory.open(case.path).edit() as edit:
        edit.keep_snapshot("unpruned")
        edit.commit()
    shutil.rmtree(case.path / "snapshots")
    (case.path / ENDS).unlink()
    assert [damage.file for damage in verify_folder(case.path)[1]] == ["snapshots/unpruned-000002.json", ENDS]
    result = CliRunner().invoke(app, ["repair", "-m", str(case.path), "--accept-loss"])
    assert result.exit_code == 0, result.output
    memory = Memory.open(case.path)
    assert pairs_of(memory) == expected
    assert memory.snapshots() == []
    assert memory.verify() == []


def test_accept_loss_keeps_sound_records_beyond_an_older_committed_end(case: Case) -> None:
    expected = pairs_of(Memory.open(case.path))
    (case.path / ENDS).write_bytes(case.states[0][ENDS])
    assert [damage.file for damage in verify_folder(case.path)[1]] == [ENDS]
    assert accept(case.path) == []
    assert verify_folder(case.path)[1] == []
    assert pairs_of(Memory.open(case.path)) == expected
    (case.path / ENDS).write_bytes(case.states[1][ENDS])
    content = bytearray((case.path / JOURNAL).read_bytes())
    content[case.places[1] + 20] ^= 1
    (case.path / JOURNAL).write_bytes(content)
    assert [damage.file for damage in accept(case.path)] == [JOURNAL]
    assert {pair[1] for pair in pairs_of(Memory.open(case.path)).values()} == {one(7).targets[0]}
    assert verify_folder(case.path)[1] == []


def test_damaged_index_and_combiner_are_dropped_here_and_in_snapshots(path: Path) -> None:
    append(path, 1)
    with Memory.open(path).edit() as edit:
        edit.put_artefact("combiner_fixed", "json", b"{}", {})
        edit.put_artefact("compactor", "bin", b"compactor", {})
        edit.set_stage("tune", {"digest": "x"})
        edit.commit()
        edit.keep_snapshot("unpruned")
        edit.commit()
    before = pairs_of(Memory.open(path))
    artefacts = sorted((path / "artefacts").iterdir())
    assert [file.name[:5] for file in artefacts] == ["combi", "compa", "index"]
    flip(artefacts[0])
    artefacts[2].unlink()
    done = repair_folder(path)
    assert sorted(row.file for row in done.mended) == [
        f"artefacts/{artefacts[0].name}",
        f"artefacts/{artefacts[2].name}",
    ]
    assert (done.lost, done.left, done.index_dropped) == ([], [], True)
    memory = Memory.open(path)
    assert set(memory.manifest.artefacts) == {"compactor"}
    assert "tune" not in memory.manifest.stages
    assert pairs_of(memory) == before
    with memory.edit() as edit:
        edit.restore_snapshot("unpruned")
        memory = edit.commit()
    assert pairs_of(memory) == before
    assert repair_folder(path).mended == []
    flip(artefacts[1])
    assert [row.file for row in repair_folder(path).left] == [f"artefacts/{artefacts[1].name}"]


def test_every_damaged_file_is_copied_from_a_backup(path: Path, tmp_path: Path) -> None:
    append(path, 1, 2)
    with Memory.open(path).edit() as edit:
        edit.keep_snapshot("unpruned")
        edit.keep_entries(np.arange(edit.memory.entries) % 2 == 0)
        edit.commit()
    record(path, one(7))
    back_up(path, tmp_path / "copy")
    whole = files_of(path)
    names = [name for name in whole if name.startswith(("segments/", "artefacts/", "snapshots/", "journals/"))]
    assert len(names) > 20
    for name in names[::3]:
        for content in (None, whole[name][:-1], bytes([whole[name][0] ^ 1]) + whole[name][1:]):
            (path / name).unlink()
            if content is not None:
                (path / name).write_bytes(content)
            assert name in {row.file for row in repair_folder(path, source=tmp_path / "copy").mended}
            assert (path / name).read_bytes() == whole[name]
    assert verify_folder(path)[1] == []


def test_stale_or_foreign_files_of_a_backup_are_not_copied(path: Path, tmp_path: Path) -> None:
    append(path, 1)
    other = tmp_path / "other"
    shutil.copytree(path, other)
    append(path, 2)
    append(other, 3)
    file = path / "segments/000002/values.bin"
    flip(file)
    done = repair_folder(path, source=other)
    assert (done.mended, [row.file for row in done.left]) == ([], ["segments/000002/values.bin"])
    (path / "segments/000002/segment.json").unlink()
    done = repair_folder(path, source=other)
    assert (done.mended, [row.file for row in done.left]) == ([], ["segments/000002/segment.json"])


def test_damaged_manifests(path: Path) -> None:
    append(path, 1, 2)
    (path / "manifest.previous.json").write_bytes(b"{}")
    assert [row.file for row in repair_folder(path).mended] == ["manifest.previous.json"]
    assert verify_folder(path)[1] == []
    append(path, 3)
    flip(path / "manifest.json", 50)
    damaged = (path / "manifest.json").read_bytes()
    with pytest.raises(DamagedMemoryError, match="--accept-loss"):
        repair_folder(path)
    assert [row.file for row in accept(path)] == ["manifest.json"]
    assert (path / "manifest.json.damaged").read_bytes() == damaged
    assert check_prefix(Memory.open(path)) == 2
    assert check_prefix(append(path, 3)) == 3


def test_repair_of_a_sound_memory_changes_nothing(case: Case) -> None:
    before = files_of(case.path)
    for accepted in (False, True):
        done = repair_folder(case.path, accept_loss=accepted)
        assert (done.mended, done.lost, done.left) == ([], [], [])
    assert files_of(case.path) == before


def test_older_committed_ends_are_mended_without_a_loss(case: Case) -> None:
    expected = pairs_of(Memory.open(case.path))
    (case.path / ENDS).write_bytes(case.states[0][ENDS])
    done = repair_folder(case.path)
    assert ([row.file for row in done.mended], done.lost, done.left) == ([ENDS], [], [])
    assert pairs_of(Memory.open(case.path)) == expected


def test_damaged_committed_ends_are_copied_from_a_backup(case: Case, tmp_path: Path) -> None:
    """Also if pairs were added after the backup; the ends of another generation are not used."""
    back_up(case.path, tmp_path / "backup")
    record(case.path, one(9))
    expected = pairs_of(Memory.open(case.path))
    flip(case.path / ENDS)
    done = repair_folder(case.path, source=tmp_path / "backup")
    assert ([row.file for row in done.mended], done.lost, done.left) == ([ENDS, ENDS], [], [])
    assert pairs_of(Memory.open(case.path)) == expected
    Memory.open(case.path).sealed()
    flip(case.path / ENDS)
    done = repair_folder(case.path, source=tmp_path / "backup")
    assert (done.mended, [row.file for row in done.left]) == ([], [ENDS])
    flip(tmp_path / "backup" / "manifest.json")
    done = repair_folder(case.path, source=tmp_path / "backup")
    assert (done.mended, [row.file for row in done.left]) == ([], [ENDS])


def test_a_journal_is_copied_from_a_backup_up_to_its_committed_end(case: Case, tmp_path: Path) -> None:
    expected = pairs_of(Memory.open(case.path))
    back_up(case.path, tmp_path / "backup")
    record(tmp_path / "backup", one(10))
    shutil.rmtree(case.path / "journals")
    done = repair_folder(case.path, source=tmp_path / "backup")
    assert ([row.file for row in done.mended], done.lost, done.left) == ([JOURNAL], [], [])
    assert pairs_of(Memory.open(case.path)) == expected
    assert verify_folder(case.path)[1] == []


def test_command_reports_what_is_left(case: Case) -> None:
    (case.path / JOURNAL).unlink()
    result = CliRunner().invoke(app, ["repair", "-m", str(case.path)])
    assert result.exit_code == 1
    assert f"damaged: {JOURNAL}: the file is missing" in result.output
    assert "--accept-loss" in result.output


def test_missing_backup_is_an_error(case: Case, tmp_path: Path) -> None:
    with pytest.raises(MemoryFolderError, match="there is no backup at"):
        repair_folder(case.path, source=tmp_path / "mistyped")
