"""The OpenAPI document: bodies are read by hand, as JSON or form, so they are described by hand as well."""

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
    400: "The request cannot be meant as it is",
    403: "An API key is missing or wrong, or the page is of another origin",
    408: "The body took too long",
    413: "The body is too large",
    429: "Too many requests; `Retry-After` says when to come back",
    503: "The queue is full, and `Retry-After` says when to try again; or translating took too long",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": text} for status, text in _STATUSES.items()
}
DEEPL_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.DeeplProblem, "description": text} for status, text in _STATUSES.items()
}


def described_body(model: type[BaseModel], *, form: bool = True) -> dict[str, Any]:
    """A body of this kind, as JSON or as a form."""
    schema = {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}
    kinds = ["application/json", *(["application/x-www-form-urlencoded", "multipart/form-data"] if form else [])]
    return {"requestBody": {"required": True, "content": dict.fromkeys(kinds, schema)}}


def make_routes(app: FastAPI) -> APIRouter:
    """The document of an application, built at the first request for it and kept as bytes."""
    router = APIRouter(include_in_schema=False)

    @cache
    def document() -> bytes:
        return json.dumps(describe(app), ensure_ascii=False, separators=(",", ":")).encode("utf-8")

    @router.get("/openapi.json")
    async def openapi() -> Response:
        return Response(document(), media_type="application/json")

    return router


def describe(app: FastAPI) -> dict[str, Any]:
    """The document of an application; FastAPI's own 422 never happens here."""
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
