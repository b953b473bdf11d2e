"""Tests of assets without a server and without a worker."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from . import _convert, _execute
from ._context import Context
from ._declare import Asset
from .errors import Error, Yield


class Outcome:
    """What a function under test returned and reported."""

    def __init__(self) -> None:
        self.value: Any = None
        self.result: Any = None  # the value as the server stores it
        self.partial = False
        self.yielded: str | None = None
        self.cursors: list[str] = []
        self.fan_outs: list[dict[str, Any]] = []
        self.progress: list[dict[str, Any]] = []
        self.logs: list[str] = []


class _Recorder:
    def __init__(
        self, outcome: Outcome, secrets: Mapping[str, str], mapped: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.outcome = outcome
        self.secrets = secrets
        self.mapped = mapped

    def request(self, method: str, params: Mapping[str, Any]) -> Any:
        if method == "cursor":
            self.outcome.cursors.append(params["next"])
            return None
        if method == "fanout":
            self.outcome.fan_outs.append(dict(params))
            return [f"{task['asset']}[{task['partition']}]" for task in params["tasks"]]
        if method == "mapped":
            results = self.mapped.get(params["asset"], {})
            return {
                "results": [
                    {"task": name, "partition": name, "result": value} for name, value in results.items()
                ]
            }
        name = params["name"]
        if name not in self.secrets:
            raise Error(f"the test has no secret {name}", remedy="add it to secrets=")
        return self.secrets[name]

    def progress(self, progress: Mapping[str, Any]) -> None:
        self.outcome.progress.append(dict(progress))


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def run(
    asset: Asset[Any, Any],
    *,
    inputs: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    partition: str = "",
    cursor: str = "",
    attempt: int = 1,
    secrets: Mapping[str, str] | None = None,
    mapped: Mapping[str, Mapping[str, Any]] | None = None,
    context: Mapping[str, Any] | None = None,
) -> Outcome:
    """Execute an asset's function as a host would, and return what it reported.

    `inputs` has the results of upstream assets by key. They and the result are converted to JSON and
    back, so that a test meets the same types as a run. Exceptions of the function pass.
    """
    outcome = Outcome()
    task = {
        "tenant": "test",
        "run": "test",
        "task": "test",
        "asset": asset.key,
        "attempt": attempt,
        "partition": partition,
        "cursor": cursor,
        "parameters": _convert.plain_value(dict(parameters or {})),
        "inputs": [
            {"asset": key, "partition": "", "result": json.loads(_convert.encode_result(value))}
            for key, value in (inputs or {}).items()
        ],
        **(context or {}),
    }
    missing: Sequence[str] = [
        key for key in asset.upstream if key not in (inputs or {}) and _bound(asset, key)
    ]
    if missing:
        raise Error(f"the test has no result of upstream {missing[0]}", remedy="add it to inputs=")
    made = Context(task, _Recorder(outcome, secrets or {}, mapped or {}))
    handler = _Lines(outcome.logs)
    logger = logging.getLogger()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        outcome.value = _execute.call(asset, made)
        outcome.result = json.loads(_convert.encode_result(outcome.value))
    except Yield as yielded:
        outcome.yielded = yielded.cursor if yielded.cursor is not None else cursor
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    outcome.partial = made._partial
    return outcome


def _bound(asset: Asset[Any, Any], key: str) -> bool:
    return any(binding.upstream == key for binding in asset.bindings.values())
