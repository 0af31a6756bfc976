"""The OpenAPI document: it names the routes that there are, and real answers are as it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.routing import Route

from headrace import __version__
from headrace.control import Control
from headrace.record.service import RecordingService
from headrace.relay import config
from headrace.relay.feed import FeedState
from headrace.web.api import make_app
from headrace.web.openapi import document
from tests.helpers.far_end import FarEnd, grants, refuses_connect
from tests.helpers.loops import run
from tests.helpers.media_bytes import frames, preamble
from tests.helpers.origin import KEY, Origin, append, destination
from tests.unit.web.asgi import Answer, FakeBackend, ask, ask_on_loop

KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    """What a `$ref` leads to."""
    while "$ref" in schema:
        found: Any = document()
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        schema = found
    return schema


def mismatches(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """Where a value is not as the schema says: the few words of JSON Schema that the document uses."""
    schema = resolve(schema)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    is_of_kind = any(
        isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool)) for kind in kinds
    )
    found = [] if is_of_kind or not kinds else [f"{where}: {value!r} is no {kinds}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is none of {schema['enum']}")
    if isinstance(value, dict):
        found += [f"{where}: no {name}" for name in schema.get("required", []) if name not in value]
        properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, item in value.items():
            if name in properties:
                found += mismatches(item, properties[name], f"{where}.{name}")
            elif more is False:
                found.append(f"{where}: {name} is not described")
            elif isinstance(more, dict):
                found += mismatches(item, more, f"{where}.{name}")
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            found += mismatches(item, schema["items"], f"{where}[{index}]")
    return found


def test_the_checker_finds_what_it_should() -> None:
    schema = resolve({"$ref": "#/components/schemas/Destination"})
    good = {"name": "a", "url": "b", "enabled": True, "status": "waiting", "flowing": False}
    assert mismatches(good, schema) == []
    assert len(mismatches({**good, "status": "odd", "enabled": 1, "failures": 1.5, "slow_side": 5}, schema)) == 4
    assert mismatches({}, schema) == [f"$: no {name}" for name in schema["required"]]
    assert mismatches({"more": 1}, resolve({"$ref": "#/components/schemas/DestinationInput"})) != []
    assert mismatches({**good, "waiting": [{"stream": 5}]}, schema) == ["$.waiting[0].stream: 5 is no ['string']"]


def described(method: str, path: str) -> dict[str, Any]:
    call: dict[str, Any] = document()["paths"][path][method]
    return call


def assert_described(answer: Answer, method: str, path: str) -> None:
    """The status is one the document names for that call, and the body is as it says."""
    responses = described(method, path)["responses"]
    assert str(answer.status) in responses, (method, path, answer.status)
    response = resolve(responses[str(answer.status)])
    if "content" not in response:
        assert answer.body == b""
        return
    ((kind, content),) = response["content"].items()
    assert answer.headers["content-type"].startswith(kind)
    value = answer.json if kind == "application/json" else answer.body.decode()
    assert mismatches(value, content["schema"]) == []


def test_every_route_is_described_and_nothing_else() -> None:
    routes = {
        (route.path.replace(":path}", "}"), method.lower())
        for route in make_app(FakeBackend(), token=None).routes
        if isinstance(route, Route)
        for method in (route.methods or ())
        if method != "HEAD"
    }
    assert routes == {(path, method) for path, methods in document()["paths"].items() for method in methods}


def test_the_document_is_whole() -> None:
    whole = document()
    assert whole["openapi"].startswith("3.1")
    assert whole["info"]["version"] == __version__
    assert json.loads(json.dumps(whole)) == whole
    for path, methods in whole["paths"].items():
        for method, call in methods.items():
            assert call["summary"], (method, path)
            named = {one["name"] for one in call.get("parameters", []) if one["in"] == "path" and one["required"]}
            assert named == {word.strip("{}") for word in path.split("/") if word.startswith("{")}
            assert all(resolve(response)["description"] for response in call["responses"].values())
            # What changes something needs the token, if there is one, and says that it may be refused.
            assert ("security" in call) == (method != "get")
            assert ({"401", "403"} <= call["responses"].keys()) == (method != "get")


def test_every_reference_leads_somewhere() -> None:
    references = [word for word in json.dumps(document()).split('"') if word.startswith("#/")]
    assert references
    for reference in references:
        assert resolve({"$ref": reference})


def test_a_destination_may_be_given_with_every_key_of_the_file_and_no_other() -> None:
    schema = resolve({"$ref": "#/components/schemas/DestinationInput"})
    assert tuple(sorted(schema["properties"])) == tuple(sorted(config._KEYS))
    assert schema["additionalProperties"] is False
    assert sorted(schema["properties"]["retry"]["properties"]) == sorted(config._RETRY_KEYS)
    assert schema["properties"]["start"]["enum"] == list(config._STARTS)
    # What holds a key is never shown again.
    assert {name for name, one in schema["properties"].items() if one.get("writeOnly")} == {"stream_key", "backup_url"}


def test_the_states_are_those_of_a_feed() -> None:
    schema = resolve({"$ref": "#/components/schemas/Destination"})
    assert set(schema["properties"]["status"]["enum"]) == {state.value for state in FeedState}


GETS = [path for path, methods in document()["paths"].items() if "get" in methods and "{" not in path]


def test_real_answers_are_as_described(tmp_path: Path) -> None:
    async def test() -> None:
        no = refuses_connect("NetConnection.Connect.Rejected", "need auth")
        recordings = RecordingService(tmp_path)
        async with FarEnd(grants) as good, FarEnd(no) as bad, Origin(destination(good)) as origin:
            origin.relay.add(destination(bad, name="bad", backup_url=None, metadata={"a": 1}))
            origin.relay.add(destination("rtmp://127.0.0.1:1/live", name="gone", retry={"initial_s": 9, "max_s": 9}))
            stream = origin.publish()
            recordings.start(stream)
            origin.publish("other")
            append(stream, [*preamble(), *frames(20)])
            await origin.until(FeedState.CONNECTED)
            await origin.until(FeedState.ERROR, name="bad")
            await origin.until(FeedState.WAITING, name="gone")
            app = make_app(Control(origin.server, recordings, origin.relay), token=None)

            async def check(method: str, path: str, described_path: str | None = None, **request: Any) -> Answer:
                answer = await ask_on_loop(app, method.upper(), path, **request)
                assert_described(answer, method, described_path or path)
                assert KEY.encode() not in answer.body
                return answer

            for path in GETS:
                assert (await check("get", path)).status == 200
            one = "/api/destinations/{name}"
            for name in origin.relay.destinations:
                shown = (await check("get", f"/api/destinations/{name}", one)).json
                # Everything that is shown is described.
                assert shown.keys() == resolve({"$ref": "#/components/schemas/Destination"})["properties"].keys()
            assert (await check("get", "/api/destinations/none", one)).status == 404
            assert (await check("delete", "/api/destinations/none", one)).status == 404
            assert (await check("delete", "/api/destinations/gone", one, client=("203.0.113.9", 1))).status == 403
            assert (await check("post", "/api/destinations", body={})).status == 400
            assert (await check("post", "/api/destinations", raw=b"{}")).status == 415
            await recordings.close(5.0)

    run(uvloop.new_event_loop, test)


@pytest.mark.parametrize("raw", [b"x" * (65 << 10), b"{", b"[]"])
def test_refusals_are_as_described_too(raw: bytes) -> None:
    app = make_app(FakeBackend(), token="t0ken-4711-abcdef")
    answer = ask(app, "POST", "/api/destinations", raw=raw, headers={"content-type": "application/json"})
    assert answer.status == 401
    assert_described(answer, "post", "/api/destinations")
    headers = {"content-type": "application/json", "authorization": "Bearer t0ken-4711-abcdef"}
    answer = ask(app, "POST", "/api/destinations", raw=raw, headers=headers)
    assert answer.status in (400, 413)
    assert_described(answer, "post", "/api/destinations")
