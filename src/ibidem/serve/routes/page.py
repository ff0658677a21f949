"""The web page: static files, read once at start."""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import PurePath

from fastapi import APIRouter
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations
from starlette.responses import Response

_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PAGE = "page.html"
_FILES = {
    "/" if file.name == _PAGE else f"/{file.name}": file
    for file in resources.files("ibidem.serve").joinpath("static").iterdir()
}

PATHS = frozenset(_FILES)


def make_routes() -> APIRouter:
    """Create a route for each file of the page."""
    router = APIRouter(include_in_schema=False)
    for path, file in _FILES.items():
        static = _StaticFile(file.read_bytes(), _MEDIA_TYPES[PurePath(file.name).suffix])
        router.add_api_route(path, static.send, methods=["GET", "HEAD"], response_model=None)
    return router


class _StaticFile:
    """Sends one file, or 304 to a browser that has it in its cache."""

    def __init__(self, content: bytes, media_type: str) -> None:
        self._content = content
        self._headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:16]}"', "Cache-Control": "no-cache"}
        self._media_type = media_type

    async def send(self, request: Request) -> Response:
        if request.headers.get("if-none-match") == self._headers["ETag"]:
            return Response(status_code=304, headers=self._headers)
        return Response(self._content, headers=self._headers, media_type=self._media_type)
