"""The OpenAPI document of the HTTP side."""

from __future__ import annotations

from functools import cache
from typing import Any

from headrace import __version__

_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_WHOLE = {"type": "integer"}
_TRUTH = {"type": "boolean"}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _object(properties: dict[str, Any], *, required: list[str] | None = None, more: Any = True) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": more}
    if required:
        schema["required"] = required
    return schema


_DESTINATION_INPUT = _object(
    {
        "name": {**_TEXT, "description": "How it is called here; the redacted address if left out."},
        "url": {**_TEXT, "description": "rtmp://host/app or rtmps://host/app, with or without the stream name."},
        "stream_key": {**_TEXT, "writeOnly": True, "description": "Appended to the address. Never shown again."},
        "enabled": _TRUTH,
        "match": {**_TEXT, "description": "A glob on app/name: which streams go there."},
        "backup_url": {**_TEXT, "writeOnly": True},
        "max_retries": {**_WHOLE, "minimum": 0, "description": "0 is for ever."},
        "retry": _object({"initial_s": _NUMBER, "max_s": _NUMBER, "jitter": _NUMBER}, more=False),
        "start": {"type": "string", "enum": ["when_published"]},
        "metadata": {"type": "object"},
    },
    more=False,
)

_DESTINATION = _object(
    {
        "name": _TEXT,
        "url": {**_TEXT, "description": "Redacted."},
        "enabled": _TRUTH,
        "status": {"type": "string", "enum": ["disconnected", "connecting", "connected", "waiting", "error"]},
        "flowing": _TRUTH,
        "slow_side": _nullable(_TEXT),
        "retry_in_s": _nullable(_NUMBER),
        "last_error": _nullable(_TEXT),
        "last_error_class": _nullable(_TEXT),
        "messages_sent": _WHOLE,
        "messages_dropped": _WHOLE,
        "dropped_by_reason": {"type": "object", "additionalProperties": _WHOLE},
        "bytes_sent": _WHOLE,
        "connected_duration": _NUMBER,
        "connected_total_s": _NUMBER,
        "reconnect_count": _WHOLE,
        "failures": _WHOLE,
        "queue_age_s": _NUMBER,
        "match": _TEXT,
        "metadata": {"type": "object"},
        "streams": {"type": "object"},
        "waiting": {"type": "array", "items": _object({"stream": _TEXT, "reason": _TEXT})},
    },
    required=["name", "url", "enabled", "status", "flowing"],
)

_HEALTH = _object(
    {
        "total_destinations": _WHOLE,
        "connected_destinations": _WHOLE,
        "failed_destinations": _WHOLE,
        "total_messages_sent": _WHOLE,
        "total_messages_dropped": _WHOLE,
        "total_bytes_sent": _WHOLE,
        "destinations": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Destination"}},
        "last_updated": {"type": "string", "format": "date-time"},
    },
    required=["total_destinations", "destinations", "last_updated"],
)

_NAME = {"name": "name", "in": "path", "required": True, "schema": _TEXT, "description": "URL-encoded."}
_KEY = {"name": "key", "in": "path", "required": True, "schema": _TEXT, "description": "app/name of the stream."}


def _answer(description: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": description}
    if schema is not None:
        answer["content"] = {"application/json": {"schema": schema}}
    return answer


def _call(
    summary: str,
    good: dict[str, Any],
    *,
    status: str = "200",
    parameters: list[dict[str, Any]] | None = None,
    body: bool = False,
    changes: bool = False,
) -> dict[str, Any]:
    error = {"$ref": "#/components/responses/Error"}
    call: dict[str, Any] = {"summary": summary, "responses": {status: good}}
    if parameters:
        call["parameters"] = parameters
        call["responses"]["404"] = error
    if body:
        schema = {"$ref": "#/components/schemas/DestinationInput"}
        call["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        call["responses"] |= {"400": error, "408": error, "413": error, "415": error}
    if changes:
        call["responses"] |= {"401": error, "403": error}
        call["security"] = [{}, {"token": []}]
    return call


@cache
def document() -> dict[str, Any]:
    """The whole document."""
    one = {"$ref": "#/components/schemas/Destination"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "version": __version__, "description": "Status and control of a relay."},
        "paths": {
            "/": {"get": _call("The pages there are", _answer("Their paths.", {"type": "object"}))},
            "/health": {
                "get": _call(
                    "All destinations", _answer("Totals and details.", {"$ref": "#/components/schemas/Health"})
                )
            },
            "/destinations": {
                "get": _call(
                    "Name to status", _answer("One word each.", {"type": "object", "additionalProperties": _TEXT})
                )
            },
            "/streams": {
                "get": _call("Every stream", _answer("Publisher, codecs, rates, viewers.", {"type": "object"}))
            },
            "/metrics": {
                "get": _call(
                    "Prometheus metrics",
                    {"description": "Text format.", "content": {"text/plain": {"schema": _TEXT}}},
                )
            },
            "/debug/vars": {"get": _call("The counters", _answer("As JSON.", {"type": "object"}))},
            "/openapi.json": {"get": _call("This document", _answer("OpenAPI 3.1.", {"type": "object"}))},
            "/api/destinations": {
                "get": _call("All destinations as a list", _answer("The list.", {"type": "object"})),
                "post": _call(
                    "Add a destination", _answer("As it is now.", one), status="201", body=True, changes=True
                ),
            },
            "/api/destinations/{name}": {
                "get": _call("One destination", _answer("As it is now.", one), parameters=[_NAME]),
                "patch": _call(
                    "Enable, disable or change one",
                    _answer("As it is now.", one),
                    parameters=[_NAME],
                    body=True,
                    changes=True,
                ),
                "delete": _call("Remove one", _answer("Gone."), status="204", parameters=[_NAME], changes=True),
            },
            "/api/streams/{key}/publisher": {
                "delete": _call(
                    "Disconnect a stream's publisher",
                    _answer("Disconnected."),
                    status="204",
                    parameters=[_KEY],
                    changes=True,
                )
            },
        },
        "components": {
            "schemas": {
                "Destination": _DESTINATION,
                "DestinationInput": _DESTINATION_INPUT,
                "Health": _HEALTH,
                "Error": _object({"code": _TEXT, "message": _TEXT}, required=["code", "message"]),
            },
            "responses": {
                "Error": _answer("A code and a sentence.", {"$ref": "#/components/schemas/Error"}),
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
