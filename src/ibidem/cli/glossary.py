"""The commands of `ibidem glossary`: create, show and change the file of a glossary, import and export terms."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import note, print_table, say
from ibidem.errors import GlossaryError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ibidem.glossary import Entry, Glossary

app = typer.Typer(
    help="Create and change glossaries: terms with the translations that must be used for them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

_File = Annotated[Path, typer.Argument(metavar="FILE", help="File of the glossary.", show_default=False)]
_Terms = Annotated[Path, typer.Argument(metavar="TERMS", help="File of terms: CSV, TSV or TBX.", show_default=False)]
_Source = Annotated[str, typer.Option("--source-language", help="Language of the terms.")]
_Target = Annotated[str, typer.Option("--target-language", help="Language of the translations.")]
_Format = Annotated[
    str | None, typer.Option("--format", help="csv, tsv or tbx; default: the file's ending.", show_default=False)
]


@app.command()
def create(
    file: _File,
    terms: Annotated[
        Path | None,
        typer.Option("--from", help="File of terms to start with: CSV, TSV or TBX.", show_default=False),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the glossary; default: the file's.", show_default=False)
    ] = None,
    source_language: _Source = "de",
    target_language: _Target = "en",
    format: _Format = None,
) -> None:
    """Create a glossary, empty or from a file of terms."""
    from ibidem.glossary import ENDING, Glossary

    if file.suffix != ENDING:
        raise UsageError(f"The file of a glossary ends in {ENDING}: give for instance {file.stem}{ENDING}.")
    if file.exists():
        raise UsageError(f"{file} exists already: `ibidem glossary import` adds terms to it.")
    entries = () if terms is None else _read(terms, source_language, target_language, format)
    Glossary(name or file.stem, source_language, target_language, tuple(entries)).save(file)
    say(f"{file}: {_count(entries)}")


@app.command(name="list")
def list_glossaries(
    folder: Annotated[Path, typer.Argument(help="Folder with glossaries.")] = Path(),
    json: options.Json = False,
) -> None:
    """List the glossaries of a folder."""
    from ibidem.glossary import ENDING, Glossary

    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}: check the path.")
    found = []
    for file in sorted(folder.glob(f"*{ENDING}")):
        try:
            found.append((file, Glossary.open(file)))
        except GlossaryError as error:
            note(str(error))
    if json:
        print(json_module.dumps([{"file": str(file), **_describe(glossary)} for file, glossary in found]))
        return
    rows = [
        (str(file), one.name, f"{one.source_language} to {one.target_language}", f"{len(one):,}", str(one.version))
        for file, one in found
    ]
    print_table(
        f"{len(rows)} {'glossary' if len(rows) == 1 else 'glossaries'} in {folder}",
        rows,
        ("file", "name", "languages", "terms", "version"),
    )


@app.command()
def show(file: _File, json: options.Json = False) -> None:
    """Show the terms of a glossary."""
    from ibidem.glossary import load_glossary

    glossary = load_glossary(file)
    if json:
        entries = [{"source": entry.source, "targets": list(entry.targets)} for entry in glossary.entries]
        print(json_module.dumps({**_describe(glossary), "entries": entries}, ensure_ascii=False, indent=2))
        return
    title = f"{glossary.name}, version {glossary.version}: {_count(glossary.entries)}"
    rows = [(entry.source, " | ".join(entry.targets)) for entry in glossary.entries]
    print_table(title, rows, (glossary.source_language, glossary.target_language))


@app.command()
def add(
    file: _File,
    source: Annotated[str, typer.Argument(help="The term.", show_default=False)],
    targets: Annotated[list[str], typer.Argument(help="Its translations, best first.", show_default=False)],
) -> None:
    """Add a term; it replaces an entry of the same term."""
    from ibidem.glossary import Entry, clean_term, update_glossary

    entry = Entry(clean_term(source), tuple(map(clean_term, targets)))
    old = _open(file).find(entry.source)
    update_glossary(file, lambda glossary: glossary.add([entry]))
    replaced = "" if old is None or old == entry else f" (was {' | '.join(old.targets)})"
    say(f"{entry.source} -> {' | '.join(entry.targets)}{replaced}")


@app.command()
def remove(
    file: _File, sources: Annotated[list[str], typer.Argument(help="The terms to remove.", show_default=False)]
) -> None:
    """Remove terms; all or none."""
    from ibidem.glossary import update_glossary

    _open(file)
    glossary = update_glossary(file, lambda found: found.remove(sources))
    say(f"{file}: {_count(glossary.entries)}")


@app.command(name="import")
def import_terms(file: _File, terms: _Terms, format: _Format = None) -> None:
    """Add the terms of a CSV, TSV or TBX file; they replace entries of the same terms."""
    from ibidem.glossary import update_glossary

    glossary = _open(file)
    entries = _read(terms, glossary.source_language, glossary.target_language, format)
    known = {entry.source: entry for entry in glossary.entries}
    changed = [entry for entry in entries if known.get(entry.source, entry) != entry]
    new = sum(entry.source not in known for entry in entries)
    merged = update_glossary(file, lambda found: found.add(entries))
    for entry in changed[:10]:
        note(f"{entry.source}: {' | '.join(known[entry.source].targets)} -> {' | '.join(entry.targets)}")
    say(f"{file}: {new:,} new, {len(changed):,} changed, {_count(merged.entries)}")


@app.command()
def export(
    file: _File,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write; else stdout.")] = None,
    format: _Format = None,
) -> None:
    """Write the terms as CSV, TSV or TBX."""
    from ibidem.glossary import format_of, load_glossary, write_terms
    from ibidem.text import open_output

    chosen = format_of(output or "terms.csv", format)
    text = write_terms(load_glossary(file), chosen)
    if output is None:
        sys.stdout.write(text)
        return
    with open_output(output) as target:
        target.write(text.encode("utf-8"))


def _open(file: Path) -> Glossary:
    """Open the file of a glossary that a command is to change."""
    from ibidem.glossary import ENDING, Glossary

    if file.suffix != ENDING:
        raise UsageError(
            f"{file} is no {ENDING} file: make one with `ibidem glossary create {file.stem}{ENDING} --from {file}`."
        )
    return Glossary.open(file)


def _read(terms: Path, source_language: str, target_language: str, format: str | None) -> tuple[Entry, ...]:
    """Read a file of terms, and print how many rows repeat others."""
    from ibidem.glossary import read_terms

    found = read_terms(terms, source_language, target_language, format=format)
    if found.duplicates:
        note(f"{terms}: {found.duplicates:,} rows repeat others and were left out")
    return found.entries


def _describe(glossary: Glossary) -> dict[str, object]:
    return {
        "name": glossary.name,
        "source_language": glossary.source_language,
        "target_language": glossary.target_language,
        "version": glossary.version,
        "terms": len(glossary),
    }


def _count(entries: Iterable[Entry]) -> str:
    count = sum(1 for _ in entries)
    return f"{count:,} {'term' if count == 1 else 'terms'}"
