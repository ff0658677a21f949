"""Texts in, translations out: what all APIs of the server share."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ibidem.errors import UsageError
from ibidem.serve.batcher import Batcher, BatchSettings
from ibidem.serve.bodies import Model, parse, read_fields
from ibidem.serve.citations import cite
from ibidem.serve.jobs import Job, Jobs
from ibidem.serve.layout import lay_out
from ibidem.serve.markup import count_blocks, translate_markup
from ibidem.serve.refusal import Refusal
from ibidem.serve.registrar import Registrar, Written
from ibidem.text import primary_language

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from starlette.requests import Request

    from ibidem.decode import Piece
    from ibidem.serve.choice import Choice, Line
    from ibidem.serve.desk import Desk
    from ibidem.serve.gate import Gate
    from ibidem.serve.layout import Layout
    from ibidem.serve.metrics import Metrics
    from ibidem.serve.schemas import Citations
    from ibidem.serve.settings import Limits, ServeSettings
    from ibidem.text import Corpus, Pair

Outcome = TypeVar("Outcome")

# Threads that wait for a disk or a lock, and documents that are put together at the same time.
_HELPERS = 8
_WRITERS = 16
_LAST_SECONDS = 1.0
# Splitting so many characters takes less time than handing them to another thread and back.
_FEW_CHARACTERS = 2_000


class Translated(NamedTuple):
    """The translation of a text, further ones, and who decided on its words where that was asked."""

    text: str
    alternatives: list[str]
    citations: Citations | None


class Service:
    """A desk behind a queue, with limits."""

    def __init__(self, desk: Desk, gate: Gate, settings: ServeSettings, metrics: Metrics) -> None:
        self.desk = desk
        self.gate = gate
        self.settings = settings
        self.metrics = metrics
        limits = settings.limits
        batches = BatchSettings(
            desk.batch_size,
            limits.waiting,
            limits.least,
            limits.wait_seconds,
            budget=desk.budget,
            request_seconds=limits.request_seconds,
        )
        self.batcher: Batcher[Line] = Batcher(desk.translate, batches, metrics)
        self.registrar = Registrar(desk.model, desk.mounts, read_only=settings.read_only)
        if settings.learn_into is not None and settings.learn_into not in self.registrar.names:
            raise UsageError(f"There is no memory {settings.learn_into} to learn into: name the folder of one of -m.")
        self._helpers = ThreadPoolExecutor(_HELPERS, "ibidem-helper")
        self._writers = ThreadPoolExecutor(_WRITERS, "ibidem-markup")
        self.jobs = Jobs(self._import, (desk.source, desk.target), limits)

    def close(self) -> None:
        """End all work: imports stop where they are, translations that still run stop at their next step.

        The server calls this when every request was answered or its time to be answered is over.
        """
        self.jobs.close()
        self.batcher.close(_LAST_SECONDS)
        for pool in (self._helpers, self._writers):
            pool.shutdown(wait=True)
        self.registrar.close()

    async def read(self, request: Request, model: type[Model]) -> Model:
        """Read the body of a request; its key is checked first, and one in the body before anything else of it."""
        self.gate.check_key(request)
        body = await read_fields(request, self.limits)
        in_body = body.fields.get("api_key") or body.fields.get("auth_key")
        self.gate.admit(request, in_body if isinstance(in_body, str) else None)
        return parse(model, body)

    @property
    def learns_into(self) -> str | None:
        """The memory that takes suggestions, None where nothing is learnt."""
        return self.settings.learn_into or next(iter(self.registrar.names), None)

    async def call(self, function: Callable[..., Outcome], *given: object) -> Outcome:
        """Call something that may wait for a disk or a lock, and not keep others waiting."""
        return await asyncio.get_running_loop().run_in_executor(self._helpers, function, *given)

    async def learn(
        self, name: str, pairs: Sequence[tuple[str, str]], origin: str, *, replace: bool = False
    ) -> Written:
        """Add pairs to a memory, in the place of others of the same source if asked; on disk when this returns."""
        if not pairs:
            raise Refusal(400, "Invalid request: there is no pair")
        if len(pairs) > self.limits.texts:
            raise Refusal(400, f"Invalid request: {len(pairs)} pairs are more than {self.limits.texts}")
        self.check_size([text for pair in pairs for text in pair], count=False)
        write = self.registrar.correct if replace else self.registrar.add_texts
        written = await self.call(write, name, pairs, origin)
        self.metrics.count_learnt(len(written.added))
        return written

    def _import(self, job: Job, pairs: Iterator[Pair], corpus: Corpus) -> tuple[int, str]:
        def tell(_: str, __: float | None, done: int, ___: str) -> None:
            job.added = done
            self.jobs.check(job)
            share = corpus.fraction()  # of what is read, which is ahead of what is learnt
            job.share = None if share is None else share * done / max(job.read, done)

        written = self.registrar.add(job.memory, pairs, corpus.counts, tell)
        self.metrics.count_learnt(len(written.added))
        known = f"; {len(written.known):,} were known already" if written.known else ""
        return len(written.added), f"{corpus.counts.describe()}{known}"

    @property
    def limits(self) -> Limits:
        """What a client may ask for."""
        return self.settings.limits

    async def translate(self, request: Request, texts: Sequence[str], choice: Choice) -> list[Translated]:
        """Translate texts line by line, as `ibidem translate` does; given up when the client goes away."""
        self.check_size(texts)
        if choice.alternatives > self.limits.alternatives:
            raise Refusal(400, f"Invalid request: at most {self.limits.alternatives} alternatives")
        layouts = [lay_out(text) for text in texts]
        lines = [line for layout in layouts for line in layout.lines]
        self._check_lines(len(lines))
        few = sum(map(len, lines)) <= _FEW_CHARACTERS
        pieces = self.desk.split(lines) if few else await self.call(self.desk.split, lines)
        found = await unless_gone(request, asyncio.wrap_future(self._submit(choice, pieces)))
        results = iter(self._join(lines, pieces, found))
        return [
            self._put_together(layout, [next(results) for _ in layout.lines], explain=choice.explain)
            for layout in layouts
        ]

    async def translate_markup(self, request: Request, texts: Sequence[str], choice: Choice) -> list[Translated]:
        """Translate HTML or XML with all its tags."""
        self.check_size(texts)
        if choice.alternatives or choice.explain:
            raise Refusal(400, "Invalid request: markup has no alternatives and no explanation; send plain text")
        self._check_lines(sum(map(count_blocks, texts)))
        latest = time.monotonic() + self.limits.request_seconds
        asked: list[Future[list[Line]]] = []
        gone = threading.Event()

        def ask(lines: list[str]) -> list[str]:
            pieces = self.desk.split(lines)
            asked.append(self._submit(choice, pieces, latest))
            if gone.is_set():  # the client went away before this future could be cancelled with the others
                asked[-1].cancel()
            return [line.translation for line in self._join(lines, pieces, asked[-1].result())]

        work = asyncio.get_running_loop().run_in_executor(self._writers, translate_markup, texts, ask)
        try:
            return [Translated(text, [], None) for text in await unless_gone(request, work)]
        finally:
            gone.set()
            for future in asked:
                future.cancel()

    def _submit(
        self, choice: Choice, pieces: Sequence[Sequence[Piece]], latest: float | None = None
    ) -> Future[list[Line]]:
        """Let the pieces of lines be translated."""
        flat = [piece for pieces_of_line in pieces for piece in pieces_of_line]
        sizes = [len(piece.ids) for piece in flat]
        return self.batcher.submit(choice, [piece.text for piece in flat], sizes, latest)

    def _join(self, lines: Sequence[str], pieces: Sequence[Sequence[Piece]], found: Sequence[Line]) -> Iterator[Line]:
        """Join the translations of the pieces of each line."""
        parts = iter(found)
        for line, pieces_of_line in zip(lines, pieces, strict=True):
            yield self.desk.join(line, [next(parts) for _ in pieces_of_line])

    def _check_lines(self, count: int) -> None:
        if count > self.limits.lines:
            raise Refusal(400, f"Invalid request: {count:,} lines are more than {self.limits.lines:,}")

    def check_size(self, texts: Sequence[str], *, count: bool = True) -> None:
        """Refuse more texts or characters than the server takes."""
        if count and len(texts) > self.limits.texts:
            raise Refusal(400, f"Invalid request: request ({len(texts)}) exceeds batch limit ({self.limits.texts})")
        characters = sum(map(len, texts))
        if characters > self.limits.characters:
            raise Refusal(400, f"Invalid request: request ({characters}) exceeds text limit ({self.limits.characters})")

    def check_languages(self, source: str | None, target: str | None) -> None:
        """Refuse a pair that the model does not translate; `auto` and nothing stand for its own."""
        desk = self.desk
        if source not in (None, "", "auto") and primary_language(str(source)) != desk.source:
            raise Refusal(400, f"{_short(source)} is not supported: this server translates from {desk.source}")
        if target not in (None, "") and primary_language(str(target)) != desk.target:
            raise Refusal(400, f"{_short(target)} is not supported: this server translates to {desk.target}")

    def choose_memories(self, given: Sequence[str] | Mapping[str, float] | None) -> tuple[tuple[str, float], ...]:
        """The memories that a client names: only names of those that are mounted, never a path."""
        if given is None:
            return self.desk.default
        if len(given) > self.limits.memories:
            raise Refusal(400, f"Invalid request: at most {self.limits.memories} memories")
        pairs = given.items() if hasattr(given, "items") else [self._split(name) for name in given if name != "none"]
        chosen = dict(pairs)
        for name, weight in chosen.items():
            if name not in dict(self.desk.default):
                raise Refusal(400, f"There is no memory {_short(name)}")
            if not 0 < weight < math.inf:
                raise Refusal(400, f"The weight of the memory {name} is not above 0")
        # The same memories are the same choice, in whatever order they were named.
        return tuple((name, float(chosen[name])) for name, _ in self.desk.default if name in chosen)

    def _split(self, value: str) -> tuple[str, float]:
        """NAME:WEIGHT, or a name, which then has the weight the server gives it."""
        default = dict(self.desk.default)
        name, colon, weight = value.rpartition(":")
        if value in default or not colon:
            return value, default.get(value, 1.0)
        try:
            return name, float(weight)
        except ValueError:
            return value, 1.0

    def _put_together(self, layout: Layout, lines: Sequence[Line], *, explain: bool) -> Translated:
        text, starts = layout.fill([line.translation for line in lines])
        count = max((len(line.alternatives) for line in lines), default=0)
        others = [
            layout.fill([(line.translation, *line.alternatives)[min(number, len(line.alternatives))] for line in lines])
            for number in range(1, count + 1)
        ]
        citations = None
        if explain:
            explanations = [line.explanation for line in lines if line.explanation is not None]
            citations = cite(text, explanations, starts, self.desk.folders)
        return Translated(text, [other for other, _ in others], citations)


async def unless_gone(request: Request, result: asyncio.Future[Outcome]) -> Outcome:
    """The result of a future, which is cancelled if the client hangs up first."""
    gone = asyncio.ensure_future(_hang_up(request))
    both: set[asyncio.Future[Any]] = {result, gone}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise Refusal(499, "The client is gone.")
        return result.result()
    finally:
        gone.cancel()
        result.cancel()


async def _hang_up(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _short(text: object) -> str:
    """What a client sent, not longer than a message should be."""
    shown = str(text)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
