"""Requests that schemathesis generates from the OpenAPI document, valid and invalid ones: no response is a 5xx."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("schemathesis")

from ibidem.serve import Limits, ServeSettings, make_service, running

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.serve import Service

    from .conftest import Budget

_KEPT = 30


def make_open_service(tiny: Any, scratch: Path) -> Service:
    """Make a service that allows everything that a client may do: memories, glossaries and suggestions of its own."""
    from ibidem.decode import SearchSettings, Translator
    from ibidem.learn import create_memory

    memory = create_memory(scratch / "mine", tiny)
    search = SearchSettings(beam=1, max_length_ratio=0, max_length_extra=4)
    folders = {name: scratch / name for name in ("memories", "glossaries")}
    for folder in folders.values():
        folder.mkdir()
    limits = Limits(rate=1e6, burst=1_000_000)
    settings = ServeSettings(limits, audit=scratch / "audit", **folders)
    return make_service(Translator(tiny, memory, settings=search), settings)


class Names:
    """Names and ids of responses, which take the place of generated ones: few generated ones would exist."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._memories = ["mine"]

    def put_into(self, case: Any) -> None:
        """Replace the names and ids in the path of a request, except in one of four."""
        choice = zlib.crc32(repr((case.method, case.path, case.path_parameters, case.query)).encode())
        for name, known in (("name", self._memories), ("id", self._ids)):
            if name in case.path_parameters and known and choice % 4:
                case.path_parameters[name] = known[(choice >> 2) % len(known)]

    def read(self, case: Any, answer: Any) -> None:
        """Keep what a response contains."""
        if answer.status_code >= 300 or "json" not in answer.headers.get("content-type", ""):
            return
        found = json.loads(answer.content)
        for row in found if isinstance(found, list) else [found]:
            if not isinstance(row, dict):
                continue
            self._ids += [row[key] for key in ("id", "glossary_id", "document_id") if isinstance(row.get(key), str)]
            if case.method == "POST" and case.path == "/memories" and isinstance(row.get("name"), str):
                self._memories.append(row["name"])
        del self._ids[:-_KEPT]
        del self._memories[1:-_KEPT]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_no_generated_request_gives_a_server_error(tiny: Any, scratch: Path, budget: Budget, part: int) -> None:
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis.generation import GenerationMode

    found: Counter[int] = Counter()
    names = Names()
    examples = round(min(80, 8 * budget.scale))
    impossible = set()  # every request is valid for an operation without parameters
    with running(make_open_service(tiny, scratch)) as url:
        # Routes come from the document, so that a new one is called without a change here.
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json", timeout=60)
        operations = [result.ok() for result in schema.get_all_operations()]
        assert len(operations) >= 18
        cases = [(each, mode) for each in operations for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)]
        for number in budget.rounds(1):
            budget.random.shuffle(cases)
            for operation, mode in cases:
                if budget.over or (operation.label, mode) in impossible:
                    continue

                @seed(1_000_000 * budget.seed + 10_000 * part + number)
                @settings(
                    max_examples=examples,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                    phases=(Phase.generate,),
                )
                @given(case=operation.as_strategy(generation_mode=mode))
                def send(case: Any) -> None:
                    names.put_into(case)
                    answer = case.call(base_url=url, timeout=60)
                    found[answer.status_code] += 1
                    assert answer.status_code < 500, (case.as_curl_command(), answer.text[:300])
                    names.read(case, answer)

                try:
                    send()
                except Unsatisfiable:
                    assert mode is GenerationMode.NEGATIVE
                    impossible.add((operation.label, mode))
    budget.count("generated requests", sum(found.values()))
    for status, count in found.items():
        budget.count(f"generated requests with status {status}", count)
    assert found[200]


@pytest.mark.slow
def test_no_sequence_of_requests_gives_a_server_error(tiny: Any, scratch: Path, budget: Budget) -> None:
    """Requests that use what earlier responses contained: ids of jobs, documents and glossaries."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, seed, settings
    from hypothesis.errors import Flaky

    errors: list[tuple[str, str]] = []
    found: Counter[int] = Counter()
    names = Names()
    with running(make_open_service(tiny, scratch)) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json", timeout=60)

        class Sequences(schema.as_state_machine()):  # type: ignore[misc]
            def before_call(self, case: Any) -> None:
                if "name" in case.path_parameters:
                    names.put_into(case)

            def validate_response(self, response: Any, case: Any, **_: Any) -> None:
                found[response.status_code] += 1
                if response.status_code >= 500:
                    errors.append((case.as_curl_command(), response.text[:300]))
                names.read(case, response)

        for number in budget.rounds(1):
            machine = seed(1000 * budget.seed + number)(Sequences)
            # The server keeps what earlier sequences did, so that the same requests can have another response, which
            # hypothesis takes for an error.
            with contextlib.suppress(Flaky):
                machine.run(
                    settings=settings(
                        max_examples=12,
                        stateful_step_count=12,
                        deadline=None,
                        database=None,
                        phases=(Phase.generate,),
                        suppress_health_check=list(HealthCheck),
                    )
                )
            assert errors == []
    budget.count("requests in sequences", sum(found.values()))
    for status, count in found.items():
        budget.count(f"requests in sequences with status {status}", count)
    assert sum(found.values()) > 20
