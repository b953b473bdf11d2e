"""Context: what a running function knows of its task, and reaches through its host."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from . import _convert, _tables
from ._partitions import Partition
from .errors import INVALID_CONFIGURATION, Error


class Backend(Protocol):
    """What executes a task: a host, or a test."""

    def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Make a request and return its answer."""

    def progress(self, progress: Mapping[str, Any]) -> None:
        """Report progress."""


@dataclasses.dataclass(frozen=True)
class MappedResult:
    """Result of one of several tasks of an upstream asset."""

    task: str
    partition: str
    value: Any


@dataclasses.dataclass(frozen=True)
class Interval:
    """Data interval of a run."""

    start: datetime
    end: datetime


class Context:
    """Task that a function executes."""

    def __init__(self, run: Mapping[str, Any], backend: Backend) -> None:
        self.tenant: str = run.get("tenant", "")
        self.run: str = run.get("run", "")
        self.task: str = run.get("task", "")
        self.asset: str = run.get("asset", "")
        self.attempt: int = run.get("attempt", 1)
        self.partitions: list[Partition] = [Partition(values) for values in run.get("partitions") or []]
        self.partition: str = _partition_text(run.get("partition", ""), self.partitions)
        self._key: str = run.get("partition", "")
        self.pipeline: str = run.get("pipeline", "")
        self.parameters: dict[str, Any] = dict(run.get("parameters") or {})
        self.config: str = run.get("config", "")
        self.trigger: str = run.get("trigger", "")
        self.trace: str = run.get("trace", "")
        self.slot = _instant(run.get("slot"))
        self.deadline = _instant(run.get("deadline"))
        start, end = _instant(run.get("interval_start")), _instant(run.get("interval_end"))
        self.interval = Interval(start, end) if start and end else None
        self.log: logging.Logger = logging.getLogger("servo.task")
        self.inputs: list[dict[str, Any]] = list(run.get("inputs") or [])
        output = run.get("output")
        self.output_dir: Path | None = Path(output["dir"]) if output else None
        self.output_format: str = output["format"] if output else ""
        self._output: dict[str, Any] | None = output
        self._backend = backend
        self._cursor: str = run.get("cursor", "")
        self._cancelled = threading.Event()
        self._partial = False

    @property
    def cursor(self) -> str:
        """Position that an earlier attempt or advance has stored; "" at first."""
        return self._cursor

    def advance(self, cursor: str) -> None:
        """Move the cursor, and return when the server has stored it."""
        self._backend.request("cursor", {"next": cursor})
        self._cursor = cursor

    def progress(
        self,
        fraction: float | None = None,
        *,
        phase: str = "",
        stage: str = "",
        records_extracted: int = 0,
        records_transformed: int = 0,
        records_loaded: int = 0,
        bytes: int = 0,
    ) -> None:
        """Report progress. The latest one is sent at most once a second."""
        values = {
            "fraction": fraction,
            "phase": phase,
            "stage": stage,
            "records_extracted": records_extracted,
            "records_transformed": records_transformed,
            "records_loaded": records_loaded,
            "bytes": bytes,
        }
        self._backend.progress({name: value for name, value in values.items() if value})

    def fan_out(
        self,
        tasks: Iterable[str | tuple[str, str]],
        *,
        asset: str | None = None,
        barrier: bool = False,
        ordinal: int | None = None,
    ) -> Sequence[str]:
        """Add tasks to the run and return their ids.

        A task is a partition of `asset`, or a tuple of asset and partition. With a barrier the
        downstream tasks of this task wait for them.
        """
        added = []
        for task in tasks:
            if isinstance(task, tuple):
                added.append({"asset": task[0], "partition": task[1]})
            elif asset is not None:
                added.append({"asset": asset, "partition": task})
            else:
                raise Error(
                    f"the asset of partition {task!r} is missing",
                    code=INVALID_CONFIGURATION,
                    remedy="pass asset=, or tuples of asset and partition",
                )
        params: dict[str, Any] = {"tasks": added, "barrier": barrier}
        if ordinal is not None:
            params["ordinal"] = ordinal
        ids = self._backend.request("fanout", params)
        return [str(i) for i in ids or []]

    def mapped(self, asset: str) -> Iterator[MappedResult]:
        """Iterate over the results of all tasks of an asset that this task has waited for."""
        token = ""
        while True:
            page = self._backend.request("mapped", {"asset": asset, "page": token})
            for entry in page["results"]:
                yield MappedResult(entry.get("task", ""), entry.get("partition", ""), entry.get("result"))
            token = page.get("next") or ""
            if not token:
                return

    def secret(self, name: str) -> str:
        """Return the value of a secret that the asset declares."""
        return str(self._backend.request("secret", {"name": name}))

    def upstream(self, asset: str, annotation: Any = Any) -> Any:
        """Return what an upstream asset produced.

        If it has an output, this is the data, as the annotation asks for, of all partitions that the
        task depends on. Otherwise it is the upstream's result.
        """
        found = [entry for entry in self.inputs if entry["asset"] == asset]
        if any(entry.get("output") for entry in found):
            return _tables.read(self._files(asset), annotation, f"the output of {asset}")
        if len(found) > 1:
            found = [entry for entry in found if entry.get("partition", "") == self._key]
        if len(found) != 1:
            raise Error(
                f"{self.asset} has {'several partitions of' if found else 'no'} upstream {asset}",
                code=INVALID_CONFIGURATION,
                remedy="declare it in upstream; read several with ctx.mapped",
            )
        return _convert.convert(found[0].get("result"), annotation, f"the result of {asset}")

    def files(self, asset: str) -> list[Path]:
        """Return the files of an upstream's output, of all partitions that the task depends on."""
        return [Path(path) for path in self._files(asset).files]

    def _files(self, asset: str) -> _tables.Files:
        """Ask the worker to download the output of an upstream."""
        versions = self._backend.request("input", {"asset": asset})
        if not versions:
            raise Error(
                f"upstream {asset} of {self.asset} has no output",
                code=INVALID_CONFIGURATION,
                remedy="declare an output for it, or read its result",
            )
        return _tables.Files.of(versions)

    def partial(self) -> None:
        """Mark the result as partial: the task ends as PARTIAL_SUCCESS."""
        self._partial = True

    @property
    def is_cancelled(self) -> bool:
        """Whether the task should end."""
        return self._cancelled.is_set()


def _partition_text(key: str, partitions: list[Partition]) -> str:
    """Return the value of a single partition with one dimension, and the key of any other."""
    return partitions[0].value if len(partitions) == 1 else key


def _instant(text: str | None) -> datetime | None:
    """Parse a time in RFC 3339, whose fractions of seconds may have nine digits."""
    if not text:
        return None
    head, _, fraction = text.replace("Z", "+00:00").partition(".")
    if fraction:
        zone_at = max(fraction.find("+"), fraction.find("-"))
        digits, zone = fraction[:zone_at], fraction[zone_at:]
        head = f"{head}.{digits[:6].ljust(6, '0')}{zone}"
    return datetime.fromisoformat(head)
