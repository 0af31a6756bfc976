"""The routes: each a few lines from a request to the backend and back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route

from headrace.errors import ConfigError
from headrace.logs import get_logger
from headrace.web.access import Refusal, check_change
from headrace.web.backend import Backend, NotFoundError
from headrace.web.openapi import document
from headrace.web.prometheus import make_registry, render

# A destination is a few hundred bytes.
_MAX_BODY_BYTES = 64 << 10
_BODY_S = 10.0
_PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Handler = Callable[[Request], Awaitable[Response]]


def make_app(
    backend: Backend, *, token: str | None, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Starlette:
    """The application behind `-http-status`."""
    registry = make_registry(backend)
    log = get_logger(__name__)

    def changing(handler: Handler) -> Handler:
        async def checked(request: Request) -> Response:
            check_change(
                token=token,
                client=request.client.host if request.client else None,
                host=request.headers.get("host"),
                origin=request.headers.get("origin"),
                authorization=request.headers.get("authorization"),
            )
            response = await handler(request)
            log.info("API call", method=request.method, path=request.scope["path"], status=response.status_code)
            return response

        return checked

    async def index(request: Request) -> Response:
        paths = [path for path, methods in document()["paths"].items() if "get" in methods]
        return _json({"name": "headrace", "version": document()["info"]["version"], "pages": paths})

    async def health(request: Request) -> Response:
        return _json({**backend.health(), "last_updated": now().isoformat(timespec="milliseconds")})

    async def destinations(request: Request) -> Response:
        return _json({name: one["status"] for name, one in backend.destinations().items()})

    async def streams(request: Request) -> Response:
        return _json({"streams": backend.streams()})

    async def metrics(request: Request) -> Response:
        return Response(render(registry), media_type=_PROMETHEUS_TYPE)

    async def variables(request: Request) -> Response:
        return _json(backend.counters())

    async def openapi(request: Request) -> Response:
        return _json(document())

    async def list_destinations(request: Request) -> Response:
        return _json({"destinations": list(backend.destinations().values())})

    async def add_destination(request: Request) -> Response:
        return _json(backend.add_destination(await _body(request)), status=201)

    async def get_destination(request: Request) -> Response:
        name = request.path_params["name"]
        found = backend.destinations().get(name)
        if found is None:
            raise NotFoundError(f'There is no destination "{name}".')
        return _json(found)

    async def change_destination(request: Request) -> Response:
        return _json(backend.change_destination(request.path_params["name"], await _body(request)))

    async def remove_destination(request: Request) -> Response:
        backend.remove_destination(request.path_params["name"])
        return Response(status_code=204)

    async def drop_publisher(request: Request) -> Response:
        backend.drop_publisher(request.path_params["key"])
        return Response(status_code=204)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/health", health),
            Route("/destinations", destinations),
            Route("/streams", streams),
            Route("/metrics", metrics),
            Route("/debug/vars", variables),
            Route("/openapi.json", openapi),
            Route("/api/destinations", list_destinations, methods=["GET"]),
            Route("/api/destinations", changing(add_destination), methods=["POST"]),
            Route("/api/destinations/{name:path}", get_destination, methods=["GET"]),
            Route("/api/destinations/{name:path}", changing(change_destination), methods=["PATCH"]),
            Route("/api/destinations/{name:path}", changing(remove_destination), methods=["DELETE"]),
            Route("/api/streams/{key:path}/publisher", changing(drop_publisher), methods=["DELETE"]),
        ],
        exception_handlers={
            Refusal: _refused,
            ConfigError: _bad_input,
            NotFoundError: _not_found,
            HTTPException: _http_error,
            Exception: _broken,
        },
    )


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    # ASCII only: a stream's name or a far end's words may hold bytes that are no UTF-8, and no page could be sent.
    text = json.dumps(body, allow_nan=False, separators=(",", ":"))
    return Response(text, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def _error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return _json({"code": code, "message": message}, status, headers)


async def _body(request: Request) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # A form on a foreign page cannot send this type without asking first: one more lock on the same door.
        raise Refusal(415, "not_json", "The body must have the Content-Type application/json.")
    body = b""
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > _MAX_BODY_BYTES:
                    raise Refusal(413, "too_large", f"The body has more than {_MAX_BODY_BYTES} bytes.")
    except TimeoutError:
        raise Refusal(408, "too_slow", f"The body did not come within {_BODY_S:g} seconds.") from None
    except ClientDisconnect:  # no mistake of ours, and nobody is left to be told
        raise Refusal(400, "cut_off", "The body ended before its time.") from None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ConfigError("the body is not valid JSON") from None


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    # RFC 9110 section 15.5.2: a 401 says how to do better.
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return _error(error.status, error.code, error.message, headers)


async def _bad_input(request: Request, error: Exception) -> Response:
    return _error(400, "bad_input", str(error))


async def _not_found(request: Request, error: Exception) -> Response:
    return _error(404, "not_found", str(error))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "no_such_page", 405: "method_not_allowed"}.get(error.status_code, "error")
    headers = {}
    if error.status_code == 405:
        # Of all routes of that path; starlette names those of the first.
        routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        headers["Allow"] = ", ".join(sorted({method for route in routes for method in route.methods}))
    return _error(error.status_code, code, f"{request.method} {request.scope['path']}: {error.detail}.", headers)


async def _broken(request: Request, error: Exception) -> Response:
    get_logger(__name__).error("HTTP handler failed", path=request.scope["path"], exc_info=error)
    return _error(500, "internal", "The server made a mistake; its log says which.")
