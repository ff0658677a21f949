"""The translation service behind all APIs: splits texts into sentences, queues them, and joins the translations."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from ibidem.errors import UsageError
from ibidem.serve.audit import AuditLog
from ibidem.serve.batcher import Batcher, BatchSettings
from ibidem.serve.client_places import ClientPlaces
from ibidem.serve.disconnect import cancel_on_disconnect
from ibidem.serve.documents import Documents
from ibidem.serve.glossaries import GlossaryStore
from ibidem.serve.http_error import BusyError, HttpError, ReadOnlyError
from ibidem.serve.jobs import Job, Jobs
from ibidem.serve.language_detection import choose_detected, detect_languages
from ibidem.serve.markup import count_blocks, translate_markup
from ibidem.serve.memory_store import RIGHTS, MemoryStore, Rights
from ibidem.serve.memory_writer import MemoryWriters, Written
from ibidem.serve.replication import Followers
from ibidem.serve.request import Model, choose_memories, choose_pair, parse_fields, read_fields
from ibidem.serve.search import find_all_matches
from ibidem.serve.text_translation import TextTranslation, fill_all

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from starlette.requests import Request

    from ibidem.decode import Splitting, TextLayout
    from ibidem.memory import Replica
    from ibidem.serve.auth import Authenticator
    from ibidem.serve.engine import Engine, PieceTranslation
    from ibidem.serve.engine import Pair as LanguagePair
    from ibidem.serve.language_detection import Detected
    from ibidem.serve.limits import Limits, ServeSettings
    from ibidem.serve.metrics import Metrics
    from ibidem.serve.request import RequestOptions
    from ibidem.text import Corpus, Pair

Outcome = TypeVar("Outcome")

_IO_THREADS = 8
# Exports, searches and changes of memories may take seconds. They have threads of their own, of which a client has two.
_LONG_THREADS = 8
_CLIENT_LONG_TASKS = 2
_LONG_WAIT_SECONDS = 30.0
_MARKUP_THREADS = 16
_CLOSE_SECONDS = 1.0
_CHECK_SECONDS = 0.2
# Lines of a document may take this many times as long as those of a request, since no person waits for them.
_DOCUMENT_TIME_FACTOR = 10
# Splitting this many characters takes less time than a change of threads.
_INLINE_SPLIT_CHARACTERS = 2_000


class Service:
    """Translates texts and changes memories within the limits of a server.

    Args:
        engine: The base model and the memories.
        authenticator: Checks keys and rates.
        settings: Settings and limits.
        metrics: Receives counts of the work.
        replicas: The replicas among the memories, by name; the service closes them.

    Raises:
        UsageError: The setting `suggestion_memory` does not name a memory.
    """

    def __init__(
        self,
        engine: Engine,
        authenticator: Authenticator,
        settings: ServeSettings,
        metrics: Metrics,
        replicas: Mapping[str, Replica] | None = None,
    ) -> None:
        self.engine = engine
        self.authenticator = authenticator
        self.settings = settings
        self.metrics = metrics
        limits = settings.limits
        batch_settings = BatchSettings(
            engine.batch_size,
            limits.queue_characters,
            limits.min_line_characters,
            limits.wait_seconds,
            budget=engine.budget,
            request_seconds=limits.request_seconds,
        )
        self.batcher: Batcher[PieceTranslation] = Batcher(engine.translate, batch_settings, metrics)
        self.writers = MemoryWriters(
            engine.model_of, engine.memories, read_only=settings.read_only, address=settings.writer
        )
        self.memories = MemoryStore(
            settings.memories,
            engine,
            self.writers,
            limits,
            read_only=settings.read_only,
            address=settings.writer,
            is_importing=lambda name: self.jobs.is_importing(name),
        )
        if settings.suggestion_memory is not None and settings.suggestion_memory not in self.writers.names:
            raise UsageError(
                f"There is no memory {settings.suggestion_memory} for suggestions: name the folder of a -m option."
            )
        self.glossaries = GlossaryStore(
            settings.glossaries,
            engine.glossary,
            limits,
            engine.glossary_pair,
            read_only=settings.read_only,
            address=settings.writer,
        )
        self._io_pool = ThreadPoolExecutor(_IO_THREADS, "ibidem-io")
        self._long_pool = ThreadPoolExecutor(_LONG_THREADS, "ibidem-long")
        self._long_tasks = ClientPlaces(_CLIENT_LONG_TASKS, _LONG_WAIT_SECONDS)
        self._markup_pool = ThreadPoolExecutor(_MARKUP_THREADS, "ibidem-markup")
        self._markup_places = ClientPlaces(_MARKUP_THREADS // 2, limits.wait_seconds)
        self.audit = AuditLog(settings.audit)
        self.documents = Documents(self.translate_lines, (engine.source, engine.target), limits)
        self.jobs = Jobs(self._import, engine.pair_of, limits, self.writers.folders, self._record_finished)
        self.jobs.resume()
        self.followers = Followers(engine.memories, replicas or {}, limits) if settings.read_only else None

    @property
    def limits(self) -> Limits:
        """The limits of requests."""
        return self.settings.limits

    @property
    def suggestion_memory(self) -> str | None:
        """Name of the memory that receives suggestions of the default pair, None if there is none."""
        return self.suggestion_memory_for(self.engine.pairs[0])

    def suggestion_memory_for(self, pair: LanguagePair) -> str | None:
        """Return the name of the memory that receives suggestions: the first that all keys may change.

        Args:
            pair: The languages of the suggestions.

        Returns:
            The name; None if no memory receives them.
        """
        given = self.settings.suggestion_memory
        names = [name for name in self.writers.names if self.engine.pair_of(name) == pair]
        if given is not None and self.engine.pair_of(given) == pair:
            return given if given in names else None
        return next((name for name in names if self.memories.others(name) in (None, "write")), None)

    def rights(self, request: Request, name: str) -> Rights:
        """Return what a request may do with a memory.

        Args:
            request: The request, whose key was checked.
            name: Name of the memory.
        """
        state = request.state
        return self.memories.rights(name, state.owner, state.scope, required=self.authenticator.required)

    def usable_memories(self, request: Request, weights: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return the weights of the memories that a request may use.

        Args:
            request: The request, whose key was checked.
            weights: Weights by name; None for the default weights of all memories.
        """
        weights = self.engine.default_weights if weights is None else weights
        return {name: weight for name, weight in weights.items() if self.rights(request, name) != "none"}

    def check_rights(self, request: Request, name: str, needed: Rights) -> None:
        """Check the rights of a request on one memory.

        Args:
            request: The request, whose key was checked.
            name: Name of the memory.
            needed: The rights that the request needs.

        Raises:
            HttpError: 403, the key has lower rights; 404, there is no such memory, or the key may not use it.
        """
        found = self.rights(request, name)
        if name not in self.engine.memories or found == "none":
            raise HttpError(404, f"There is no memory {name[:40]}")
        if self.settings.read_only and needed != "read":
            raise ReadOnlyError(self.settings.writer)
        if needed == "manage" and self.memories.others(name) is None:
            raise HttpError(403, "The operator of the server gives this memory: it cannot be renamed or deleted here.")
        if RIGHTS.index(found) < RIGHTS.index(needed):
            raise HttpError(403, "The memory belongs to another key, which does not allow this.")

    @property
    def seconds_behind(self) -> float:
        """Seconds since the memories of a read-only server were up to date; 0 for a writer."""
        return 0.0 if self.followers is None else self.followers.seconds_behind

    def close(self) -> None:
        """End all work: imports stop, and running translations stop at their next decoding step.

        The server calls this when all requests are answered or their time for shutting down is over.
        """
        if self.followers is not None:
            self.followers.close()
        self.jobs.close()
        self.documents.close()
        self.batcher.close(_CLOSE_SECONDS)
        for pool in (self._io_pool, self._long_pool, self._markup_pool):
            pool.shutdown(wait=True)
        self.writers.close()
        self.audit.close()

    async def choose_pair(self, source: str | None, target: str | None, texts: Sequence[str] = ()) -> LanguagePair:
        """Choose the pair of languages of a request; a language that it does not name is detected if several fit.

        Args:
            source: Its source language; None, `""` and `"auto"` for any.
            target: Its target language; None and `""` for any.
            texts: Its texts.

        Returns:
            One of the pairs of the server.

        Raises:
            HttpError: 400, the server does not translate this pair.
        """
        pairs = self.engine.pairs
        if len(pairs) == 1 or source not in (None, "", "auto"):
            return choose_pair(pairs, source, target)
        sources = {one for one, _ in pairs}
        return await self.run_in_thread(
            choose_pair, pairs, source, target, lambda: choose_detected(sources, self.detect(texts))
        )

    def choose_memories(
        self, request: Request, given: Sequence[str] | Mapping[str, float] | None, pair: LanguagePair
    ) -> tuple[tuple[str, float], ...]:
        """Resolve the memories that a request names.

        Args:
            request: The request, whose key was checked.
            given: Names, each alone or as `NAME:WEIGHT`, or weights by name; None for all memories of the languages.
            pair: The languages of the request.

        Returns:
            Names and weights.

        Raises:
            HttpError: 400, a name or a weight is invalid, or a memory is for other languages.
        """
        usable = self.usable_memories(request)
        for name in given or ():
            bare = name if name in usable else name.rpartition(":")[0]
            if bare in usable and (own := self.engine.pair_of(bare)) != pair:
                raise HttpError(
                    400, f"The memory {bare} is for {own[0]} to {own[1]}, and the request for {pair[0]} to {pair[1]}."
                )
        available = {name: weight for name, weight in usable.items() if self.engine.pair_of(name) == pair}
        return choose_memories(given, available, self.limits.memories)

    def detect(self, texts: Sequence[str]) -> list[Detected]:
        """Detect the language of texts.

        Args:
            texts: The texts, which are taken together.

        Returns:
            The languages, the most probable first; an empty list if there is no letter.
        """
        return detect_languages(texts, {language for pair in self.engine.pairs for language in pair})

    async def read(self, request: Request, model: type[Model], *, scope: str = "read") -> Model:
        """Check the key of a request and read its body.

        A key in the header or the query is checked before the body is read, a key in the body before the other fields.

        Args:
            request: The request.
            model: Schema of the body.
            scope: The scope that the key must have: `read`, `write` or `admin`.

        Returns:
            The validated body.

        Raises:
            HttpError: The key or the body is invalid.
        """
        self.authenticator.check_before_body(request, scope=scope)
        body = await read_fields(request, self.limits)
        key = body.fields.get("api_key") or body.fields.get("auth_key")
        self.authenticator.check(request, key if isinstance(key, str) else None, scope=scope)
        return parse_fields(model, body)

    async def run_in_thread(self, function: Callable[..., Outcome], *arguments: object) -> Outcome:
        """Call a function that may wait for a disk or a lock, without blocking the event loop.

        Args:
            function: The function.
            *arguments: Its arguments.

        Returns:
            The result of the function.
        """
        return await asyncio.get_running_loop().run_in_executor(self._io_pool, function, *arguments)

    async def run_long_task(self, request: Request, function: Callable[..., Outcome], *arguments: object) -> Outcome:
        """Call a function that may take seconds; a client waits for its own calls before others have to wait for it.

        Args:
            request: The request, whose key was checked.
            function: The function.
            *arguments: Its arguments.

        Returns:
            The result of the function.

        Raises:
            HttpError: 503, the client's other calls take too long.
        """
        place = await self._long_tasks.acquire(self._client_of(request))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._long_pool, function, *arguments)
        finally:
            place.release()

    async def learn(
        self, request: Request, name: str, pairs: Sequence[tuple[str, str]], origin: str, *, replace: bool = False
    ) -> Written:
        """Add pairs to a memory; they are on disk when this returns.

        Args:
            request: The request, for the audit log.
            name: Name of the memory.
            pairs: Sources and targets.
            origin: Where the pairs come from, for citations.
            replace: Whether to remove other pairs of the same sources.

        Returns:
            Ids of the new and the known pairs, and the removed pairs.

        Raises:
            HttpError: 400, there is no pair or a limit is exceeded; and the errors of `MemoryWriters`.
        """
        self.check_rights(request, name, "write")
        if not pairs:
            raise HttpError(400, "Invalid request: there is no pair")
        if len(pairs) > self.limits.texts:
            raise HttpError(400, f"Invalid request: {len(pairs)} pairs are more than {self.limits.texts}")
        self.check_size([text for pair in pairs for text in pair], count=False)
        write = self.writers.correct if replace else self.writers.add_texts

        def write_and_log() -> Written:
            written = write(name, pairs, origin)
            replaced = [pair.id for pair in written.replaced]
            action = "replace" if replace else "add"
            self.audit.write(action, name, request, added=written.added, known=written.known, removed=replaced)
            return written

        written = await self.run_long_task(request, write_and_log)
        self.metrics.count_learnt(len(written.added))
        return written

    async def remove(self, request: Request, name: str, remove: Callable[..., list[int]], *what: object) -> list[int]:
        """Remove pairs of a memory; the change is on disk when this returns.

        Args:
            request: The request, for the audit log.
            name: Name of the memory.
            remove: A method of `MemoryWriters` that removes pairs.
            *what: Its arguments after the name.

        Returns:
            The ids of the removed pairs.

        Raises:
            HttpError: The errors of `MemoryWriters`.
        """
        self.check_rights(request, name, "write")

        def remove_and_log() -> list[int]:
            removed = remove(name, *what)
            self.audit.write("remove", name, request, removed=removed)
            return removed

        return await self.run_long_task(request, remove_and_log)

    def _record_finished(self, job: Job) -> None:
        self.audit.write("import_done", job.memory, job=job.id, state=job.state, added=job.added, read=job.read)

    def _import(self, job: Job, pairs: Iterator[Pair], corpus: Corpus) -> tuple[int, str]:
        def report(_: str, __: float | None, done: int, ___: str) -> None:
            job.added = done
            self.jobs.check(job)
            read = corpus.fraction()  # reading is ahead of learning
            job.share = None if read is None else read * done / max(job.read, done)

        written = self.writers.add(job.memory, pairs, corpus.counts, report)
        self.metrics.count_learnt(len(written.added))
        known = f"; {len(written.known):,} were known already" if written.known else ""
        languages = corpus.languages
        direction = f", from {languages.source} to {languages.target}" if corpus.declares_languages else ""
        return len(written.added), f"{corpus.counts.describe()}{direction}{known}"

    async def translate(
        self,
        request: Request,
        texts: Sequence[str],
        options: RequestOptions,
        splitting: Splitting | None = None,
        *,
        matches: int = 0,
        min_confidence: float = 0.0,
    ) -> list[TextTranslation]:
        """Translate texts sentence by sentence, as `ibidem translate` does.

        Args:
            request: The request; if its client closes the connection, the work stops.
            texts: Texts of any number of lines.
            options: Memories and outputs.
            splitting: Where to split the texts; None for the setting of the server.
            matches: The most matching pairs of each sentence; `options.with_vectors` must be set for fuzzy ones.
            min_confidence: Sentences of a lower confidence are left empty.

        Returns:
            One translation for each text.

        Raises:
            HttpError: A limit is exceeded, the server is busy, or the client closed the connection.
        """
        self.check_size(texts)
        if options.alternatives > self.limits.alternatives:
            raise HttpError(400, f"Invalid request: at most {self.limits.alternatives} alternatives")
        self._check_lines(sum(not line.isspace() for text in texts for line in text.splitlines()))
        if sum(map(len, texts)) <= _INLINE_SPLIT_CHARACTERS and not options.memories:
            layouts = self.engine.split(texts, options, splitting)
        else:
            layouts = await self.run_in_thread(self.engine.split, texts, options, splitting)
        submitted = self._submit(options, layouts, client=self._client_of(request))
        found = await cancel_on_disconnect(request, asyncio.wrap_future(submitted))
        near = None
        if matches:
            near = await self.run_in_thread(find_all_matches, self.engine, options, layouts, found, matches)
        return fill_all(layouts, found, min_confidence, near)

    def translate_lines(
        self, options: RequestOptions, lines: list[str], check: Callable[[], None]
    ) -> list[TextTranslation]:
        """Translate lines in a thread that may wait, such as one that translates a document.

        Args:
            options: The memories.
            lines: Single lines, few enough for one request.
            check: Called several times a second while the lines wait; it raises an exception to end the work.

        Returns:
            One translation for each line.

        Raises:
            HttpError: The translation took too long, or the server is shutting down.
        """
        layouts = self.engine.split(lines, options, None)
        while True:
            check()
            try:
                future = self._submit(
                    options, layouts, time.monotonic() + _DOCUMENT_TIME_FACTOR * self.limits.request_seconds
                )
                try:
                    while not future.done():
                        wait([future], timeout=_CHECK_SECONDS)
                        check()
                finally:
                    future.cancel()
                return fill_all(layouts, future.result())
            except BusyError:
                time.sleep(_CHECK_SECONDS)

    async def translate_markup(
        self,
        request: Request,
        texts: Sequence[str],
        options: RequestOptions,
        splitting: Splitting | None = None,
        ignored_tags: Sequence[str] = (),
    ) -> list[TextTranslation]:
        """Translate HTML or XML documents and keep their tags.

        Args:
            request: The request; if its client closes the connection, the work stops.
            texts: Documents.
            options: Memories. Alternatives and explanations are not available.
            splitting: Where to split the texts between tags; None for the setting of the server.
            ignored_tags: Names of elements whose content is kept as it is.

        Returns:
            One translation for each document, with the same tags.

        Raises:
            HttpError: An option is not available, a limit is exceeded, the server is busy, or the client closed the
                connection.
        """
        self.check_size(texts)
        if options.alternatives or options.explain:
            raise HttpError(400, "Invalid request: markup has no alternatives and no explanation; send plain text")
        ignored = frozenset(map(str.lower, ignored_tags))
        self._check_lines(sum(count_blocks(text, ignored) for text in texts))
        deadline = time.monotonic() + self.limits.request_seconds
        client = self._client_of(request)
        place = await self._markup_places.acquire(client)
        futures: list[Future[list[PieceTranslation]]] = []
        ended = threading.Event()
        missing: set[int] = set()

        def translate_lines(lines: list[str]) -> list[str]:
            layouts = self.engine.split(lines, options, splitting)
            futures.append(self._submit(options, layouts, deadline, client))
            if ended.is_set():  # the request ended before this future could be cancelled with the others
                futures[-1].cancel()
            made = fill_all(layouts, futures[-1].result())
            missing.update(number for line in made for number in line.missing_shards)
            return [line.text for line in made]

        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._markup_pool, translate_markup, texts, translate_lines, ignored)
        try:
            found = await cancel_on_disconnect(request, work)
            return [TextTranslation(text, [], missing_shards=tuple(sorted(missing))) for text in found]
        finally:
            place.release()
            ended.set()
            for future in futures:
                future.cancel()

    def check_size(self, texts: Sequence[str], *, count: bool = True) -> None:
        """Check the number of characters and of texts of a request.

        Args:
            texts: All texts of the request.
            count: Whether to check the number of texts too.

        Raises:
            HttpError: 400, a limit is exceeded.
        """
        if count and len(texts) > self.limits.texts:
            raise HttpError(400, f"Invalid request: request ({len(texts)}) exceeds batch limit ({self.limits.texts})")
        characters = sum(map(len, texts))
        if characters > self.limits.characters:
            raise HttpError(
                400, f"Invalid request: request ({characters}) exceeds text limit ({self.limits.characters})"
            )

    def _check_lines(self, count: int) -> None:
        if count > self.limits.lines:
            raise HttpError(400, f"Invalid request: {count:,} lines are more than {self.limits.lines:,}")

    def _client_of(self, request: Request) -> Hashable:
        """Identify the client of a request by its key, which may be in the body, or else by its address."""
        return request.state.owner or self.authenticator.identify(request)

    def _submit(
        self,
        options: RequestOptions,
        layouts: Sequence[TextLayout],
        deadline: float | None = None,
        client: Hashable = None,
    ) -> Future[list[PieceTranslation]]:
        """Queue the pieces of texts."""
        pieces = [piece for layout in layouts for piece in layout.pieces]
        sizes = [len(piece.ids) for piece in pieces]
        return self.batcher.submit(options, [piece.text for piece in pieces], sizes, deadline, client)
