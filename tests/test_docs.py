"""The documentation site builds without a warning, and every public name of the API page has a docstring."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from ibidem.cli.app import app, repeat_file_options

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "demo/README.md")]
PAGES += sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "docs").glob("*/*.md"))
COMMANDS = typer.main.get_command(app)
# What ends the arguments of a command in a shell; `#` begins a comment.
SHELL = {"|", "<", ">", "&&", "||", ";", "&"}


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Translate texts" in (tmp_path / "api" / "index.html").read_text("utf-8")


def test_every_name_of_the_api_page_exists_and_has_a_docstring() -> None:
    names = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text("utf-8"), re.MULTILINE)
    assert len(names) > 10
    for name in names:
        module, _, attribute = name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute)
        assert found.__doc__, name


def find_commands(text: str) -> list[tuple[list[str], bool]]:
    """Return the arguments of every `ibidem` command of a page, and whether it stands in a block, as a whole."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [
        (line, True)
        for language, block in blocks
        if language in ("", "sh", "bash")
        for line in block.replace("\\\n", " ").splitlines()
        if re.search(r"\bibidem \w", line)
    ]
    lines += [
        (line, False)
        for line in re.findall(r"(?<!`)`(ibidem [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    ]
    found = []
    for line, whole in lines:
        words = shlex.split(line, comments=True)
        begins = [
            place + 1
            for place, word in enumerate(words)
            if word == "ibidem" and (place == 0 or words[place - 1] in SHELL or "=" in words[place - 1])
        ]
        for begin in begins:
            end = next((place for place, word in enumerate(words) if word in SHELL and place > begin), len(words))
            found.append((words[begin:end], whole))
    return [(words, whole and "…" not in " ".join(words)) for words, whole in found if words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_printed_commands_can_be_given(page: Path) -> None:
    """Commands in blocks are read as the command line reads them; of others command and options must exist."""
    for words, whole in find_commands(page.read_text("utf-8")):
        command = COMMANDS
        arguments = [word.removesuffix("…") for word in repeat_file_options(words) if word not in ("…", "[…]")]
        name = "ibidem"
        while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
            assert arguments[0] in command.commands, f"{words}: no command {arguments[0]}"
            name, command = arguments[0], command.commands[arguments.pop(0)]
        if whole and not hasattr(command, "commands"):
            try:
                command.make_context(name, arguments).close()
            except Exception as error:  # those of click, which typer may carry with it
                pytest.fail(f"{' '.join(words)}: {error}")
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        given = {word.partition("=")[0] for word in arguments if re.fullmatch(r"--[a-z][a-z-]*(=.*)?|-[a-z]", word)}
        assert not given - known - {"--help", "-h"}, f"{words}: {given - known}"


def test_a_printed_command_with_an_unknown_option_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for wrong in (
        "```\nibidem learn --train a.tmx --nothing -o m\n```",
        "```\nibidem learn -o m # no text\n```",
        "`ibidem x`",
    ):
        page.write_text(f"{wrong}\n", "utf-8")
        with pytest.raises((pytest.fail.Exception, AssertionError)):
            test_printed_commands_can_be_given(page)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/README.md"])
def test_links_to_files_exist(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in target]
    assert targets
    assert [target for target in targets if not ((ROOT / page).parent / target).exists()] == []


def test_every_decision_is_listed_by_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^\| (\d+) \| \[(.*)\]\((.*)\) \|$", (folder / "README.md").read_text("utf-8"), re.MULTILINE)
    pages = sorted(page for page in folder.glob("*.md") if page.name != "README.md")
    titles = [page.read_text("utf-8").splitlines()[0].removeprefix("# ") for page in pages]
    expected = [
        (str(number), title, page.name) for number, (title, page) in enumerate(zip(titles, pages, strict=True), 1)
    ]
    assert listed == expected
