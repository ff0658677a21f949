"""Translate, explain, add and serve without any setting, with a memory that is large enough for the index.

The texts are far from everything that is stored, empty, huge or hostile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.decode import Translator
from ibidem.learn import MemoryWriter, index_memory
from ibidem.memory import Memory, verify_folder
from ibidem.native import native
from ibidem.retrieve import EXACT_BELOW
from ibidem.text import Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import Budget

FAR = ["Zxqvw kprt ÿþ", "0123456789 " * 8, "the quick brown fox", "日本語のテキスト", "🦊🦊🦊", "А это по-русски."]
EMPTY = ["", " ", "\n", "\t \n\n", "\ufeff", "\u200b", "."]
HUGE = ["Die Datei ist groß. " * 40, "a" * 4_000, "Wort " * 700, "\n".join(["Zeile"] * 120), "(" * 900]
HOSTILE = [
    "\0\x01\x02 Datei \x1b[31m",
    "<script>alert(1)</script> & <b>",
    "</s> <pad> <unk> ▁▁",
    "%s %n {0} ${x} ..\\..\\etc",
    "e\u0301\u0301\u0301" * 60,
    "\u202eabc\u202c \ud7ff \ufffe",
    "'; DROP TABLE memory; --",
    "Datei\r\nNeu\rAlt\u2028Ende\u0085",
]
TEXTS = [*FAR, *EMPTY, *HUGE, *HOSTILE]
ADDED = ("Der neue Mandant heißt Quork.", "The new tenant is called Quork.")


def many_pairs(sentences: list[Any]) -> Iterator[Pair]:
    """Yield pairs of two sentences of the project, each once."""
    for distance in range(1, len(sentences)):
        for number, first in enumerate(sentences):
            second = sentences[(number + distance) % len(sentences)]
            yield Pair(f"{first.german} {second.german}", f"{first.english} {second.english}", "project.tsv", number)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny: Any, sentences: list[Any]) -> Path:
    """A memory that was filled by adding pairs and indexed, with nothing set; the tests add to it."""
    path = tmp_path_factory.mktemp("default") / "mine"
    writer, pairs = MemoryWriter(path, tiny), many_pairs(sentences)
    while Memory.open(path).entries + Memory.open(path).tail.entries < EXACT_BELOW + 200:
        writer.add(islice(pairs, 200))
    memory, _ = index_memory(Memory.open(path))
    assert memory.entries > EXACT_BELOW
    return path


def check_index(folder: Path) -> None:
    """Check that a memory has the index that the program chooses where the native library is there."""
    index = Memory.open(folder).artefact("index")
    assert index is not None
    assert index.path.suffix == (".faiss" if native() is None else ".native")


def check_texts(translator: Translator, texts: list[str]) -> None:
    """Check that all texts are translated, that their order does not matter, and that explanations say the same."""
    translations = translator.translate(texts)
    assert len(translations) == len(texts)
    for text, translation in zip(texts, translations, strict=True):
        translation.encode("utf-8")
        if not text.strip():
            assert not translation.strip("\ufeff \n\t\u200b")
        assert translation.count("\n") == text.count("\n"), (text, translation)
    short = [text for text in texts if len(text) < 300]
    for text, explanation in zip(short, translator.explain(short), strict=True):
        assert explanation.translation == translations[texts.index(text)], text
        for token in explanation.tokens:
            assert 0 <= token.probability <= 1 + 1e-6


def test_the_index_is_the_default_one(folder: Path, tiny: Any) -> None:
    check_index(folder)
    check_texts(Translator(tiny, folder), TEXTS)


@pytest.mark.slow
@pytest.mark.usefixtures("no_native")
def test_without_native_code(folder: Path, tiny: Any) -> None:
    check_texts(Translator(tiny, folder), [*FAR, *EMPTY, *HOSTILE])


def test_pairs_are_added_and_removed_while_texts_are_translated(folder: Path, tiny: Any, budget: Budget) -> None:
    writer, translator = MemoryWriter(folder, tiny), Translator(tiny, folder)
    failures: list[BaseException] = []
    stop = threading.Event()

    def change(number: int) -> None:
        try:
            while not stop.is_set():
                added = writer.add_pair(f"{ADDED[0]} {number}", f"{ADDED[1]} {number}")
                for text in ("\0", *HOSTILE[:3]):
                    writer.add_pair(f"{text} {number}", f"{number} {text}")
                writer.remove([added.id])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in budget.rounds(1):
            translator.translate([*FAR, ADDED[0], *HOSTILE])
            budget.count("batches beside writers")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert verify_folder(folder)[1] == []
    writer.add_pair(*ADDED)
    assert translator.translate([ADDED[0]]) == [translator.explain([ADDED[0]])[0].translation]
    cited = {
        neighbour.pair.source for token in translator.explain([ADDED[0]])[0].tokens for neighbour in token.neighbours
    }
    assert ADDED[0] in cited


def test_the_server_answers_every_text(folder: Path, tiny: Any) -> None:
    pytest.importorskip("uvicorn")
    from ibidem.serve import ServeSettings, make_service, running

    with running(make_service(Translator(tiny, folder), ServeSettings())) as url:
        for explain in (False, True):
            for text in HOSTILE if explain else [*FAR, *EMPTY, HUGE[0]]:
                content = {"q": text, "source": "de", "target": "en", "explain": explain}
                status, body = post(f"{url}/translate", content)
                assert status in (200, 400), (text[:30], status, body)
                assert isinstance(json.loads(body), dict)
        assert post(f"{url}/suggest", {"q": ADDED[0], "s": ADDED[1], "source": "de", "target": "en"})[0] == 200
        assert post(f"{url}/translate", {"q": HOSTILE, "source": "de", "target": "en"})[0] in (200, 400, 413)
        assert post(f"{url}/translate", {"q": "x" * 900_000, "source": "de", "target": "en"})[0] == 400
        with urllib.request.urlopen(f"{url}/health", timeout=60) as answer:
            assert answer.status == 200


def post(url: str, content: dict[str, Any]) -> tuple[int, bytes]:
    data = json.dumps(content).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_command_line_with_the_shipped_model(tmp_path: Path, sentences: list[Any]) -> None:
    """Learn, translate, explain, add and remove by the command line, with the shipped model and no option."""

    def run(*arguments: str, stdin: str = "") -> str:
        command = [sys.executable, "-m", "ibidem", *arguments]
        done = subprocess.run(
            command, input=stdin.encode(), capture_output=True, check=False, timeout=1800, env={**os.environ}
        )
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        assert b"Traceback" not in done.stderr
        return done.stdout.decode("utf-8")

    corpus, memory = tmp_path / "corpus.tsv", str(tmp_path / "mine")
    pairs = islice(many_pairs(sentences), 800)
    corpus.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs), "utf-8")
    run("learn", "--train", str(corpus), "-o", memory)
    assert Memory.open(memory).entries > EXACT_BELOW
    check_index(Path(memory))
    lines = [text for text in TEXTS if len(text.splitlines()) == 1 and "\0" not in text]
    assert len(run("translate", "-m", memory, stdin="\n".join(lines) + "\n").split("\n")) == len(lines) + 1
    assert ADDED[0] not in run("explain", "-m", memory, "--json", ADDED[0])
    run("add", "-m", memory, *ADDED)
    assert run("translate", "-m", memory, stdin=ADDED[0] + "\n").strip() == ADDED[1]
    assert ADDED[1] in run("explain", "-m", memory, "--json", ADDED[0])
    run("remove", "-m", memory, *ADDED)
    assert Memory.open(memory).find(*ADDED) == []
