"""What the user asked to be pushed where: flags and the JSON file, checked before anything starts.

An error names the file and the line, or the key, and never shows a value that may be a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError
from headrace.relay.failure import RetryPolicy
from headrace.relay.target import Target, is_encodable, parse_target
from headrace.units import quoted

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_KEYS = ("name", "url", "stream_key", "enabled", "max_retries", "metadata", "match", "backup_url", "retry", "start")
_RETRY_KEYS = ("initial_s", "max_s", "jitter")
_STARTS = ("when_published",)
_MAX_DELAY_S = 3600.0
# A file this long is no list of destinations.
_MAX_FILE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class DestinationConfig:
    """One destination, as configured. Two equal ones are the same destination: a reload leaves it alone."""

    name: str
    target: Target
    enabled: bool = True
    match: str = "*"
    backup: Target | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    metadata: tuple[tuple[str, str], ...] = ()  # the user's own notes, shown as they are
    # As it was written, for a later change of single keys. Not part of what it is.
    source: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def matches(self, stream_key: str) -> bool:
        return fnmatchcase(stream_key, self.match)


def from_urls(urls: Iterable[str]) -> list[DestinationConfig]:
    """Destinations of `-relay-to` values, each of which may hold several, separated by commas."""
    configs: list[DestinationConfig] = []
    for value in urls:
        for url in value.split(","):
            if not url.strip():
                raise ConfigError("found an empty address, expected rtmp://host/app/key")
            configs.append(_named_by_target(url.strip(), configs))
    return configs


def _named_by_target(url: str, others: Sequence[DestinationConfig]) -> DestinationConfig:
    """A destination without a name is called by its redacted address, numbered where several look the same."""
    target = parse_target(url)
    if any(other.target == target for other in others):
        raise ConfigError(f"{target.shown} is given twice")
    taken = {other.name for other in others}
    name, number = target.shown, 2
    while name in taken:
        name, number = f"{target.shown} #{number}", number + 1
    return DestinationConfig(name=name, target=target, source={"name": name, "url": url})


def load_file(path: Path, environ: Mapping[str, str]) -> list[DestinationConfig]:
    """The destinations of a `-relay-config` file."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_FILE_BYTES + 1)
        if len(raw) > _MAX_FILE_BYTES:
            raise ConfigError(f"{path}: found more than {_MAX_FILE_BYTES} bytes, expected a list of destinations")
        text = raw.decode()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8") from None
    try:
        document = json.loads(text, object_pairs_hook=_unique_pairs)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply, expected a list of destinations") from None
    except ValueError:  # Python refuses to read an integer of thousands of digits
        raise ConfigError(f"{path}: found a number of thousands of digits, expected a list of destinations") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    try:
        return _read_document(document, environ)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(f"key {quoted(key)} is given twice in one object")
        found[key] = value
    return found


def _read_document(document: Any, environ: Mapping[str, str]) -> list[DestinationConfig]:
    _expect_object(document, "the file", ("destinations",))
    items = document.get("destinations")
    if not isinstance(items, list):
        raise ConfigError(f'"destinations": found {_kind(items)}, expected a list')
    configs: list[DestinationConfig] = []
    for index, item in enumerate(items):
        where = f"destinations[{index}]"
        config = read_destination(item, environ, where)
        check_unique(config, configs, where)
        configs.append(config)
    return configs


def check_unique(config: DestinationConfig, others: Iterable[DestinationConfig], where: str) -> None:
    for other in others:
        if other.name == config.name:
            raise ConfigError(f'{where}.name: "{config.name}" is used by another destination')
        if other.target == config.target and other.match == config.match:
            raise ConfigError(f'{where}.url: the same address and key as destination "{other.name}"')


def read_destination(item: Any, environ: Mapping[str, str] | None, where: str) -> DestinationConfig:
    """One destination object. Of a file: with its variables expanded. Of an API call, `environ` is None: who may add
    a destination need not be one who may read our environment."""
    _expect_object(item, where, _KEYS)
    if environ is not None:
        item = _expand(item, environ, where)
    url = _text(item, "url", where)
    if url is None:
        raise ConfigError(f"{where}.url: found nothing, expected rtmp://host/app")
    stream_key = _text(item, "stream_key", where)
    target = _target(url, stream_key, f"{where}.url")
    backup_url = _text(item, "backup_url", where)
    backup = _target(backup_url, stream_key, f"{where}.backup_url") if backup_url else None
    if backup is not None and (backup.name is None) != (target.name is None):
        raise ConfigError(f"{where}.backup_url: one address has a stream name and the other has none")
    start = _text(item, "start", where) or "when_published"
    if start not in _STARTS:
        raise ConfigError(f"{where}.start: found {quoted(start)}, expected {' or '.join(_STARTS)}")
    name = _text(item, "name", where)
    if name is not None and not name.strip():
        raise ConfigError(f"{where}.name: found an empty name")
    return DestinationConfig(
        name=name or target.shown,
        target=target,
        enabled=_typed(item, "enabled", bool, True, "true or false", where),
        match=_text(item, "match", where) or "*",
        backup=backup,
        retry=_retry(item, where),
        metadata=_metadata(item.get("metadata"), where),
        source=dict(item),
    )


def change_destination(config: DestinationConfig, changes: Any, where: str) -> DestinationConfig:
    """The destination with some keys given anew; its name stays."""
    _expect_object(changes, where, [key for key in _KEYS if key != "name"])
    changed = read_destination({**config.source, **changes}, None, where)
    return replace(changed, name=config.name)


def _retry(item: Mapping[str, Any], where: str) -> RetryPolicy:
    retry = item.get("retry", {})
    _expect_object(retry, f"{where}.retry", _RETRY_KEYS)
    default = RetryPolicy()
    initial_s = _number(retry, "initial_s", default.initial_s, 0.01, _MAX_DELAY_S, f"{where}.retry")
    max_s = _number(retry, "max_s", max(default.max_s, initial_s), initial_s, _MAX_DELAY_S, f"{where}.retry")
    jitter = _number(retry, "jitter", default.jitter, 0.0, 1.0, f"{where}.retry")
    max_retries = item.get("max_retries", default.max_retries)
    if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
        raise ConfigError(f"{where}.max_retries: found {_kind(max_retries)}, expected a whole number, 0 is for ever")
    return RetryPolicy(initial_s=initial_s, max_s=max_s, jitter=jitter, max_retries=max_retries)


def _metadata(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict) or not all(isinstance(text, str | int | float | bool) for text in value.values()):
        raise ConfigError(f"{where}.metadata: found {_kind(value)}, expected an object of plain values")
    notes = tuple((key, str(text)) for key, text in value.items())
    if not all(is_encodable(key + text) for key, text in notes):
        raise ConfigError(f"{where}.metadata: found characters that are no Unicode text")
    return notes


def _target(url: str, stream_key: str | None, where: str) -> Target:
    try:
        return parse_target(url, stream_key)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _expand(value: Any, environ: Mapping[str, str], where: str) -> Any:
    """`${NAME}` in every text value, so that keys need not stand in the file."""
    if isinstance(value, dict):
        return {key: _expand(item, environ, f"{where}.{key}") for key, item in value.items()}
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in environ:
            raise ConfigError(f"{where}: the environment variable {name} is not set")
        return environ[name]

    return _VARIABLE.sub(replace, value)


def _expect_object(value: Any, where: str, keys: Sequence[str]) -> None:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: found {_kind(value)}, expected an object")
    for key in value:
        if key not in keys:
            raise ConfigError(f"{where}: unknown key {quoted(key)}, expected one of {', '.join(keys)}")


def _text(item: Mapping[str, Any], key: str, where: str) -> str | None:
    value = item.get(key)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{where}.{key}: found {_kind(value)}, expected a text")
    if value is not None and not is_encodable(value):
        raise ConfigError(f"{where}.{key}: found characters that are no Unicode text")
    return value


def _typed(item: Mapping[str, Any], key: str, kind: type, default: Any, expected: str, where: str) -> Any:
    value = item.get(key, default)
    if not isinstance(value, kind):
        raise ConfigError(f"{where}.{key}: found {_kind(value)}, expected {expected}")
    return value


def _number(item: Mapping[str, Any], key: str, default: float, least: float, most: float, where: str) -> float:
    value = item.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        shown = value if isinstance(value, int | float) and not isinstance(value, bool) else _kind(value)
        raise ConfigError(f"{where}.{key}: found {shown}, expected a number from {least:g} to {most:g}")
    return float(value)


def _kind(value: Any) -> str:
    """What stands there, without showing it."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
