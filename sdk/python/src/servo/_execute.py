"""Execution of a declared asset: arguments, call and result."""

from __future__ import annotations

import errno
import inspect
import os
import traceback
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

from . import _convert, _tables
from ._context import Context
from ._declare import Asset, Binding
from .errors import (
    IMPORT_ERROR,
    INVALID_CONFIGURATION,
    SCHEMA_VIOLATION,
    USER_CODE_EXCEPTION,
    Error,
    Permanent,
    Retry,
)


def arguments(bindings: Mapping[str, Binding], context: Context) -> dict[str, Any]:
    """Return the arguments of a function."""
    values: dict[str, Any] = {}
    for name, binding in bindings.items():
        if binding.kind == "context":
            values[name] = context
        elif binding.kind == "output":
            values[name] = _tables.read(_own_files(context), binding.annotation, "the output")
        elif binding.kind == "config":
            try:
                values[name] = _convert.convert(context.parameters, binding.annotation, "")
            except _convert.Mismatch as error:
                raise Error(
                    f"parameter {error}",
                    code=INVALID_CONFIGURATION,
                    remedy="declare the pipeline with the same config class, and trigger it with this type",
                ) from None
        else:
            try:
                values[name] = context.upstream(binding.upstream, binding.annotation)
            except _convert.Mismatch as error:
                raise Error(
                    str(error), code=SCHEMA_VIOLATION, remedy="use the type that the upstream returns"
                ) from None
    return values


def call(asset: Asset[Any, Any], context: Context) -> Any:
    """Call an asset's function, also an async one, and return its value."""
    return _finished(asset.function(**arguments(asset.bindings, context)))


def _finished(value: Any) -> Any:
    if inspect.iscoroutine(value):
        import asyncio  # late: most hosts do not need it and start faster

        return asyncio.run(value)
    if inspect.isasyncgen(value):
        return _drained(value)
    return value


def _drained(rows: AsyncGenerator[Any, Any]) -> Iterator[Any]:
    """Iterate over an async generator, row by row."""
    import asyncio

    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                yield loop.run_until_complete(anext(rows))
            except StopAsyncIteration:
                return
    finally:
        loop.run_until_complete(rows.aclose())
        loop.close()


def execute(asset: Asset[Any, Any], context: Context) -> Any:
    """Execute an asset and return its result. Data of an output is written to its files."""
    value = call(asset, context)
    output = context._output
    if output is None:
        return value
    schema = {column["name"]: column["type"] for column in output.get("schema") or []}
    _tables.write(value, output["dir"], output["format"], schema)
    return None


def verdict(asset: Asset[Any, Any], function: str, context: Context) -> dict[str, Any]:
    """Run a check function over the files of the output."""
    check = asset.checks.get(function)
    if check is None:
        raise Error(
            f"asset {asset.key} has no check function {function}",
            code="NOT_IMPLEMENTED",
            remedy="deploy the manifest of the code that the worker executes",
        )
    try:
        value = _finished(check.function(**arguments(check.bindings, context)))
    except AssertionError as error:
        return {"passed": False, "message": str(error) or "an assertion failed"}
    except Exception as error:
        return {"passed": False, "message": _message(error), "traceback": trace(error)}
    if value is None or isinstance(value, str):
        return {"passed": not value, "message": value or ""}
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):  # also numpy's
        return {"passed": bool(value), "message": "" if value else f"{function} returned False"}
    raise Error(
        f"check {function} returned a {type(value).__qualname__}", remedy="return True, False, or a message"
    )


def _own_files(context: Context) -> _tables.Files:
    """Return the files that the task has written."""
    output = context._output or {}
    root = output.get("dir", "")
    paths = sorted(os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    schema = {column["name"]: column["type"] for column in output.get("schema") or []}
    return _tables.Files(output.get("format", ""), tuple(paths), schema)


_PACKAGE = os.path.dirname(os.path.abspath(__file__))
MAX_TRACEBACK = 16 << 10


def failure(error: BaseException) -> dict[str, Any]:
    """Describe an exception for the error frame."""
    described: dict[str, Any] = {"class": _code(error), "message": _message(error), "traceback": trace(error)}
    if isinstance(error, Error):
        if error.details:
            described["details"] = _convert.plain_value(error.details)
        if error.remedy:
            described["remedy"] = error.remedy
    if isinstance(error, Retry) and error.after:
        described["retry_after"] = error.after
    if isinstance(error, Permanent):
        described["no_retry"] = True
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        described["details"] = {"exit_code": code}
    return described


def _code(error: BaseException) -> str:
    if isinstance(error, Error):
        return error.code
    if isinstance(error, MemoryError):
        return "OUT_OF_MEMORY"
    if isinstance(error, ImportError):
        return IMPORT_ERROR
    if isinstance(error, ConnectionError):
        return "NETWORK_ERROR"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "DISK_FULL"
    return USER_CODE_EXCEPTION


def _message(error: BaseException) -> str:
    if isinstance(error, Error):
        return str(error)
    if isinstance(error, SystemExit):
        return f"the function called sys.exit({error.code!r})"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def trace(error: BaseException) -> str:
    """Return the traceback of an exception without the frames of this package."""
    described = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()
    current: traceback.TracebackException | None = described
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        kept = [
            frame
            for frame in current.stack
            if os.path.dirname(os.path.abspath(frame.filename)) != _PACKAGE
            and not frame.filename.startswith("<frozen importlib")
        ]
        current.stack = traceback.StackSummary.from_list(kept)
        current = current.__cause__ or current.__context__
    text = "".join(described.format())
    return text if len(text) <= MAX_TRACEBACK else "… (cut)\n" + text[-MAX_TRACEBACK:]
