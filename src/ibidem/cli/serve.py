"""The command serve: the HTTP server with its web page, and its API keys."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import note
from ibidem.cli.options import TranslatorOptions
from ibidem.cli.settings import override
from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode import Translator
    from ibidem.memory import Replica
    from ibidem.serve import KeyStore

_KEY = "IBIDEM_API_KEY"
_FOLLOW_KEY = "IBIDEM_FOLLOW_KEY"
_LONGEST_PAUSE = 30.0


def serve(
    *,
    translator_options: TranslatorOptions,
    combiner: options.Combiner = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; one that others can reach needs keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 for any.")] = 5000,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            envvar="IBIDEM_KEYS",
            help=f"File with the hashes of API keys, one of which every request then needs; or set {_KEY}.",
            show_default=False,
        ),
    ] = None,
    new_key: Annotated[
        str | None,
        typer.Option(
            "--new-key",
            metavar="NOTE",
            help="Make a key, add its hash to --keys, print it once, and exit; a running server accepts it.",
            show_default=False,
        ),
    ] = None,
    scope: Annotated[
        str,
        typer.Option(
            "--scope",
            help="Scope of the new key: read (translate), write (also change memories), admin (all) or replicate "
            "(copy memories, for --follow).",
        ),
    ] = "write",
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", help="PEM file with the certificate chain, for TLS.", show_default=False),
    ] = None,
    private_key: Annotated[
        Path | None,
        typer.Option("--private-key", help="PEM file with the key of --certificate.", show_default=False),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option("--audit", help="File that gets a line for each change, without text.", show_default=False),
    ] = None,
    without_keys: Annotated[
        bool, typer.Option("--without-keys", help="Accept requests without a key from any address.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", help="A name by which clients call the server, such as that of a proxy.", show_default=False
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", help="Origin of web pages that may call the server.", show_default=False),
    ] = None,
    suggestion_memory: Annotated[
        str | None,
        typer.Option(
            "--learn-into", help="Name of the memory that takes suggestions; else the first.", show_default=False
        ),
    ] = None,
    memories: Annotated[
        Path | None,
        typer.Option(
            "--memories",
            help="Folder of memories that clients may use, create, rename and delete; all that it has are served. "
            "Without -m on this machine alone: a folder of the user.",
            show_default=False,
        ),
    ] = None,
    glossaries: Annotated[
        Path | None,
        typer.Option(
            "--glossaries",
            help="Folder of glossaries that clients may use, create and delete; it is created. Its default is like "
            "that of --memories.",
            show_default=False,
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Accept no suggestions and change no memory.")] = False,
    follow: Annotated[
        str | None,
        typer.Option(
            "--follow",
            metavar="URL",
            help="Address of the writer, or folder of object storage, that has memories of the names given with -m: "
            f"copy them to these folders and follow them, read-only. The writer's key is in {_FOLLOW_KEY}.",
            show_default=False,
        ),
    ] = None,
    writer: Annotated[
        str | None,
        typer.Option(
            "--writer",
            metavar="URL",
            help="Address that a read-only server names to clients that want to change a memory.",
            show_default=False,
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A limit, such as characters=5000 or rate=2.", show_default=False
        ),
    ] = None,
) -> None:
    """Serve translations over HTTP: LibreTranslate's API, DeepL's, OpenAI's, and a web page.

    A memory whose folder does not exist is created; it is filled by suggestions. Without -m, --memories and keys, the
    memories and glossaries that are made on the page are kept in a folder of the user. The server translates in the
    directions of its memories and of the known models (`ibidem model list`), or with --model, --source-language or
    --target-language in this one only.
    """
    from ibidem.serve import Limits

    limits = override(Limits(), assignments or ())
    if new_key is not None:
        _print_new_key(keys, new_key, scope)
        return
    _check_extra()
    from ibidem.serve import Certificate, ServeSettings, answering, is_loopback, listen, make_service
    from ibidem.serve import serve as run_server

    if private_key is not None and certificate is None:
        raise UsageError("A private key needs its certificate: give --certificate FILE.")
    for option, folder in (("--memories", memories), ("--glossaries", glossaries)):
        if folder is not None and folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file: {option} takes a folder, which is created if it does not exist.")
    store = _read_keys(keys)
    if not store and not without_keys and not is_loopback(host):
        raise UsageError(
            f"Any client that reaches {host} could read and change the memories: make a key with "
            "`ibidem serve --new-key NOTE --keys FILE` and give --keys FILE, or give --without-keys."
        )
    if not translator_options.memories and memories is None and is_loopback(host) and not store and not read_only:
        memories = data_folder() / "memories"
        glossaries = glossaries or data_folder() / "glossaries"
    settings = ServeSettings(
        limits=limits,
        keys_required=bool(store),
        hosts=(*ServeSettings.hosts, *(allow_host or ())) if is_loopback(host) else tuple(allow_host or ()),
        origins=tuple(allow_origin or ()),
        read_only=read_only or follow is not None,
        writer=writer or (follow if follow is not None and _is_server(follow) else None),
        replication=bool(store) or is_loopback(host),
        suggestion_memory=suggestion_memory,
        memories=memories,
        glossaries=glossaries,
        audit=audit,
    )
    translator_options.check(combiner)
    replicas = {} if follow is None else _make_replicas(follow, [name for name, _ in translator_options.memories])

    def describe_transfer() -> dict[str, object]:
        transfers = [replica.transfer for replica in replicas.values()]
        return {"bytes": sum(one.done for one in transfers), "of": sum(one.total for one in transfers)}

    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(listen(host, port))
        with answering(listener, describe_transfer) if certificate is None else contextlib.nullcontext():
            for replica in replicas.values():
                _fetch_first(replica)
            translators = open_translators(translator_options, combiner, create=not settings.read_only)
            service = make_service(translators, settings, store, replicas)
        run_server(
            service,
            host,
            port,
            lambda address: note(f"Serving on {address} - Ctrl+C ends."),
            certificate=None if certificate is None else Certificate(certificate, private_key),
            listener=listener,
        )


def _is_server(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _make_replicas(url: str, folders: Sequence[str]) -> dict[str, Replica]:
    """Prepare a replica for each folder; nothing is fetched."""
    from ibidem.memory import Replica, ServerSource, Source, Store

    if not folders:
        raise UsageError("--follow needs the folders of the copies: give each with -m; their names are the writer's.")
    replicas = {}
    for folder in folders:
        path = Path(os.path.abspath(folder))  # noqa: PTH100 (a link must not be resolved)
        source: Source
        if _is_server(url):
            source = ServerSource(url, path.name, os.environ.get(_FOLLOW_KEY))
        else:
            source = Store(f"{url.rstrip('/')}/{path.name}")
        replicas[path.name] = Replica(path, source)
    return replicas


def _fetch_first(replica: Replica) -> None:
    """Fetch a replica that is not there yet; repeat it until the source can be reached."""
    from ibidem.errors import LockedMemoryError, MemoryFolderError
    from ibidem.memory import ChangedSourceError, RefusedError

    pause = 1.0
    while not replica.exists:
        try:
            replica.update()
        except ChangedSourceError:
            continue
        except (RefusedError, LockedMemoryError):
            raise
        except MemoryFolderError as error:
            note(f"{error}; trying again in {pause:.0f} seconds.")
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)


def data_folder() -> Path:
    """Return the folder in which the programs of this user keep data, as the operating system has it."""
    home = Path.home()
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    return base / "ibidem"


def open_translators(given: TranslatorOptions, combiner: str | None, *, create: bool) -> list[Translator]:
    """Open a translator for each pair of languages of a server: those of the memories, then of the known models.

    Args:
        given: The options. With a model or a language, the server has only this direction.
        combiner: Name of the combiner, or None for the best that each memory has.
        create: Whether a memory whose folder does not exist is created.

    Returns:
        The translators, that of the default languages first.

    Raises:
        UsageError: An option is invalid, or does not fit the others.
    """
    from ibidem.learn import create_memory
    from ibidem.memory import Memory

    given.check(combiner)
    base = None
    missing = [folder for folder, _ in given.memories if not Memory.exists(folder)]
    if missing and create:
        base = given.load()
        for folder in missing:
            create_memory(folder, base)
            note(f"{folder} did not exist: an empty memory was created.")
    if given.model is not None or given.source_language or given.target_language:
        return [given.open(combiner, model=base)]
    groups: dict[tuple[str, ...], list[str]] = {}
    for value, (folder, _) in zip(given.memory or (), given.memories, strict=False):
        identity = Memory.open(folder).identity
        languages = identity.source_language or "", identity.target_language or ""
        key = (identity.name, *languages, identity.source_prefix)
        groups.setdefault(key, []).append(value)
    if len(groups) <= 1:
        translators = [given.open(combiner, model=base)]
    else:
        translators = [
            replace(given, memory=values, glossary=None, shards=given.shards if _has_shards(values) else None).open(
                combiner, model=base if base is not None and key[0] == base.name else None
            )
            for key, values in groups.items()
        ]
        _give_glossary(given, translators)
    return translators + _open_known_models(given, translators)


def _has_shards(values: Sequence[str]) -> bool:
    """Return whether one of some memories has an index that is divided into shards."""
    from ibidem.memory import Memory
    from ibidem.retrieve import plan_digest

    folders = [folder for folder, _ in TranslatorOptions(memory=list(values)).memories]
    return any(plan_digest(Memory.open(folder)) is not None for folder in folders)


def _give_glossary(given: TranslatorOptions, translators: Sequence[Translator]) -> None:
    """Give the glossary to the first translator of its languages."""
    for place, translator in enumerate(translators):
        try:
            translator.glossary = given.load_glossary(translator.model)
        except UsageError:
            if place == len(translators) - 1:
                raise
            continue
        return


def _open_known_models(given: TranslatorOptions, translators: Sequence[Translator]) -> list[Translator]:
    """Open each known model, without memories, whose languages no translator has yet."""
    from ibidem.model import known_models
    from ibidem.text import primary_language

    def pair_of(source: str | None, target: str | None) -> tuple[str, str]:
        return primary_language(source or ""), primary_language(target or "")

    served = {pair_of(one.model.tokens.source_language, one.model.tokens.target_language) for one in translators}
    plain = replace(
        given,
        memory=None,
        glossary=None,
        k=None,
        weight=None,
        temperature=None,
        index=None,
        shards=None,
        shard_secret=None,
        missing="flag",
    )
    opened = []
    for known in known_models():
        pair = pair_of(known.source_language, known.target_language)
        if pair not in served:
            served.add(pair)
            opened.append(replace(plain, model=known.name).open(None))
    return opened


def _check_extra() -> None:
    """Raise UsageError with the command to install if a package of the server is missing."""
    try:
        import fastapi  # noqa: F401
        import multipart  # noqa: F401
        import prometheus_client  # noqa: F401
        import py3langid  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(f"`ibidem serve` needs {error.name}: install it with pip install 'ibidem[serve]'.") from error


def _read_keys(path: Path | None) -> KeyStore:
    """Read all given keys."""
    from ibidem.serve import Key, KeyStore, hash_key, read_keys

    if path is not None and not read_keys(path):
        raise UsageError(f"{path} holds no key: make one with `ibidem serve --new-key NOTE --keys {path}`.")
    key = os.environ.get(_KEY)
    return KeyStore([Key(hash_key(key))] if key else [], path)


def _print_new_key(path: Path | None, remark: str, scope: str) -> None:
    from ibidem.serve import add_key

    if path is None:
        raise UsageError("A new key needs a file for its hash: give --keys FILE.")
    key = add_key(path, remark, scope)
    note(f"This key is shown once; {path} keeps its hash.")
    print(key)
