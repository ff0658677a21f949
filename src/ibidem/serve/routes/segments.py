"""The route that finds the sentences of a text, so that clients can translate long texts in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response  # noqa: TC002

from ibidem.serve.request import RequestOptions, choose_splitting
from ibidem.serve.schemas import ERRORS, describe_body, json_response
from ibidem.serve.store_schemas import Segment, SegmentsRequest, SegmentsResponse

if TYPE_CHECKING:
    from ibidem.decode import TextLayout
    from ibidem.serve.service import Service


def make_routes(service: Service) -> APIRouter:
    """Create the route `/segments`.

    Args:
        service: The service that the route calls.
    """
    router = APIRouter(tags=["Translation"], responses=ERRORS)

    @router.post(
        "/segments",
        response_model=SegmentsResponse,
        openapi_extra=describe_body(SegmentsRequest),
        summary="Find the sentences of a text",
    )
    async def segments(request: Request) -> Response:
        """The sentences that `/translate` would translate one by one. What is between them is copied."""
        body = await service.read(request, SegmentsRequest)
        engine = service.engine
        service.check_size([body.q])
        pair = await service.choose_pair(body.source, body.target, [body.q])
        chosen = service.choose_memories(request, body.memories, pair)
        splitting = choose_splitting(body.split_sentences)
        (layout,) = await service.run_in_thread(engine.split, [body.q], RequestOptions(chosen, pair=pair), splitting)
        return json_response(SegmentsResponse(segments=find_segments(layout)))

    return router


def find_segments(layout: TextLayout) -> list[Segment]:
    """Return the positions of the pieces of a text.

    Args:
        layout: The pieces, and what stands between them.
    """
    found, place = [], 0
    for gap, piece in zip(layout.gaps, layout.pieces, strict=False):
        start = place + len(gap)
        place = start + len(piece.text)
        found.append(Segment(start=start, end=place))
    return found
