"""Requests that schemathesis generates from the OpenAPI document, valid and invalid ones: no response is a 5xx."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("schemathesis")

from ibidem.serve import Limits, ServeSettings, make_service, running

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Budget


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_no_generated_request_gives_a_server_error(tiny: Any, scratch: Path, budget: Budget, part: int) -> None:
    import schemathesis
    from hypothesis import HealthCheck, given, seed, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis.generation import GenerationMode

    from ibidem.decode import SearchSettings, Translator
    from ibidem.learn import create_memory

    memory = create_memory(scratch / "mine", tiny)
    search = SearchSettings(beam=1, max_length_ratio=0, max_length_extra=4)
    limits = Limits(rate=1e6, burst=1_000_000)
    service = make_service(Translator(tiny, memory, settings=search), ServeSettings(limits))
    found: Counter[int] = Counter()
    examples = 8
    with running(service) as url:
        # Routes come from the document, so that a new one is called without a change here.
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json", timeout=60)
        operations = [result.ok() for result in schema.get_all_operations()]
        assert len(operations) >= 18
        for number in budget.rounds(1):
            for operation in operations:
                if number and budget.over:
                    break
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

                    @seed(1_000_000 * budget.seed + 10_000 * part + number)
                    @settings(
                        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
                    )
                    @given(case=operation.as_strategy(generation_mode=mode))
                    def send(case: Any) -> None:
                        if "name" in case.path_parameters:
                            case.path_parameters["name"] = "mine"
                        answer = case.call(base_url=url, timeout=60)
                        found[answer.status_code] += 1
                        assert answer.status_code < 500, (case.as_curl_command(), answer.text[:300])

                    try:
                        send()
                    except Unsatisfiable:  # every request is valid for an operation without parameters
                        assert mode is GenerationMode.NEGATIVE
    budget.count("generated requests", sum(found.values()))
    for status, count in found.items():
        budget.count(f"generated requests with status {status}", count)
    assert found[200]


@pytest.mark.slow
def test_no_sequence_of_requests_gives_a_server_error(tiny: Any, scratch: Path, budget: Budget) -> None:
    """Requests that use what earlier responses contained: ids of jobs, documents and glossaries."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, seed, settings

    from ibidem.decode import SearchSettings, Translator
    from ibidem.learn import create_memory

    memory = create_memory(scratch / "mine", tiny)
    search = SearchSettings(beam=1, max_length_ratio=0, max_length_extra=4)
    limits = Limits(rate=1e6, burst=1_000_000)
    service = make_service(Translator(tiny, memory, settings=search), ServeSettings(limits))
    found: Counter[int] = Counter()
    with running(service) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json", timeout=60)

        class Sequences(schema.as_state_machine()):  # type: ignore[misc]
            def before_call(self, case: Any) -> None:
                if "name" in case.path_parameters:
                    case.path_parameters["name"] = "mine"

            def validate_response(self, response: Any, case: Any, **_: Any) -> None:
                found[response.status_code] += 1
                assert response.status_code < 500, (case.as_curl_command(), response.text[:300])

        for number in budget.rounds(1):
            machine = seed(1000 * budget.seed + number)(Sequences)
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
    budget.count("requests in sequences", sum(found.values()))
    for status, count in found.items():
        budget.count(f"requests in sequences with status {status}", count)
    assert sum(found.values()) > 20
