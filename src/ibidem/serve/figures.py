"""The figures of a server over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import PlainTextResponse

from ibidem.serve.metrics import CONTENT_TYPE, escape

if TYPE_CHECKING:
    from ibidem.serve.service import Service


def make_routes(service: Service) -> APIRouter:
    """Prometheus' endpoint."""
    router = APIRouter(tags=["Metrics"])

    @router.get("/metrics", response_class=PlainTextResponse, summary="Figures in Prometheus' text format")
    async def metrics(request: Request) -> PlainTextResponse:
        """Counts and times; no text of anybody."""
        service.gate.admit(request)
        memories = await service.call(service.registrar.list_memories)
        gauges = {
            "ibidem_waiting_characters": {"": float(service.batcher.waiting)},
            "ibidem_memory_pairs": {f'memory="{escape(info.name)}"': float(info.pairs) for info in memories},
            "ibidem_memory_entries": {f'memory="{escape(info.name)}"': float(info.entries) for info in memories},
        }
        return PlainTextResponse(service.metrics.render(gauges), media_type=CONTENT_TYPE)

    return router
