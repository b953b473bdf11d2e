"""Outputs: what functions return and receive, and the checks of the project's own code."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from servo import Check, Context, DeclarationError, Error, Output, asset, check
from servo import _discover as discover
from servo import _tables as tables
from servo._declare import registry
from servo.testing import run


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    registry.assets.clear()
    registry.problems.clear()
    registry.collecting = False


ROWS = [{"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}]


class Row(TypedDict):
    id: int
    name: str


@dataclass
class Person:
    id: int
    name: str


@dataclass
class Sale:
    day: date
    at: datetime
    price: Decimal


def relation() -> duckdb.DuckDBPyRelation:
    return duckdb.sql("SELECT * FROM (VALUES (1, 'ann'), (2, 'bob')) AS t(id, name)")


RETURNS: dict[str, Callable[[], Any]] = {
    "list of dicts": lambda: ROWS,
    "dataclasses": lambda: [Person(1, "ann"), Person(2, "bob")],
    "generator": lambda: (row for row in ROWS),
    "pandas": lambda: pd.DataFrame(ROWS),
    "pandas with an index": lambda: pd.DataFrame(ROWS).set_index("id"),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars lazy": lambda: pl.LazyFrame(ROWS),
    "arrow": lambda: pa.Table.from_pylist(ROWS),
    "arrow batches": lambda: pa.Table.from_pylist(ROWS).to_reader(),
    "duckdb": relation,
}


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "json"])
@pytest.mark.parametrize("kind", RETURNS)
def test_what_functions_return(kind: str, form: str) -> None:
    @asset("a/b", output=Output(form, schema={"id": "integer", "name": "string"}))
    def b() -> Any:
        return RETURNS[kind]()

    assert run(b).rows == ROWS


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "json"])
def test_what_functions_receive(form: str) -> None:
    @asset("a/a", output=Output(form, schema={"id": "integer", "name": "string"}))
    def a() -> list[Row]: ...  # type: ignore[empty-body]

    def rows_of(annotation: Any, read: Callable[[Any], Any]) -> Any:
        def b(a: Any) -> Any:
            return read(a)

        b.__annotations__["a"] = annotation
        return run(asset("a/b", upstream=[a])(b), inputs={"a/a": ROWS}).result

    assert rows_of(list[Row], list) == ROWS
    assert rows_of(list[dict[str, Any]], list) == ROWS
    assert rows_of(list[Person], lambda people: [p.name for p in people]) == ["ann", "bob"]
    assert rows_of(Iterator[Row], list) == ROWS
    assert rows_of(pd.DataFrame, lambda frame: frame.to_dict("records")) == ROWS
    assert rows_of(pl.DataFrame, lambda frame: frame.to_dicts()) == ROWS
    assert rows_of(pl.LazyFrame, lambda frame: frame.collect().to_dicts()) == ROWS
    assert rows_of(pa.Table, lambda table: table.to_pylist()) == ROWS
    assert rows_of(pa.RecordBatchReader, lambda reader: reader.read_all().to_pylist()) == ROWS
    assert rows_of(duckdb.DuckDBPyRelation, lambda found: [list(row) for row in found.fetchall()]) == [
        [1, "ann"],
        [2, "bob"],
    ]
    assert rows_of(Path, lambda path: path.suffix) == "." + form
    assert rows_of(list[Path], len) == 1
    assert rows_of(Any, lambda frame: type(frame).__module__.split(".")[0]) == "pandas", "it is imported"


def test_rows_without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_installed", lambda _: False)
    for module in ("pandas", "polars", "pyarrow"):
        monkeypatch.delitem(sys.modules, module)

    @asset("a/b", upstream=["a/a"], output="csv")
    def b(a: list[dict[str, Any]]) -> Any:
        return a

    @asset("a/c", output="parquet")
    def c() -> Any:
        return ROWS

    assert run(b, inputs={"a/a": ROWS}).rows == [{"id": "1", "name": "ann"}, {"id": "2", "name": "bob"}]
    with pytest.raises(Error, match="needs pyarrow or polars") as caught:
        run(c)
    assert caught.value.code == "INVALID_CONFIGURATION"


def test_values_keep_their_types() -> None:
    sale = Sale(date(2026, 1, 31), datetime(2026, 1, 31, 5, tzinfo=timezone.utc), Decimal("1.50"))

    @asset("a/a", output="parquet")
    def a() -> list[Sale]:
        return [sale]

    @asset("a/b", upstream=[a])
    def b(a: list[Sale]) -> bool:
        return a == [sale]

    assert run(b, inputs={"a/a": [sale]}).result is True
    assert run(a).rows[0]["price"] == Decimal("1.50")


def test_files(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"x")

    @asset("a/a", output="files")
    def a(ctx: Context) -> Path:
        assert ctx.output_dir is not None
        (ctx.output_dir / "y.bin").write_bytes(b"y")
        return tmp_path / "x.bin"

    @asset("a/b", upstream=[a])
    def b(a: list[Path]) -> list[str]:
        return [path.read_text() for path in a]

    run(a)
    assert run(b, inputs={"a/a": tmp_path / "x.bin"}).result == ["x"]

    @asset("a/c", output="files")
    def c() -> int:
        return 3

    with pytest.raises(Error, match=r"cannot be written from a builtins\.int"):
        run(c)


def test_large_streams_are_written_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BATCH", 10)
    alive = 0

    class Counted(dict[str, int]):
        def __init__(self, i: int) -> None:
            nonlocal alive
            super().__init__(i=i)
            alive += 1
            assert alive <= 25, "rows of earlier batches are still in memory"

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    @asset("a/b", output="parquet")
    def b() -> Iterator[dict[str, int]]:
        return (Counted(i) for i in range(95))

    assert [row["i"] for row in run(b).rows] == list(range(95))

    @asset("a/c", output="parquet")
    def c() -> Iterator[dict[str, Any]]:
        yield from ({"i": i} for i in range(10))
        yield {"i": "text"}

    with pytest.raises(Error, match="do not have the columns of the first ones"):
        run(c)


def test_async_generators() -> None:
    @asset("a/b", output="jsonl")
    async def b() -> AsyncIterator[dict[str, Any]]:
        for row in ROWS:
            yield row

    assert run(b).rows == ROWS


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "returned None and wrote no file"),
        (3, "returned a builtins.int"),
        ({"id": 1}, "returned a builtins.dict"),
        ([1], "row 1 of the output is a builtins.int"),
        ([], "needs columns"),
        ([{"a": 1}, {"b": 1}], "different columns"),
    ],
)
def test_values_that_are_no_rows(value: Any, message: str) -> None:
    @asset("a/b", output="csv")
    def b() -> Any:
        return value

    with pytest.raises(Error, match=message):
        run(b)


def test_check_functions() -> None:
    @check
    def positive(rows: list[Row], ctx: Context) -> bool:
        return all(row["id"] > 0 for row in rows) and ctx.asset == "a/b"

    @check(name="names are short", severity="ERROR")
    def short(frame: pd.DataFrame) -> str | None:
        longest = frame["name"].str.len().max()
        return f"a name has {longest} letters" if longest > 3 else None

    @check
    def asserts(rows: Iterator[Row]) -> None:
        assert len(list(rows)) == 2, "not two"

    @asset("a/b", output="jsonl", checks=[check.row_count(min=1), positive, short, asserts])
    def b(config: Person) -> Any:
        return [*ROWS, {"id": config.id, "name": config.name}][config.id % 2 :]

    assert b.manifest()["checks"][1:3] == [
        {"type": "custom", "function": "positive", "name": "positive"},
        {"type": "custom", "function": "short", "name": "names are short", "severity": "ERROR"},
    ]
    assert run(b, parameters={"id": 3, "name": "eve"}).failed_checks == {}
    failed = run(b, parameters={"id": -2, "name": "anna"}).failed_checks
    assert failed.pop("asserts").startswith("not two")
    assert failed == {"positive": "positive returned False", "short": "a name has 4 letters"}
    assert positive(ROWS, type("C", (), {"asset": "a/b"}))


def test_types_of_checks() -> None:
    checks = [
        check.row_count(min=1, severity="ERROR"),
        check.not_null("a", "b"),
        check.unique("a", name="no twins"),
        check.freshness("at", max_age=timedelta(hours=1)),
        check.schema({"a": "integer"}, allow_extra=True),
        check.range("a", min=0, max=date(2026, 1, 1)),
        check.accepted_values("a", {"x", "y"}),
        check.regex("a", "^x"),
        check.referential("a", asset="a/a", references="id", phase="PRE", input="a/a"),
    ]
    assert [c.manifest() for c in checks] == [
        {"type": "row_count", "min": 1, "severity": "ERROR"},
        {"type": "not_null", "columns": ["a", "b"]},
        {"type": "unique", "columns": ["a"], "name": "no twins"},
        {"type": "freshness", "column": "at", "max_age": "3600000ms"},
        {"type": "schema", "schema": [{"name": "a", "type": "integer"}], "allow_extra": True},
        {"type": "range", "column": "a", "min": 0, "max": "2026-01-01"},
        {"type": "accepted_values", "column": "a", "values": ["x", "y"]},
        {"type": "regex", "column": "a", "pattern": "^x"},
        {
            "type": "referential",
            "column": "a",
            "references": {"asset": "a/a", "column": "id"},
            "phase": "PRE",
            "input": "a/a",
        },
    ]
    with pytest.raises(TypeError, match="has no argument 'maximum'"):
        check.row_count(maximum=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output": "xlsx"}, "unknown format 'xlsx'"),
        ({"output": 3}, "output is 3"),
        ({"output": Output("csv", schema={"a": "int"})}, "column a has the unknown type 'int'"),
        ({"checks": [check.row_count(min=1)]}, "has checks and no output"),
        ({"output": "csv", "checks": check.row_count(min=1)}, "is one check"),
        ({"output": "csv", "checks": [print]}, "checks of a/b has <built-in"),
        ({"output": "csv", "checks": [check.row_count(min=1, severity="BAD")]}, "unknown severity 'BAD'"),
        ({"output": "csv", "checks": [Check({"type": "unique", "columns": "a"})]}, "is text"),
    ],
)
def test_mistakes(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        asset("a/b", **arguments)(lambda: None)


def test_annotations_are_compared_with_upstreams() -> None:
    registry.collecting = True

    @asset("a/table", output="csv")
    def table() -> Any: ...

    @asset("a/number")
    def number() -> int: ...  # type: ignore[empty-body]

    @asset("a/x", upstream=[table, number])
    def x(table: int, number: pd.DataFrame) -> None: ...

    @asset("a/y", upstream=[number])
    def y(number: list[int]) -> None: ...

    @asset("a/z", upstream=[number, table])
    def z(number: float, table: Iterator[Row]) -> None: ...

    json.dumps(discover.manifest())
    assert [problem.message for problem in registry.problems] == [
        "parameter table of a/x is int, but a/table has an output",
        "parameter number of a/x is DataFrame, but a/number has no output",
        "parameter number of a/y is list[int], but a/number returns int",
    ]
    assert all(problem.file == __file__ and problem.line for problem in registry.problems)
