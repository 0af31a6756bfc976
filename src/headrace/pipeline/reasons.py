"""The one line in Spark's pages of words that tells a person what is wrong."""

from __future__ import annotations

import re

_MAX_CHARACTERS = 300
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# py4j's first line says only which call it was that failed, Spark's that a job did.
_CALL = re.compile(r"An error occurred while calling [^\n]*\n: ")
_ABORTED = re.compile(r"Job aborted due to stage failure: .*?most recent failure: Lost task [^()]*(\(TID \d+\) )?")
_PLACE = re.compile(r"\((?P<host>[^ ()]+) executor (?P<executor>[^ ()]+)\): ")
_PYTHON_ERROR = re.compile(r"^\s*(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
# What the API of a Kubernetes answered, in the words of its client.
_REFUSED = re.compile(r"Failure executing: \w+ at: \S+ Message: (.+?)\. Received status: ")
# First lines that tell only that there is a cause, which is the last one named.
_EMPTY_WORDS = ("An error has occurred.", "External scheduler cannot be instantiated")
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_EXCEPTIONS = re.compile(r"^(?:(?:[\w$]+\.)+[\w$]+(?:Exception|Error): )+")
_TRACEBACK = "Traceback (most recent call last):"


def reason_of(error: BaseException) -> str:
    """What was wrong, without where in somebody's code it was found out."""
    text = _ABORTED.sub("", _CALL.sub("", _ANSI.sub("", str(error)).strip(), count=1), count=1)
    text = _PLACE.sub("", text, count=1)
    if _TRACEBACK in text:
        # The last line of a traceback is what Python says.
        raised = _PYTHON_ERROR.search(text, text.index(_TRACEBACK))
        if raised:
            return f"{raised[1]}: {raised[2]}"[:_MAX_CHARACTERS]
    refused = _REFUSED.search(text)
    if refused:
        return refused[1][:_MAX_CHARACTERS]
    lines = (_EXCEPTIONS.sub("", line.strip()) for line in text.splitlines())
    first = next((line for line in lines if line), type(error).__name__)
    causes = _CAUSE.findall(text)
    if first in _EMPTY_WORDS and causes:
        first = _EXCEPTIONS.sub("", causes[-1])
    return first[:_MAX_CHARACTERS]


def host_of(error: BaseException) -> str | None:
    """The machine of the executor that failed, where Spark tells."""
    place = _PLACE.search(str(error))
    return None if place is None else place["host"]
