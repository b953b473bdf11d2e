"""Checks: conditions on the rows of an output, which the worker verifies before it commits them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])

SEVERITIES = ("INFO", "WARNING", "ERROR", "CRITICAL")
FORMATS = ("parquet", "csv", "jsonl", "json", "files")
COLUMN_TYPES = (
    "string",
    "integer",
    "number",
    "decimal",
    "boolean",
    "date",
    "timestamp",
    "binary",
    "object",
    "array",
)


@dataclasses.dataclass(frozen=True)
class Output:
    """Output of an asset: its format and, optionally, its columns."""

    format: str
    schema: Mapping[str, str] | None = None  # types by column, in order
    sensitive: Iterable[str] = ()  # columns whose values never appear in results of checks
    retain: int | None = None  # number of versions to keep

    def manifest(self) -> dict[str, Any]:
        """Return the output as the manifest declares it."""
        fields: dict[str, Any] = {"format": self.format}
        if self.schema:
            fields["schema"] = columns(self.schema)
        if listed := list(self.sensitive):
            fields["sensitive"] = listed
        if self.retain is not None:
            fields["retain"] = self.retain
        return fields

    def mistake(self) -> tuple[str, str] | None:
        """Return a mistake of the declaration and its remedy."""
        if self.format not in FORMATS:
            return f"output has the unknown format {self.format!r}", f"use one of {', '.join(FORMATS)}"
        for name, kind in (self.schema or {}).items():
            if kind not in COLUMN_TYPES:
                return f"column {name} has the unknown type {kind!r}", f"use one of {', '.join(COLUMN_TYPES)}"
        if isinstance(self.sensitive, str):
            return "sensitive is text", f'write a list: sensitive=["{self.sensitive}"]'
        return None


def columns(schema: Mapping[str, str]) -> list[dict[str, str]]:
    """Return columns as the manifest declares them."""
    return [{"name": name, "type": kind} for name, kind in schema.items()]


@dataclasses.dataclass(frozen=True)
class Check:
    """Declared check. `function` is set for one of the asset's own code."""

    fields: Mapping[str, Any]
    function: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """Declared name; "" if the manifest gives it one."""
        return str(self.fields.get("name", ""))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function of the check, as in a test of it."""
        if self.function is None:
            raise TypeError(f"a check of type {self.fields['type']} is no function")
        return self.function(*args, **kwargs)

    def manifest(self) -> dict[str, Any]:
        """Return the check as the manifest declares it."""
        return dict(self.fields)

    def mistake(self) -> tuple[str, str] | None:
        """Return a mistake of the declaration and its remedy."""
        severity = self.fields.get("severity")
        if severity is not None and severity not in SEVERITIES:
            return f"check has the unknown severity {severity!r}", f"use one of {', '.join(SEVERITIES)}"
        for field in ("columns", "values"):
            if isinstance(self.fields.get(field), str):
                text = self.fields[field]
                return f"{field} of check {self.fields['type']} is text", f'write a list: ["{text}"]'
        return None


def _check(kind: str, fields: Mapping[str, Any], common: Mapping[str, Any]) -> Check:
    declared: dict[str, Any] = {"type": kind}
    for name, value in {**fields, **common}.items():
        if name not in _COMMON and name not in fields:
            raise TypeError(f"check.{kind} has no argument {name!r}; it has {', '.join([*fields, *_COMMON])}")
        if value is None or value is False:
            continue
        if isinstance(value, timedelta):
            value = f"{round(value.total_seconds() * 1000)}ms"
        elif isinstance(value, date):
            value = value.isoformat()
        elif isinstance(value, (tuple, set, frozenset)):
            value = (
                sorted(value, key=lambda v: (type(v).__name__, v))
                if isinstance(value, (set, frozenset))
                else list(value)
            )
        declared[name] = value
    return Check(declared)


_COMMON = ("name", "severity", "timeout", "phase", "input")


class Checks:
    """Types of checks, and the decorator for checks of the project's own code.

    All types take `name`, `severity` (CRITICAL), `timeout`, `phase` ("PRE" checks an input before the
    function runs) and `input` (the upstream of a PRE check).
    """

    def row_count(self, *, min: int | None = None, max: int | None = None, **common: Any) -> Check:
        """Check the number of rows."""
        return _check("row_count", {"min": min, "max": max}, common)

    def not_null(self, *columns: str, **common: Any) -> Check:
        """Check that no value of the columns is null."""
        return _check("not_null", {"columns": list(columns)}, common)

    def unique(self, *columns: str, **common: Any) -> Check:
        """Check that no combination of values occurs twice."""
        return _check("unique", {"columns": list(columns)}, common)

    def freshness(self, column: str, *, max_age: str | timedelta, **common: Any) -> Check:
        """Check that the newest timestamp of a column is not older than `max_age`."""
        return _check("freshness", {"column": column, "max_age": max_age}, common)

    def schema(
        self, schema: Mapping[str, str] | None = None, *, allow_extra: bool = False, **common: Any
    ) -> Check:
        """Check names and types of the columns."""
        listed = columns(schema) if schema else None
        return _check("schema", {"schema": listed, "allow_extra": allow_extra}, common)

    def range(self, column: str, *, min: Any = None, max: Any = None, **common: Any) -> Check:
        """Check that each value that is not null lies in a range."""
        return _check("range", {"column": column, "min": min, "max": max}, common)

    def accepted_values(self, column: str, values: Iterable[Any], **common: Any) -> Check:
        """Check that each value that is not null is in a list."""
        # A set has another order in each process, and the manifest must not change with it.
        listed = values if isinstance(values, (str, set, frozenset)) else list(values)
        return _check("accepted_values", {"column": column, "values": listed}, common)

    def regex(self, column: str, pattern: str, **common: Any) -> Check:
        """Check that each value that is not null matches a pattern (RE2)."""
        return _check("regex", {"column": column, "pattern": pattern}, common)

    def referential(self, column: str, *, asset: str, references: str, **common: Any) -> Check:
        """Check that each value that is not null exists in the column `references` of an upstream."""
        return _check(
            "referential", {"column": column, "references": {"asset": asset, "column": references}}, common
        )

    @overload
    def __call__(self, function: F, /) -> Check: ...
    @overload
    def __call__(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        severity: str | None = None,
        timeout: str | timedelta | None = None,
    ) -> Callable[[Callable[..., Any]], Check]: ...
    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        severity: str | None = None,
        timeout: str | timedelta | None = None,
    ) -> Any:
        """Turn a function into a check: `@check` or `@check(severity="ERROR")`.

        List the check in `checks=` of an asset. The function gets the output, converted to the
        annotation of its first parameter, and may take the context, parameters and upstreams as the
        asset does. The check fails if the function returns False or a message, or raises.
        """

        def declare(function: Callable[..., Any]) -> Check:
            common = {"name": name or function.__name__, "severity": severity, "timeout": timeout}
            declared = _check("custom", {"function": function.__name__}, common)
            return Check(declared.fields, function)

        if function is None:
            return declare
        if not inspect.isfunction(function):
            raise TypeError(f"@check decorates {function!r}; decorate a function")
        return declare(function)


check = Checks()
