"""Find every number with a decimal point of the results pages in a stored row or data file.

    python scripts/trace_numbers.py              # check
    python scripts/trace_numbers.py --write      # check, then write docs/results/numbers.json again

Pages are docs/results/*.md, and of README.md the tables and the lines that link to results. A number must stand in a
file that its section, or the text before the first section, links to: a JSON file of docs/results/data, or a generated
table (docs/results/tables/*.md, docs/results/wide/*.md). Where these link to no such file, the links of the whole page
count. The README has the data of the demo and of the default configuration. A difference with its p value must stand in
one cell of a generated table. Code, commands and addresses are not searched.

docs/results/numbers.json has the place where each number stands and a digest of all numbers of a page in their order,
also those without a decimal point, so that a number that was changed by hand is noticed even if another stored number
equals it.

In the other pages of docs and docs/decisions, the paragraphs that link to results or to their data are searched too.
Their sources are the files that they link to, and those that the linked results pages link to.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
README = "README.md"
DOCS = "docs"
RESULTS = "docs/results"
PLACES = "docs/results/numbers.json"
WRITE = "python scripts/trace_numbers.py --write"
# The README links to pages, not to data.
README_SOURCES = ("docs/results/data/demo.json", "docs/results/data/default.json")

# The page of which another test, that of the script which computes its numbers, reads the tables.
COMPUTED = ("docs/scale.md",)

# 1.15.1 and Python 3.11 are versions, not numbers; the sign may be a hyphen or a minus.
_NUMBER = re.compile(
    r"(?<![\w.])(?<!Python )([-+−]?)(\d[\d,]*\.\d+)(?![\d.]*\.\d)(?!\w*-bit)\s?(%|M\b|million\b|GB\b)?"
)
# What a stored number may be multiplied with, by the unit that follows the printed one.
_FACTORS = {"%": (1.0, 100.0), "M": (1e-6, 1.0), "million": (1e-6, 1.0), "GB": (1.0, 1e-3)}
# Every number, for the digests.
_DIGITS = re.compile(r"[-+−]?\d(?:[\d,.]*\d)?")
# A difference with its interval, if it has one, and its p value.
_TESTED = re.compile(r"([-+]\d+\.\d+)(?:\*\*)?(?: \[([-+]\d+\.\d+), ([-+]\d+\.\d+)\])?,? \(?p [=<] (\d\.\d+)(?![\d,])")
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
_TARGET = re.compile(r"\]\([^)]*\)")
_LINK = re.compile(r"\]\(([^)#\s]+)")
_HEADING = re.compile(r"^#+ ", re.MULTILINE)
_SECTION = re.compile(r"^##+ ", re.MULTILINE)
_PARAGRAPH = re.compile(r"(?:^.*\S.*\n?)+", re.MULTILINE)


@dataclass(frozen=True)
class Number:
    """A number of a page.

    Attributes:
        page: Path of the page, relative to the root.
        line: Line in it, from 1.
        text: The number as printed, with its sign.
        unit: "%", "M", "million" or "GB" where it follows the number, else "".
        sources: Files in which it must stand, relative to the root.
    """

    page: str
    line: int
    text: str
    unit: str
    sources: tuple[str, ...]

    @property
    def value(self) -> float:
        """The number without its unit."""
        return float(self.text.replace(",", "").replace("−", "-"))

    @property
    def signed(self) -> bool:
        """Whether it is printed with a sign."""
        return self.text[0] in "+-−"

    @property
    def tolerance(self) -> float:
        """Half a unit of its last digit."""
        return 0.5 * float(10 ** -len(self.text.rpartition(".")[2])) + 1e-9


def find_pages(root: Path) -> list[str]:
    """Return the pages whose numbers are traced, relative to the root.

    Args:
        root: Root of the repository.
    """
    return [README, *(str(page.relative_to(root)) for page in sorted((root / RESULTS).glob("*.md")))]


def find_other_pages(root: Path) -> list[str]:
    """Return the pages of which only the paragraphs that link to results are traced, relative to the root.

    Args:
        root: Root of the repository.
    """
    folders = (root / DOCS, root / DOCS / "decisions")
    pages = [str(page.relative_to(root)) for folder in folders for page in sorted(folder.glob("*.md"))]
    return [page for page in pages if page not in COMPUTED]


def read_numbers(root: Path, page: str) -> Iterator[Number]:
    """Yield the numbers with a decimal point of a page.

    Args:
        root: Root of the repository.
        page: Path of the page, relative to the root.
    """
    text = (root / page).read_text("utf-8")
    for start, section, sources in _split(root, page):
        for match in _NUMBER.finditer(section):
            line = text.count("\n", 0, start + match.start(2)) + 1
            yield Number(page, line, match[1] + match[2], match[3] or "", sources)


def _shows_results(line: str) -> bool:
    """Return whether a line of the README has figures: it is of a table, or links to results."""
    return line.startswith("|") or f"]({RESULTS}/" in line


def find_place(root: Path, number: Number) -> str | None:
    """Return where one of the number's sources holds it, rounded to its digits; None where none does.

    Args:
        root: Root of the repository.
        number: Number of a page.

    Returns:
        File and path of JSON keys, or file and first cell of the line of a table.
    """
    factors = _FACTORS.get(number.unit, (1.0,))
    for factor in factors:
        for source in number.sources:
            for place, value in _read_values(root / source):
                found = factor * value
                if abs(found - number.value) <= number.tolerance or (
                    not number.signed and abs(found + number.value) <= number.tolerance
                ):
                    return f"{Path(source).relative_to(RESULTS)}: {place}"
    return None


def find_separated(root: Path, page: str) -> Iterator[str]:
    """Yield a message for every difference that no cell of the generated tables has together with its p value.

    Only sections whose sources are all generated tables are searched.

    Args:
        root: Root of the repository.
        page: Path of the page, relative to the root.
    """
    for start, section, sources in _split(root, page):
        tables = [source for source in sources if source.endswith(".md")]
        if not tables or len(tables) != len(sources):
            continue
        cells = [
            set(_parse(cell)) for source in tables for cell in re.split(r"[|;]", (root / source).read_text("utf-8"))
        ]
        for match in _TESTED.finditer(section):
            numbers = {float(number) for number in match.groups() if number is not None}
            if not any(numbers <= cell for cell in cells):
                line = (root / page).read_text("utf-8").count("\n", 0, start + match.start()) + 1
                yield (
                    f"{page}:{line}: {match[0]} stands in no cell of {', '.join(tables)}: copy difference, interval "
                    "and p value from the generated table, or take them out."
                )


def describe(number: Number) -> str:
    """Say which number was not found, and what to do.

    Args:
        number: Number of a page that no source holds.
    """
    places = ", ".join(number.sources) or "no file: the section and the page link to none"
    return (
        f"{number.page}:{number.line}: {number.text}{number.unit} stands in none of its sources ({places}). Link the "
        "section to the JSON file under docs/results/data that holds it, store it there with its command and commit, "
        "or take the number out."
    )


def describe_places(root: Path, page: str) -> dict[str, Any]:
    """Return what numbers.json has of a page: a digest of its numbers in their order, and the place of each by source.

    Args:
        root: Root of the repository.
        page: Path of the page, relative to the root.
    """
    numbers = list(read_numbers(root, page))
    order = " ".join(number for _, section, _ in _split(root, page) for number in _DIGITS.findall(section))
    places: dict[str, dict[str, str]] = {}
    for number in numbers:
        source, _, place = (find_place(root, number) or "").partition(": ")
        places.setdefault(source, {})[number.text + number.unit] = place
    return {"digest": hashlib.sha256(order.encode()).hexdigest()[:16], "places": places}


def _list_numbers(page: dict[str, Any]) -> set[str]:
    """Return the numbers with a decimal point that numbers.json has of a page."""
    return {number for places in page.get("places", {}).values() for number in places}


def trace(root: Path, page: str) -> list[str]:
    """Return a message for every number of a page that is stored nowhere, else one where numbers.json has others.

    Args:
        root: Root of the repository.
        page: Path of the page, relative to the root.
    """
    found = [describe(number) for number in read_numbers(root, page) if find_place(root, number) is None]
    found += find_separated(root, page)
    stored, now = read_places(root).get(page, {"digest": "", "places": {}}), describe_places(root, page)
    if not found and stored["digest"] != now["digest"]:
        decimal = ", ".join(sorted(_list_numbers(stored) ^ _list_numbers(now)))
        changed = decimal or "one without a decimal point, or their order"
        found.append(
            f"{page}: its numbers are not those of {PLACES} (different: {changed}). Compare the changed numbers with "
            f"their sources, then run `{WRITE}` (or `make results`) and commit the file."
        )
    return found


def trace_other(root: Path, page: str) -> list[str]:
    """Return a message for every number of a page outside of docs/results that none of its paragraph's sources holds.

    Args:
        root: Root of the repository.
        page: Path of the page, relative to the root.
    """
    return [describe(number) for number in read_numbers(root, page) if find_place(root, number) is None]


def read_places(root: Path) -> dict[str, Any]:
    """Read numbers.json; empty where it does not exist or is no JSON, as after a merge with conflicts.

    Args:
        root: Root of the repository.
    """
    file = root / PLACES
    try:
        places: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    except ValueError:
        return {}
    return places


def write_places(root: Path) -> None:
    """Write numbers.json.

    Args:
        root: Root of the repository.
    """
    places = {page: describe_places(root, page) for page in find_pages(root)}
    text = json.dumps(places, indent=0, ensure_ascii=False) + "\n"
    (root / PLACES).write_text(text, encoding="utf-8", newline="\n")


def _split(root: Path, page: str) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield position, text without code and addresses, and sources of every part of a page that is searched."""
    text = (root / page).read_text("utf-8")
    if page == README:
        everywhere = tuple(dict.fromkeys([*_find_sources(root, page, text), *README_SOURCES]))
        parts = [(*span, everywhere) for span in _find_lines(text) if _shows_results(text[slice(*span)])]
    elif page.startswith(RESULTS):
        everywhere = _find_sources(root, page, text)
        opening = _find_sources(root, page, _SECTION.split(text)[0])
        starts = [0, *(match.start() for match in _HEADING.finditer(text)), len(text)]
        parts = []
        for start, end in pairwise(starts):
            own = tuple(dict.fromkeys([*_find_sources(root, page, text[start:end]), *opening]))
            parts.append((start, end, own or everywhere))
    else:
        parts = [(m.start(), m.end(), _find_linked(root, page, m[0])) for m in _PARAGRAPH.finditer(text)]
        parts = [part for part in parts if part[2]]
    cleared = _CODE.sub(_blank, text)
    for start, end, sources in parts:
        yield start, _TARGET.sub(_blank, cleared[start:end]), sources


def _find_lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for line in text.splitlines(keepends=True):
        yield start, start + len(line)
        start += len(line)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _find_sources(root: Path, page: str, text: str) -> tuple[str, ...]:
    """Return the data files and generated tables that a text links to, each once."""
    found: dict[str, None] = {}
    for link in _LINK.findall(text):
        path = ((root / page).parent / link).resolve()
        if not path.is_relative_to(root / RESULTS) or not path.is_file():
            continue
        folder = path.parent.name
        if (folder == "data" and path.suffix == ".json") or (folder in ("tables", "wide") and path.suffix == ".md"):
            found[str(path.relative_to(root))] = None
    return tuple(found)


def _find_linked(root: Path, page: str, text: str) -> tuple[str, ...]:
    """Return the data files and generated tables that a text links to, directly or by way of a results page."""
    found = dict.fromkeys(_find_sources(root, page, text))
    for link in _LINK.findall(text):
        path = ((root / page).parent / link).resolve()
        if path.parent == root / RESULTS and path.suffix == ".md" and path.is_file():
            linked = str(path.relative_to(root))
            found.update(dict.fromkeys(_find_sources(root, linked, path.read_text("utf-8"))))
    return tuple(found)


@cache
def _read_values(source: Path) -> tuple[tuple[str, float], ...]:
    """Return all numbers of a file with their places: those of its JSON, and those that its texts contain."""
    text = source.read_text("utf-8")
    if source.suffix == ".json":
        try:
            return tuple(_walk(json.loads(text), ""))
        except ValueError as error:
            raise SystemExit(
                f"{source} is no JSON ({error}): restore it, or remove its link from the pages."
            ) from error
    return tuple((_name_line(line), value) for line in text.splitlines() for value in _parse(line))


def _name_line(line: str) -> str:
    return line.split("|")[1].strip() if line.startswith("|") else line[:40]


def _walk(node: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(node, dict):
        for name, part in node.items():
            below = f"{path}.{name}" if path else name
            yield from ((below, value) for value in _parse(name))
            yield from _walk(part, below)
    elif isinstance(node, list):
        for number, part in enumerate(node):
            yield from _walk(part, f"{path}[{number}]")
    elif isinstance(node, str):
        yield from ((path, value) for value in _parse(node))
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield path, float(node)


def _parse(text: str) -> Iterator[float]:
    for match in re.finditer(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?", text):
        yield float(match[0].replace(",", "").replace("−", "-"))


def main(arguments: list[str]) -> int:
    """Print what is stored nowhere or out of date; return 1 where there is something.

    Args:
        arguments: `--write` writes numbers.json first, if every number is stored.
    """
    pages = find_pages(ROOT)
    missing = [m for page in pages for m in trace(ROOT, page) if WRITE not in m]
    if "--write" in arguments and not missing:
        write_places(ROOT)
    messages = [message for page in pages for message in trace(ROOT, page)]
    messages += [message for page in find_other_pages(ROOT) for message in trace_other(ROOT, page)]
    print("\n".join(messages) or f"All numbers of {len(pages)} pages stand in a stored row or data file.")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
