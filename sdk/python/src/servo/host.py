"""Host: executes tasks of a worker in this process. docs/hosts.md describes the protocol."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import faulthandler
import json
import logging
import os
import platform
import queue
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any, BinaryIO, NoReturn

from . import _convert, _discover, _execute
from ._context import Context
from ._declare import registry
from .errors import IMPORT_ERROR, Cancelled, Error, Yield

PROTOCOL = 1
VERSION = "0.1.0"
MAX_FRAME = 4 << 20
FD_DOWN, FD_UP, FD_LOG = 3, 4, 5


def encode(frame: Mapping[str, Any]) -> bytes:
    """Return a frame with its length before it."""
    body = json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    if len(body) > MAX_FRAME:
        raise Error(
            f"a frame has {len(body)} bytes, the limit is {MAX_FRAME}", remedy="pass large data by files"
        )
    return struct.pack(">I", len(body)) + body


def decode(source: BinaryIO) -> dict[str, Any] | None:
    """Read a frame; None at the end."""
    prefix = source.read(4)
    if len(prefix) < 4:
        return None
    (length,) = struct.unpack(">I", prefix)
    body = source.read(length)
    if len(body) < length:
        return None
    frame: dict[str, Any] = json.loads(body)
    return frame


class LogHandler(logging.Handler):
    """Handler that writes records to the log pipe, one JSON object per line."""

    max_message = 16 << 10

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.fd = fd

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. A failure must not fail the task."""
        try:
            message = record.getMessage()
            if record.exc_info:
                message += "\n" + "".join(logging.Formatter().formatException(record.exc_info))
            for line in message.splitlines() or [""]:
                text = json.dumps(
                    {
                        "time": record.created,
                        "level": record.levelname,
                        "message": line[: self.max_message] or " ",
                    }
                )
                _write_all(self.fd, text.encode() + b"\n")
        except OSError:
            pass
        except Exception:
            self.handleError(record)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Host:
    """Protocol of one process: a thread reads frames, the main thread executes tasks."""

    def __init__(self, down: BinaryIO, up: int) -> None:
        self._down = down
        self._up = up
        self._sending = threading.Lock()
        self._runs: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._next_id = 0
        self._context: Context | None = None
        self._running = False
        self._cancelled: set[str] = set()  # tasks whose cancel came before they were started

    def send(self, frame: Mapping[str, Any]) -> None:
        """Send a frame to the worker."""
        data = encode(frame)
        with self._sending:
            _write_all(self._up, data)

    def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Make a request and wait for its answer."""
        answer: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with self._sending:
            self._next_id += 1
            number = self._next_id
            self._answers[number] = answer
        task = self._context.task if self._context else ""
        self.send({"type": "request", "task": task, "id": number, "method": method, "params": params})
        reply = answer.get()
        error = reply.get("error")
        if error:
            raise Error(error.get("message", ""), code=error["class"], remedy=error.get("remedy", ""))
        return reply.get("value")

    def progress(self, progress: Mapping[str, Any]) -> None:
        """Report progress."""
        task = self._context.task if self._context else ""
        self.send({"type": "progress", "task": task, "progress": dict(progress)})

    def read(self) -> None:
        """Read frames until the worker closes the pipe."""
        while (frame := decode(self._down)) is not None:
            kind = frame.get("type")
            if kind in ("run", "describe"):
                self._runs.put(frame)
            elif kind == "answer":
                waiting = self._answers.pop(frame["id"], None)
                if waiting is not None:
                    waiting.put(frame)
            elif kind == "cancel":
                self._cancelled.add(frame.get("task", ""))
                context = self._context
                if context is not None and context.task in self._cancelled:
                    context._cancelled.set()
        self._runs.put(None)

    def terminate(self, _signal: int, _frame: FrameType | None) -> None:
        """End the running task, or the idle host, on SIGTERM."""
        if self._running:
            raise Cancelled("the task was cancelled")
        sys.exit(0)

    def serve(self) -> None:
        """Execute tasks until the worker closes the pipe."""
        threading.Thread(target=self.read, name="servo-frames", daemon=True).start()
        self.send(
            {
                "type": "hello",
                "protocol": PROTOCOL,
                "sdk": f"servo-pipelines {VERSION}",
                "language": f"python {platform.python_version()}",
                "assets": sorted(registry.assets),
            }
        )
        while (frame := self._runs.get()) is not None:
            if frame["type"] == "describe":
                self.describe()
            else:
                self.execute(frame)

    def describe(self) -> None:
        """Send the manifest and all mistakes."""
        document = _discover.manifest()
        problems = [dataclasses.asdict(p) for p in registry.problems]
        places = {key: f"{asset.file}:{asset.line}" for key, asset in registry.assets.items()}
        self.send({"type": "manifest", "manifest": document, "problems": problems, "places": places})

    def execute(self, frame: dict[str, Any]) -> None:
        """Execute a task and send its end."""
        context = self._context = Context(frame, self)
        if context.task in self._cancelled:
            context._cancelled.set()
        before = _cpu()
        end: dict[str, Any]
        try:
            try:
                self._running = True
                end = self._end_of(context, frame)
            finally:
                self._running = False
        except Cancelled as error:
            end = {"type": "error", "error": {"class": "CANCELLED", "message": str(error)}}
        except BaseException as error:
            end = {"type": "error", "error": _execute.failure(error)}
        _flush()
        end["task"] = context.task
        end["cpu"] = round(_cpu() - before, 6)
        self._context = None
        self._cancelled.discard(context.task)
        try:
            self.send(end)
        except Error as error:
            self.send({"type": "error", "task": context.task, "error": _execute.failure(error)})

    def _end_of(self, context: Context, frame: Mapping[str, Any]) -> dict[str, Any]:
        asset = registry.assets.get(context.asset)
        if asset is None:
            if registry.problems:
                raise Error(
                    _first_problem(), code=IMPORT_ERROR, details={"traceback": registry.problems[0].traceback}
                )
            raise Error(
                f"the project declares no asset {context.asset}",
                code="NOT_IMPLEMENTED",
                remedy="deploy the manifest of the code that the worker executes",
            )
        if check := frame.get("check"):
            verdict = _execute.verdict(asset, check, context)
            return {"type": "result", "result": verdict, "partial": False}
        try:
            value = _execute.execute(asset, context)
        except Yield as error:
            return {"type": "yield", "next": error.cursor}
        result = json.loads(_convert.encode_result(value))
        return {"type": "result", "result": result, "partial": context._partial}


def _first_problem() -> str:
    problem = registry.problems[0]
    return f"{problem.file}:{problem.line}: {problem.message}"


def _cpu() -> float:
    """Return the processor time of this process and its waited children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the code has closed it
            stream.flush()


def _prepare() -> Host:
    """Set up pipes, log and signals of this process."""
    for fd in (FD_DOWN, FD_UP, FD_LOG):
        os.set_inheritable(fd, False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    faulthandler.enable()
    host = Host(os.fdopen(FD_DOWN, "rb"), FD_UP)
    handler = LogHandler(FD_LOG)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, host.terminate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def in_child() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        root.removeHandler(handler)
        for fd in (FD_DOWN, FD_UP, FD_LOG):
            with contextlib.suppress(OSError):
                os.close(fd)

    os.register_at_fork(after_in_child=in_child)
    return host


def main(argv: list[str] | None = None) -> NoReturn:
    """Run a host. A worker starts it with pipes as descriptors 3 to 5."""
    parser = argparse.ArgumentParser(prog="servo.host", description="Execute tasks of a Servo worker.")
    parser.add_argument("project", help="directory of the project")
    parser.add_argument("--module", action="append", help="module to import instead of all that import servo")
    options = parser.parse_args(argv)
    host = _prepare()
    _discover.load(options.project, options.module)
    with contextlib.suppress(BrokenPipeError, SystemExit):
        host.serve()
    _flush()
    os._exit(0)


if __name__ == "__main__":
    main()
