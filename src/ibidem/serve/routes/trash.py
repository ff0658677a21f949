"""The API of the trash: deleted memories and glossaries, which can be restored until they expire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response

from ibidem.serve.http_error import HttpError
from ibidem.serve.schemas import ERRORS, describe_body, json_response
from ibidem.serve.store_schemas import Named, RestoreRequest, TrashItem, TrashList

if TYPE_CHECKING:
    from ibidem.serve.memory_store import Deleted
    from ibidem.serve.service import Service


def make_routes(service: Service) -> APIRouter:
    """Create the routes of the trash.

    Args:
        service: The service that the routes call.
    """
    router = APIRouter(tags=["Trash"], responses=ERRORS)
    memories, glossaries = service.memories, service.glossaries

    def list_deleted() -> list[Deleted]:
        found = [*memories.list_deleted(), *glossaries.list_deleted()]
        return sorted(found, key=lambda one: one.deleted, reverse=True)

    def may_restore(request: Request, item: Deleted) -> bool:
        if not service.authenticator.required:
            return True
        owner, scope = request.state.owner, request.state.scope
        return scope == "admin" or item.owner in ("", owner)

    async def find(request: Request, kind: str, id: str) -> Deleted:
        for item in await service.run_in_thread(list_deleted):
            if item.kind == kind and item.id == id:
                if not may_restore(request, item):
                    raise HttpError(403, f"The {kind} belongs to another key.")
                return item
        raise HttpError(404, f"There is no such {kind} in the trash: it was restored or removed for good.")

    @router.get("/trash", response_model=TrashList, summary="List deleted memories and glossaries")
    async def list_trash(request: Request) -> Response:
        """Those that the key may restore; others are left out."""
        service.authenticator.check(request, scope="write")
        found = [item for item in await service.run_in_thread(list_deleted) if may_restore(request, item)]
        items = [TrashItem.model_validate(item, from_attributes=True) for item in found]
        return json_response(TrashList(items=items))

    @router.post(
        "/trash/{kind}/{id}/restore",
        response_model=Named,
        openapi_extra=describe_body(RestoreRequest, form=False),
        summary="Restore a deleted memory or glossary",
    )
    async def restore(request: Request, kind: Literal["memory", "glossary"], id: str) -> Response:
        """A memory whose name is taken meanwhile needs a new `name`."""
        body = await service.read(request, RestoreRequest, scope="write")
        item = await find(request, kind, id)

        def apply() -> str:
            if kind == "memory":
                name = memories.restore(id, body.name)
            else:
                name = glossaries.restore(id, item.owner).first.name
            service.audit.write("restore", name, request, kind=kind, id=id)
            return name

        return json_response(Named(name=await service.run_in_thread(apply)))

    @router.delete(
        "/trash/{kind}/{id}", status_code=204, response_class=Response, summary="Remove a deleted one for good"
    )
    async def purge(request: Request, kind: Literal["memory", "glossary"], id: str) -> Response:
        """This cannot be undone."""
        service.authenticator.check(request, scope="write")
        item = await find(request, kind, id)

        def apply() -> None:
            if kind == "memory":
                memories.purge(id)
            else:
                glossaries.purge(id, item.owner)
            service.audit.write("purge", item.name, request, kind=kind, id=id)

        await service.run_in_thread(apply)
        return Response(status_code=204)

    return router
