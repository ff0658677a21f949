"""The one web page: three files that lie beside this one, read once."""

from __future__ import annotations

import hashlib
from importlib import resources

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response

_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def make_routes() -> APIRouter:
    """The page, its style, its script and its icon."""
    router = APIRouter(include_in_schema=False)
    for path, (name, kind) in _FILES.items():
        content = resources.files("ibidem.serve").joinpath("static", name).read_bytes()
        router.add_api_route(path, _Sender(content, kind).send, methods=["GET", "HEAD"], response_model=None)
    return router


class _Sender:
    """Sends one file, or nothing to a browser that has it."""

    def __init__(self, content: bytes, kind: str) -> None:
        self._content = content
        self._headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:16]}"', "Cache-Control": "no-cache"}
        self._kind = kind

    async def send(self, request: Request) -> Response:
        """The file, or 304."""
        if request.headers.get("if-none-match") == self._headers["ETag"]:
            return Response(status_code=304, headers=self._headers)
        return Response(self._content, headers=self._headers, media_type=self._kind)
