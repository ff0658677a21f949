"""The OpenAPI document.

Bodies are read as JSON or as a form, which FastAPI does not support, so their descriptions are added here.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

import ibidem
from ibidem.serve import schemas

if TYPE_CHECKING:
    from fastapi import FastAPI
    from pydantic import BaseModel

_REFERENCE = "#/components/schemas/{model}"
_STATUSES = {
    400: "The request is invalid",
    403: "The API key is missing or invalid, or the page is of another origin",
    408: "The body took too long to arrive",
    413: "The body is too large",
    429: "Too many requests; `Retry-After` gives the seconds to wait",
    503: "The server is busy, and `Retry-After` gives the seconds to wait; or the translation took too long",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorMessage, "description": text} for status, text in _STATUSES.items()
}
DEEPL_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.DeeplErrorMessage, "description": text} for status, text in _STATUSES.items()
}


def describe_body(model: type[BaseModel], *, form: bool = True) -> dict[str, Any]:
    """Return FastAPI's `openapi_extra` for a body.

    Args:
        model: Schema of the body.
        form: Whether the body may be a form as well as JSON.
    """
    schema = {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}
    kinds = ["application/json", *(["application/x-www-form-urlencoded", "multipart/form-data"] if form else [])]
    return {"requestBody": {"required": True, "content": dict.fromkeys(kinds, schema)}}


def make_routes(app: FastAPI) -> APIRouter:
    """Create the route `/openapi.json`; the document is built at the first request."""
    router = APIRouter(include_in_schema=False)

    @cache
    def document() -> bytes:
        return json.dumps(make_document(app), ensure_ascii=False, separators=(",", ":")).encode("utf-8")

    @router.get("/openapi.json")
    async def openapi() -> Response:
        return Response(document(), media_type="application/json")

    return router


def make_document(app: FastAPI) -> dict[str, Any]:
    """Build the document of an application, without FastAPI's status 422, which the server never sends."""
    document = get_openapi(title="ibidem", version=ibidem.__version__, description=ibidem.__doc__, routes=app.routes)
    parts = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        parts.pop(name, None)
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            content = operation.get("requestBody", {}).get("content", {})
            for body in content.values():
                name = body["schema"].get("$ref", "").rpartition("/")[2]
                if name and name not in parts:
                    schema = getattr(schemas, name).model_json_schema(ref_template=_REFERENCE)
                    parts.update(schema.pop("$defs", {}))
                    parts[name] = schema
    return document
