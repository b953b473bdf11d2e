"""Partitions: how an asset is divided, and the partitions that a task covers."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timezone
from typing import Any

# The spelling of each kind of time. The worker has the calendar.
_SPELLING = {
    "hourly": (re.compile(r"\d{4}-\d\d-\d\dT\d\dZ"), "2026-01-01T05Z"),
    "daily": (re.compile(r"\d{4}-\d\d-\d\d"), "2026-01-01"),
    "weekly": (re.compile(r"\d{4}-W\d\d"), "2026-W01"),
    "monthly": (re.compile(r"\d{4}-\d\d"), "2026-01"),
}
_MAPPING = re.compile(r"identity|all|first dimension|previous|last [1-9]\d{0,3} (hours|days|weeks|months)")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclasses.dataclass(frozen=True)
class Dimension:
    """One dimension of an asset's partitions."""

    dimension: str
    kind: str
    start: str = ""
    timezone: str = ""
    end_offset: int = 0
    values: tuple[str, ...] = ()

    def __mul__(self, other: Dimension | Partitions) -> Partitions:
        return Partitions((self,)) * other

    def __iter__(self) -> Iterator[Dimension]:
        yield self

    def manifest(self) -> dict[str, Any]:
        """Return the dimension as the manifest declares it."""
        fields = dataclasses.asdict(self)
        fields["values"] = list(self.values)
        return {name: value for name, value in fields.items() if value}

    def mistake(self) -> tuple[str, str] | None:
        """Return a mistake of the declaration and its remedy."""
        if not isinstance(self.dimension, str) or not _NAME.fullmatch(self.dimension):
            return f"{self.dimension!r} is no name of a dimension", "use lower case letters, digits and '_'"
        if self.kind == "static":
            if not self.values or not all(isinstance(value, str) and value for value in self.values):
                return f"values of dimension {self.dimension} must be texts", 'write values=["eu", "us"]'
            return None
        pattern, example = _SPELLING[self.kind]
        if not pattern.fullmatch(self.start):
            return f"start of dimension {self.dimension} is {self.start!r}", f"write it as {example}"
        return None

    def spelling_mistake(self, value: str) -> str:
        """Return why a value is no partition of this dimension; "" if it can be one."""
        if self.kind == "static":
            return "" if value in self.values else f"is none of {', '.join(self.values)}"
        pattern, example = _SPELLING[self.kind]
        return "" if pattern.fullmatch(value) else f"is not written as {example}"


@dataclasses.dataclass(frozen=True)
class Partitions:
    """Product of up to three dimensions."""

    dimensions: tuple[Dimension, ...]

    def __mul__(self, other: Dimension | Partitions) -> Partitions:
        return Partitions(self.dimensions + tuple(other))

    def __iter__(self) -> Iterator[Dimension]:
        return iter(self.dimensions)


def _spell(start: str | date, kind: str) -> str:
    if isinstance(start, datetime):
        if start.tzinfo is not None:
            start = start.astimezone(timezone.utc)
        if kind == "hourly":
            return start.strftime("%Y-%m-%dT%HZ")
    if not isinstance(start, date):
        return start
    if kind == "monthly":
        return start.strftime("%Y-%m")
    if kind == "weekly":
        year, week, _ = start.isocalendar()
        return f"{year}-W{week:02}"
    return start.strftime("%Y-%m-%d" if kind == "daily" else "%Y-%m-%dT00Z")


def daily(
    dimension: str = "date", *, start: str | date, timezone: str = "", end_offset: int = 0
) -> Dimension:
    """Divide by local days: `daily("date", start="2026-01-01", timezone="Europe/Berlin")`."""
    return Dimension(dimension, "daily", _spell(start, "daily"), timezone, end_offset)


def hourly(dimension: str = "hour", *, start: str | date, end_offset: int = 0) -> Dimension:
    """Divide by hours of UTC: `hourly("hour", start="2026-01-01T00Z")`."""
    return Dimension(dimension, "hourly", _spell(start, "hourly"), "", end_offset)


def weekly(
    dimension: str = "week", *, start: str | date, timezone: str = "", end_offset: int = 0
) -> Dimension:
    """Divide by ISO weeks: `weekly("week", start="2026-W01")`."""
    return Dimension(dimension, "weekly", _spell(start, "weekly"), timezone, end_offset)


def monthly(
    dimension: str = "month", *, start: str | date, timezone: str = "", end_offset: int = 0
) -> Dimension:
    """Divide by months: `monthly("month", start="2026-01")`."""
    return Dimension(dimension, "monthly", _spell(start, "monthly"), timezone, end_offset)


def static(dimension: str, values: Iterable[str]) -> Dimension:
    """Divide by fixed values: `static("region", ["eu", "us"])`."""
    return Dimension(dimension, "static", values=() if isinstance(values, str) else tuple(values))


def declaration(partitions: Any) -> tuple[list[Dimension], tuple[str, str] | None]:
    """Return the dimensions of a declaration, and a mistake with its remedy."""
    try:
        dimensions = list(partitions)
    except TypeError:
        dimensions = [partitions]
    for entry in dimensions:
        if not isinstance(entry, Dimension):
            return [], (f"partitions is {partitions!r}", 'write partitions=daily("date", start="2026-01-01")')
        if mistake := entry.mistake():
            return [], mistake
    if len(dimensions) > 3:
        return [], (f"partitions has {len(dimensions)} dimensions", "use at most 3")
    return dimensions, None


def mapping_mistake(mapping: Any) -> str:
    """Return why a text is no mapping to the partitions of an upstream; "" if it is one."""
    if isinstance(mapping, str) and _MAPPING.fullmatch(mapping):
        return ""
    return f"{mapping!r} is no mapping"


class Partition(Mapping[str, str]):
    """One partition that a task covers: its values by dimension."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, dimension: str) -> str:
        return self._values[dimension]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def key(self) -> str:
        """Key of the partition: JSON with sorted names."""
        return json.dumps(self._values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def value(self) -> str:
        """Value of the only dimension; the key if there are several."""
        return next(iter(self._values.values())) if len(self._values) == 1 else self.key

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return f"Partition({self._values!r})"


def read(
    partition: str | Mapping[str, str] | Partition, dimensions: Sequence[Dimension]
) -> tuple[Partition, str]:
    """Read a partition for a test; the text is why it is none of the dimensions."""
    if isinstance(partition, str):
        if partition.startswith("{"):
            values = json.loads(partition)
        elif "=" in partition:
            values = dict(part.partition("=")[::2] for part in partition.split(","))
        elif len(dimensions) == 1:
            values = {dimensions[0].dimension: partition}
        else:
            names = ", ".join(f"{d.dimension}=…" for d in dimensions)
            return Partition({}), f"partition {partition!r} names no dimension; write {names}"
    else:
        values = dict(partition)
    known = {d.dimension: d for d in dimensions}
    if values.keys() != known.keys():
        return Partition({}), f"partition {partition!r} must have the dimensions {', '.join(known)}"
    for name, value in values.items():
        if mistake := known[name].spelling_mistake(value):
            return Partition({}), f"partition {name}={value} {mistake}"
    return Partition(values), ""
