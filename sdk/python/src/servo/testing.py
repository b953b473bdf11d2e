"""Tests of assets without a server and without a worker."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _checks, _convert, _execute, _partitions, _tables
from ._context import Context
from ._declare import Asset, registry
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
        self.rows: list[dict[str, Any]] = []  # of the output, as its files have them
        self.failed_checks: dict[str, str] = {}  # messages of the asset's check functions, by name


class _Recorder:
    def __init__(
        self,
        outcome: Outcome,
        secrets: Mapping[str, str],
        mapped: Mapping[str, Mapping[str, Any]],
        files: Mapping[str, dict[str, Any]],
    ) -> None:
        self.outcome = outcome
        self.files = files
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
        if method == "input":
            return [self.files[params["asset"]]] if params["asset"] in self.files else []
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
    partition: str | Mapping[str, str] = "",
    partitions: Iterable[str | Mapping[str, str]] = (),
    cursor: str = "",
    attempt: int = 1,
    secrets: Mapping[str, str] | None = None,
    mapped: Mapping[str, Mapping[str, Any]] | None = None,
    context: Mapping[str, Any] | None = None,
) -> Outcome:
    """Execute an asset's function as a host would, and return what it reported.

    `inputs` has what upstream assets produced, by key: results, or for upstreams with an output rows,
    tables or paths. Results are converted to JSON and back, and data is written to files and read, so
    that a test meets the same types as a run. The data of the asset's own output is in `rows`, and its
    check functions run over it. Other checks run in the worker and in `servo run --local`. Exceptions
    of the function pass.
    """
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="servo-test-") as folder:
        prepared = _Inputs(asset, dict(inputs or {}), folder)
        task = {
            "tenant": "test",
            "run": "test",
            "task": "test",
            "asset": asset.key,
            "attempt": attempt,
            "cursor": cursor,
            "parameters": _convert.plain_value(dict(parameters or {})),
            "inputs": prepared.entries,
            **_partition_fields(asset, partition, list(partitions)),
            **(context or {}),
        }
        if asset.output is not None:
            directory = os.path.join(folder, "output")
            os.mkdir(directory)
            columns = _checks.columns(asset.output.schema or {})
            task["output"] = {"dir": directory, "format": asset.output.format, "schema": columns}
        made = Context(task, _Recorder(outcome, secrets or {}, mapped or {}, prepared.files))
        _execute_with_log(asset, made, outcome, cursor)
        outcome.partial = made._partial
    return outcome


def _execute_with_log(asset: Asset[Any, Any], made: Context, outcome: Outcome, cursor: str) -> None:
    handler = _Lines(outcome.logs)
    logger = logging.getLogger()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        if made._output is None:
            outcome.value = _execute.call(asset, made)
            outcome.result = json.loads(_convert.encode_result(outcome.value))
            return
        _execute.execute(asset, made)
        if made.output_format != "files":
            outcome.rows = list(_tables.rows(_execute._own_files(made)))
        for function in asset.checks:
            verdict = _execute.verdict(asset, function, made)
            if not verdict["passed"]:
                outcome.failed_checks[function] = verdict["message"]
    except Yield as yielded:
        outcome.yielded = yielded.cursor if yielded.cursor is not None else cursor
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _partition_fields(asset: Asset[Any, Any], one: Any, several: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of a task about its partitions."""
    if not asset.partitions:
        return {"partition": one}  # of a fan-out
    chosen = [*([one] if one else []), *several]
    if not chosen:
        example = asset.partitions[0]
        raise Error(
            f"asset {asset.key} has partitions, and the test names none",
            remedy=f'pass partition="{example.start or example.values[0]}"',
        )
    covered = []
    for entry in chosen:
        partition, mistake = _partitions.read(entry, asset.partitions)
        if mistake:
            raise Error(mistake, remedy="name a partition that the asset declares")
        covered.append(partition)
    key = covered[0].key if len(covered) == 1 else f"{covered[0].key}..{covered[-1].key}"
    return {"partition": key, "partitions": [dict(partition) for partition in covered]}


class _Inputs:
    """What upstreams produced: results, and files of outputs."""

    def __init__(self, asset: Asset[Any, Any], given: dict[str, Any], folder: str) -> None:
        self.entries: list[dict[str, Any]] = []
        self.files: dict[str, dict[str, Any]] = {}
        bound = {binding.upstream: binding for binding in asset.bindings.values()}
        missing = [key for key in asset.upstream if key not in given and key in bound]
        if missing:
            raise Error(f"the test has no result of upstream {missing[0]}", remedy="add it to inputs=")
        for number, (key, value) in enumerate(given.items()):
            entry: dict[str, Any] = {"asset": key, "partition": ""}
            upstream = registry.assets.get(key)
            annotation = bound[key].annotation if key in bound else Any
            has_output = upstream is not None and upstream.output is not None
            if has_output or (
                upstream is None and _tables.kind_of(annotation) and not _convert.supported(annotation)
            ):
                directory = os.path.join(folder, f"input-{number}")
                os.mkdir(directory)
                output = upstream.output if upstream is not None else None
                self.files[key] = _write_input(value, directory, output)
                entry["output"] = {"format": self.files[key]["format"]}
            else:
                entry["result"] = json.loads(_convert.encode_result(value))
            self.entries.append(entry)


def _write_input(value: Any, directory: str, output: _checks.Output | None) -> dict[str, Any]:
    form = output.format if output is not None else "parquet" if _tables._installed("pyarrow") else "jsonl"
    schema = dict(output.schema or {}) if output is not None else {}
    if isinstance(value, Path):
        shutil.copyfile(value, os.path.join(directory, value.name))
        if output is None:
            form = value.suffix.removeprefix(".")
    else:
        _tables.write(value, directory, form, schema)
    paths = sorted(os.path.join(directory, name) for name in os.listdir(directory))
    return {"format": form, "files": paths, "schema": _checks.columns(schema)}
