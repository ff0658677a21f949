"""Every error is one line with a remedy and exit code 1 or 2, and leaves no incomplete file."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import Run


def translate(memory: object, *options: object) -> tuple[object, ...]:
    return ("translate", "-m", memory, "--beam", 1, "--quiet", *options)


def flip(file: Path, place: float = 0.5) -> None:
    """Flip one bit of a file."""
    content = bytearray(file.read_bytes())
    content[int(place * (len(content) - 1))] ^= 4
    file.write_bytes(content)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock"
    }


# The memory


def test_missing_memory(fails: Run, tmp_path: Path) -> None:
    for command in (
        translate(tmp_path / "no"),
        ("inspect", "-m", tmp_path / "no"),
        ("tune", "-m", tmp_path / "no"),
    ):
        message = fails(1, *command)
        assert f"there is no memory at {tmp_path / 'no'}" in message
        assert "ibidem learn" in message
    assert list(tmp_path.iterdir()) == []


def test_memory_that_is_a_file(fails: Run, tmp_path: Path, tiny_folder: Path, few_file: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    assert "there is no memory" in fails(1, *translate(file))
    message = fails(1, "extract", "--model", tiny_folder, "--train", few_file, "-o", file)
    assert "is a file: give the path of a new folder" in message
    assert file.read_text() == "text"


def test_output_folder_that_is_no_memory(fails: Run, tmp_path: Path, tiny_folder: Path, few_file: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    message = fails(1, "learn", "--model", tiny_folder, "--train", few_file, "-o", tmp_path)
    assert "not empty (thesis.tex is there): give the path of a new folder" in message
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("array", "way"),
    [("keys", "flip"), ("values", "flip"), ("keys", "cut"), ("values", "cut"), ("values", "remove")],
)
def test_damaged_segment(fails: Run, ibidem: Run, memory: Path, array: str, way: str) -> None:
    file = next(memory.glob(f"segments/*/{array}.bin"))
    if way == "flip":
        flip(file)
    elif way == "cut":
        os.truncate(file, file.stat().st_size - 1)
    else:
        file.unlink()
    message = fails(1, *translate(memory), stdin="Hallo\n")
    assert str(file) in message
    assert "run `ibidem repair`, with --from if there is a backup, or learn the memory again" in message
    verified = ibidem("verify", "-m", memory)
    assert verified.code == 1
    assert f"damaged: {file.relative_to(memory)}: " in verified.out
    [row] = json.loads(ibidem("verify", "-m", memory, "--json").out)
    assert row["file"] == str(file.relative_to(memory))


def test_damaged_manifest(fails: Run, memory: Path) -> None:
    flip(memory / "manifest.json", 0.9)
    message = fails(1, *translate(memory), stdin="Hallo\n")
    assert "`ibidem repair --accept-loss` goes back to generation" in message


@pytest.mark.parametrize(("name", "options"), [("contextual", ()), ("adaptive", ("--combiner", "adaptive"))])
def test_damaged_combiner(fails: Run, memory: Path, name: str, options: tuple[str, ...]) -> None:
    [file] = memory.glob(f"artefacts/combiner_{name}*")
    flip(file)
    assert "is damaged" in fails(1, *translate(memory, *options), stdin="Hallo\n")


def test_damaged_index_only_warns(ibidem: Run, memory: Path) -> None:
    lines = "Die Datei fehlt.\nBitte warten.\n"
    ibidem("index", "-m", memory, "IVF16,SQ8;nprobe=4")
    whole = ibidem(*translate(memory), stdin=lines)
    [file] = memory.glob("artefacts/*.faiss")
    flip(file)
    answer = ibidem(*translate(memory), stdin=lines)
    assert (answer.code, answer.out) == (0, whole.out)
    assert answer.err.startswith("warning: ")
    assert answer.err.count("\n") == 1
    assert f"`ibidem index -m {memory}`" in answer.err
    assert ibidem("index", "-m", memory).code == 0
    assert ibidem(*translate(memory), stdin=lines).err == ""


def test_newer_format(fails: Run, memory: Path) -> None:
    file = memory / "manifest.json"
    document = json.loads(file.read_text("utf-8"))
    document["format"] = 99
    text = json.dumps({**document, "checksum": "0" * 64}, ensure_ascii=False, indent=1) + "\n"
    head, _, body = text.partition("0" * 64)
    file.write_text(head + hashlib.sha256(body.encode()).hexdigest() + body, "utf-8")
    message = fails(1, *translate(memory), stdin="Hallo\n")
    assert "newer ibidem" in message
    assert "upgrade" in message


def test_memory_without_combiner(fails: Run, tmp_path: Path, tiny_folder: Path, few_file: Path, ibidem: Run) -> None:
    ibidem("extract", "--model", tiny_folder, "--train", few_file, "-o", tmp_path / "memory")
    assert ibidem(*translate(tmp_path / "memory"), stdin="Hallo\n").code == 0  # weighed by distance alone
    named = ("evaluate", "-m", tmp_path / "memory", "--test", few_file, "--combiner", "adaptive")
    assert "ibidem tune" in fails(2, *named)


@pytest.fixture
def holder(memory: Path) -> Iterator[int]:
    """Another process that is writing the memory; its number."""
    code = (
        "import sys\nfrom ibidem.memory import Memory\n"
        "with Memory.open(sys.argv[1]).edit():\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(memory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def test_locked_memory(fails: Run, ibidem: Run, memory: Path, holder: int) -> None:
    before = snapshot(memory)
    message = fails(1, "index", "-m", memory, "exact")
    assert f"is being written by process {holder} on " in message
    assert "wait for it or stop it" in message
    assert snapshot(memory) == before
    # Readers are not blocked.
    assert ibidem(*translate(memory), stdin="Hallo\n").code == 0


# The model


def test_wrong_model(fails: Run, tmp_path: Path, memory: Path, tiny_folder: Path, corpus_file: Path) -> None:
    from safetensors.torch import load_file, save_file

    other = Path(shutil.copytree(tiny_folder, tmp_path / "other"))
    weights = load_file(other / "model.safetensors")
    name = next(name for name in weights if "embed" not in name and weights[name].ndim == 2)
    weights[name] = weights[name] + 0.01
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    before = snapshot(memory)
    for command in (
        translate(memory, "--model", other),
        ("tune", "-m", memory, "--model", other),
        ("learn", "--train", corpus_file, "-o", memory, "--model", other),
        ("evaluate", "--test", corpus_file, "-m", memory, "--model", other),
    ):
        message = fails(1, *command, stdin="Hallo\n")
        assert re.search(rf"'{tiny_folder}' \(model \w+\), not with '{other}' \(model \w+\)", message)
        assert f"use --model {tiny_folder}" in message
    assert snapshot(memory) == before


def test_wrong_tokenizer(fails: Run, tmp_path: Path, memory: Path, tiny_folder: Path) -> None:
    other = Path(shutil.copytree(tiny_folder, tmp_path / "other"))
    pieces = json.loads((other / "vocab.json").read_text("utf-8"))
    pieces["▁the"], pieces["▁and"] = pieces["▁and"], pieces["▁the"]
    (other / "vocab.json").write_text(json.dumps(pieces), "utf-8")
    assert re.search(
        r"\(tokenizer \w+\), not with .* \(tokenizer \w+\)", fails(1, *translate(memory, "--model", other))
    )


def test_missing_model(fails: Run, tmp_path: Path) -> None:
    message = fails(1, "translate", "--model", tmp_path / "no", stdin="Hallo\n")
    assert f"'{tmp_path / 'no'}'" in message
    assert "config.json" in message
    (tmp_path / "empty").mkdir()
    assert "config.json" in fails(1, "translate", "--model", tmp_path / "empty", stdin="Hallo\n")


# The text


def test_misaligned_files(fails: Run, tmp_path: Path, tiny_folder: Path) -> None:
    (tmp_path / "a.de").write_text("eins\nzwei\ndrei\n")
    (tmp_path / "a.en").write_text("one\ntwo\n")
    files = ("--train", tmp_path / "a.de", "--train", tmp_path / "a.en")
    message = fails(1, "learn", "--model", tiny_folder, *files, "-o", tmp_path / "memory")
    assert "3 lines but" in message
    assert not (tmp_path / "memory").exists()


def test_text_that_is_not_utf8(fails: Run, tmp_path: Path, tiny_folder: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_bytes(b"Hallo\tHello\nGr\xfc\xdfe\tGreetings\n")
    message = fails(1, "learn", "--model", tiny_folder, "--train", file, "-o", tmp_path / "memory")
    assert f"{file}, line 2: byte 0xFC is not UTF-8" in message
    assert "iconv" in message
    assert not (tmp_path / "memory").exists()


def test_empty_corpus(fails: Run, tmp_path: Path, tiny_folder: Path) -> None:
    (tmp_path / "a.tsv").write_text("\n\n")
    message = fails(1, "extract", "--model", tiny_folder, "--train", tmp_path / "a.tsv", "-o", tmp_path / "memory")
    assert "No pair could be used" in message
    assert "read 2 pairs, kept 0" in message
    assert not (tmp_path / "memory").exists()


def test_another_corpus(fails: Run, memory: Path, few_file: Path) -> None:
    before = snapshot(memory)
    message = fails(
        1, "extract", "--train", few_file, "-o", memory, "--seed", 1, "--model", Memory.open(memory).identity.name
    )
    assert "another corpus" in message
    assert snapshot(memory) == before


def test_files_that_are_not_there(fails: Run, tmp_path: Path, memory: Path, tiny_folder: Path) -> None:
    no = tmp_path / "no.tsv"
    new = tmp_path / "new"
    model = ("--model", tiny_folder)
    assert f"{no}: cannot be opened" in fails(1, "learn", *model, "--train", no, "-o", new)
    train = tmp_path / "a.tsv"
    train.write_text("Hallo\tHello\n")
    assert f"{no}: cannot be opened" in fails(1, "learn", *model, "--train", train, "--dev", no, "-o", new)
    assert f"{no}: cannot be opened" in fails(1, "tune", "-m", memory, "--dev", no)
    assert f"{no}: cannot be opened" in fails(1, "evaluate", *model, "--test", no)
    assert f"Cannot read {no}" in fails(1, *translate(memory, "-i", no))
    assert f"Cannot read {no}" in fails(1, *translate(memory, "--prefixes", no))
    assert f"Cannot read {tmp_path}: Is a directory" in fails(1, *translate(memory, "-i", tmp_path))
    assert f"{tmp_path}" in fails(1, "learn", *model, "--train", tmp_path, "--format", "tsv", "-o", new)
    assert not new.exists()


def test_places_that_cannot_be_written(fails: Run, tmp_path: Path, memory: Path) -> None:
    message = fails(2, *translate(memory, "-o", tmp_path / "no" / "out"), stdin="Hallo\n")
    assert f"Cannot write {tmp_path / 'no' / 'out'}: there is no folder {tmp_path / 'no'}. Create it" in message
    message = fails(2, *translate(memory, "-o", memory), stdin="Hallo\n")
    assert f"{memory} is a folder: give the name of a file in it" in message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_disk_full(fails: Run, memory: Path) -> None:
    message = fails(1, *translate(memory, "-o", "/dev/full"), stdin="Hallo\n")
    assert "No space left on device" in message
    assert "free disk space" in message


# Invalid arguments


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--combiner", "clever"), r"Unknown combiner 'clever': use one of contextual, adaptive, fixed"),
        (("--index", "IVF,,3"), r"cannot make the index 'IVF,,3'.*A valid setting is"),
        (("--index", "FooBar9"), r"FooBar9.*IVF1024,SQ8;nprobe=32"),
        (("--device", "abacus"), r"Unknown device 'abacus': use auto, cpu, cuda or cuda:N"),
        (("--dtype", "int7"), r"Unknown dtype 'int7': use one of auto, float32"),
        (("--weight", 2), r"'--weight'.*`ibidem translate --help`"),
        (("--weight", 0.5), r"all three of --k, --weight and --temperature"),
        (("--k", 2, "--weight", 0.5, "--temperature", 0), r"a temperature above 0"),
        (("--beam", 0), r"'--beam'"),
        (("--threads", 10**5), r"'--threads'"),
        (("--k", 10**20), r"'--k'"),
        (("--length-penalty", "nan"), r"Invalid length penalty nan: give a number from -10 to 10"),
        (("--length-penalty", "-1e308"), r"Invalid length penalty"),
        (("--batch-size", "many"), r"'--batch-size'"),
        (("--n-best", 2), r"--n-best and --matches need --json"),
        (("--json", "--prefixes", os.devnull), r"1 texts but 0 prefixes"),
        (("--device", "mps"), r"runs on cpu and cuda, not on 'mps'"),
        (("--device", "cuda:99"), r"'cuda:99' is not available.*--device cpu"),
        (("--prefixes", os.devnull), r"1 texts but 0 prefixes"),
        (("--frobnicate",), r"--frobnicate"),
    ],
)
def test_invalid_options_are_refused(fails: Run, learnt: Memory, options: tuple[object, ...], expected: str) -> None:
    assert re.search(expected, fails(2, *translate(learnt.path, *options), stdin="Hallo\n"))


def test_memory_that_cannot_be_allocated(fails: Run, learnt: Memory) -> None:
    assert "give a smaller --batch-size or --beam" in fails(
        1, *translate(learnt.path, "--beam", 10**12), stdin="Hallo\n"
    )


def test_a_combiner_without_a_memory(fails: Run, tiny_folder: Path) -> None:
    for options in (("--combiner", "fixed"), ("--k", 1, "--weight", 1, "--temperature", 1)):
        assert "give its folder with -m" in fails(2, "translate", "--model", tiny_folder, *options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--set", "tune.k=6"), r"k = 1, 2, 4, 8, …, not 6"),
        (("--set", "tune.objective=comet"), r"Unknown objective 'comet': use one of likelihood, bleu"),
        (("--set", "tune.objective=bleu"), r"give one with --dev"),
        (("--set", "tune.metak.validation=none"), r"use split, or same"),
        (("--seed", -1), r"'--seed'"),
        (("--seed", 1 << 40), r"'--seed'"),
        (("--device", "abacus"), r"Unknown device"),
        (("--source-language", "12"), r"'12' is not a language tag"),
        (("--source-language", "en"), r"translates from de to en, not from en: leave --source-language out"),
        (("--format", "docx"), r"'docx' is not a format"),
        (("--train", "second.tsv"), r"plain text aligned line by line"),
    ],
)
def test_invalid_arguments_of_learn_are_refused(
    fails: Run, tmp_path: Path, tiny_folder: Path, few_file: Path, options: tuple[object, ...], expected: str
) -> None:
    out = tmp_path / "memory"
    message = fails(2, "learn", "--model", tiny_folder, "--train", few_file, "-o", out, *options)
    assert re.search(expected, message)
    assert not out.exists()


def test_invalid_index_settings_are_refused(fails: Run, memory: Path) -> None:
    before = snapshot(memory)
    assert "IVF1024,SQ8" in fails(2, "index", "-m", memory, "banana")
    assert "nprobe" in fails(2, "index", "-m", memory, "IVF16,SQ8;nprobe=none")
    assert snapshot(memory) == before


def test_missing_and_unknown_commands(fails: Run, ibidem: Run) -> None:
    assert "No such command 'frobnicate'; `ibidem --help`" in fails(2, "frobnicate")
    assert "'--train'" in fails(2, "learn")
    assert "Usage: ibidem" in ibidem().out


# Interruption


@pytest.mark.parametrize("subcommand", ["extract", pytest.param("translate", marks=pytest.mark.slow)])
def test_interrupted(tmp_path: Path, tiny_folder: Path, few_file: Path, subcommand: str) -> None:
    """Ctrl-C while standard input is read gives one line and code 130, and leaves no incomplete file."""
    rest = ("--train", "-", "-o", tmp_path / "out") if subcommand == "extract" else ("-o", tmp_path / "out")
    command = [Path(sys.executable).with_name("ibidem"), subcommand, "--model", tiny_folder, *rest]
    pipe = subprocess.PIPE
    with subprocess.Popen(list(map(str, command)), stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=heed) as process:
        assert process.stdin is not None
        process.stdin.write(few_file.read_bytes())
        process.stdin.flush()
        wait_until_blocked(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == b""
    assert err.decode() == (
        "error: interrupted; everything that was committed is kept: run the same command to resume\n"
    )
    assert list(tmp_path.iterdir()) == []


def heed() -> None:
    """Restore the default handler of SIGINT, which background jobs of a shell without job control ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until_blocked(process: int) -> None:
    """Wait until a process has loaded its libraries and sleeps in the read of a pipe."""
    deadline = time.monotonic() + 60
    quiet = 0
    while quiet < 5:
        assert time.monotonic() < deadline
        loaded = "libtorch" in Path(f"/proc/{process}/maps").read_text()
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        # Where the kernel reports it, the process must sleep in a pipe: on a busy machine it may sleep elsewhere.
        place = Path(f"/proc/{process}/wchan").read_text()
        quiet = quiet + 1 if loaded and state == "S" and ("pipe" in place or place in ("", "0")) else 0
        time.sleep(0.1)


def test_a_reader_that_closes_the_pipe(learnt: Memory) -> None:
    """`ibidem inspect --json | head -1` ends without a message."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [Path(sys.executable).with_name("ibidem"), "inspect", "-m", learnt.path, "--json"]
    with os.fdopen(writing, "wb") as nowhere:
        done = subprocess.run(command, stdout=nowhere, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
