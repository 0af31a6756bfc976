"""What the commands of the pipeline have in common: an argument parser that raises, and what each end is called.

Owns exit statuses: 0 done, 1 it could not be, 2 the command line was wrong, 130 Ctrl-C; and that each has one line.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from headrace.errors import ConfigError, HeadraceError
from headrace.pipeline.errors import PipelineError

_FAILED, _USAGE = 1, 2
_INTERRUPTED = 130  # 128 and the number of the signal, as shells count


class Parser(argparse.ArgumentParser):
    """ConfigError instead of an exit."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def exit_status(program: str, command: Callable[[], None]) -> int:
    """Does it, and says in one line on standard error why not."""
    try:
        command()
    except ConfigError as error:
        return _complain(program, error, _USAGE)
    except HeadraceError as error:
        return _complain(program, error, _FAILED)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # whoever reads has enough, as `head` does
        write_no_more()
    except SystemExit:  # help was asked for, and printed
        pass
    return 0


def write_no_more() -> None:
    """What is still in the buffer must not be tried again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def require_packages(what: str, names: Sequence[str]) -> None:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise PipelineError("PACKAGES_MISSING", what=what, packages=", ".join(missing))


def lake_place(text: str) -> Path | str:
    """A directory, or an address elsewhere."""
    return text if "://" in text else Path(text)  # a path would lose one of the slashes


def spark_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise argparse.ArgumentTypeError(f"found {key!r}, expected spark.NAME=VALUE")  # a value may be a secret
    return key, value


def _complain(program: str, error: HeadraceError, status: int) -> int:
    sys.stderr.write(f"{program}: {' '.join(str(error).splitlines())}\n")
    return status
