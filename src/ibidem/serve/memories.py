"""The memories of a server over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002

from ibidem.serve.answers import answer
from ibidem.serve.openapi import ERRORS
from ibidem.serve.schemas import MemoryList

if TYPE_CHECKING:
    from ibidem.serve.service import Service


def make_routes(service: Service) -> APIRouter:
    """List memories."""
    router = APIRouter(tags=["Memories"], responses=ERRORS)

    @router.get("/memories", response_model=MemoryList, summary="List the memories")
    async def memories(request: Request) -> Response:
        """All memories that are mounted, with their sizes and weights."""
        service.gate.admit(request)
        return answer(MemoryList(memories=service.desk.list_memories()))

    return router
