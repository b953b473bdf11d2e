"""Files of outputs: reading them as what a parameter is annotated with, and writing what a function returns.

Libraries are imported only if the project uses them. Without any, CSV, JSON and JSON Lines are read and
written with the standard library.
"""

from __future__ import annotations

import collections.abc
import csv
import dataclasses
import importlib.util
import itertools
import json
import os
import shutil
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _convert
from .errors import INVALID_CONFIGURATION, SCHEMA_VIOLATION, Error

BATCH = 50_000  # rows that are converted at once

# Types of libraries, by module and name.
_TABLES = {
    ("pandas", "DataFrame"): "pandas",
    ("polars", "DataFrame"): "polars",
    ("polars", "LazyFrame"): "polars lazy",
    ("pyarrow", "Table"): "arrow",
    ("pyarrow", "RecordBatchReader"): "arrow batches",
    ("duckdb", "DuckDBPyRelation"): "duckdb",
    ("_duckdb", "DuckDBPyRelation"): "duckdb",
}
_STREAMS = (collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator)


@dataclasses.dataclass(frozen=True)
class Files:
    """Files of one version of an output, on this machine."""

    format: str
    files: tuple[str, ...]
    schema: Mapping[str, str] = dataclasses.field(default_factory=dict)  # types by column

    @staticmethod
    def of(versions: Sequence[Mapping[str, Any]]) -> Files:
        """Unite the files of all partitions that a task depends on."""
        paths = tuple(path for version in versions for path in version["files"])
        first = versions[0]
        return Files(first["format"], paths, {c["name"]: c["type"] for c in first.get("schema") or []})


def kind_of(annotation: Any) -> str:
    """Return what an annotation asks for: a table, paths, rows or a stream; "" for none of them."""
    if isinstance(annotation, type):
        module = annotation.__module__.split(".")[0]
        if found := _TABLES.get((module, annotation.__name__)):
            return found
        if issubclass(annotation, os.PathLike):
            return "path"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (list, collections.abc.Sequence) and arguments:
        return "paths" if arguments[0] is Path else "rows" if _is_row(arguments[0]) else ""
    if origin in _STREAMS and arguments and _is_row(arguments[0]):
        return "stream"
    return ""


def _is_row(annotation: Any) -> bool:
    return (
        annotation in (Any, dict, collections.abc.Mapping)
        or _convert.is_record(annotation)
        or typing.get_origin(annotation) in (dict, collections.abc.Mapping)
    )


def default_kind() -> str:
    """Return what a parameter without annotation receives: a table of the imported library."""
    for module, kind in (("pandas", "pandas"), ("polars", "polars"), ("pyarrow", "arrow")):
        if module in sys.modules:
            return kind
    return "rows"


def read(files: Files, annotation: Any, what: str) -> Any:
    """Read files as an annotation asks for."""
    kind = kind_of(annotation) or default_kind()
    if files.format == "files" and kind not in ("path", "paths"):
        kind = "paths"
    paths = [Path(path) for path in files.files]
    if kind == "paths":
        return paths
    if kind == "path":
        if len(paths) != 1:
            raise Error(
                f"{what} has {len(paths)} files",
                code=INVALID_CONFIGURATION,
                remedy="annotate it with list[Path], or with a table",
            )
        return paths[0]
    if kind == "rows":
        return list(_converted(rows(files), annotation, what))
    if kind == "stream":
        return _converted(rows(files), annotation, what)
    if kind == "polars lazy":
        return _scan_polars(files)
    if kind == "polars":
        return _scan_polars(files).collect()
    if kind == "duckdb":
        return _read_duckdb(files)
    if kind == "arrow":
        return _read_arrow(files)
    if kind == "arrow batches":
        return _arrow_batches(files)
    return _read_pandas(files)


def _converted(found: Iterator[dict[str, Any]], annotation: Any, what: str) -> Iterator[Any]:
    arguments = typing.get_args(annotation)
    of = arguments[0] if arguments else Any
    if of in (Any, dict, collections.abc.Mapping):
        yield from found
        return
    for number, row in enumerate(found, start=1):
        try:
            yield _convert.convert(row, of, f"row {number} of {what}")
        except _convert.Mismatch as error:
            raise Error(
                str(error), code=SCHEMA_VIOLATION, remedy="use the types of the upstream's columns"
            ) from None


# Rows, with the standard library where the format permits it.


def rows(files: Files) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of all files."""
    for path in files.files:
        if files.format == "csv":
            yield from _csv_rows(path, files.schema)
        elif files.format == "jsonl":
            with open(path, encoding="utf-8") as lines:
                yield from (json.loads(line) for line in lines if line.strip())
        elif files.format == "json":
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            yield from document if isinstance(document, list) else [document]
        else:
            yield from _parquet_rows(path)


def _csv_rows(path: str, schema: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            yield {name: _csv_value(text, schema.get(name, "string")) for name, text in row.items()}


def _csv_value(text: str | None, kind: str) -> Any:
    if not text:
        return None
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
    except ValueError:
        return text
    if kind == "boolean":
        return {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}.get(
            text.lower(), text
        )
    return text


def _parquet_rows(path: str) -> Iterator[dict[str, Any]]:
    if _installed("pyarrow"):
        import pyarrow.parquet as parquet

        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH):
                yield from batch.to_pylist()
    elif _installed("polars"):
        import polars

        for part in polars.read_parquet(path).iter_slices(BATCH):
            yield from part.to_dicts()
    elif _installed("duckdb"):
        import duckdb

        with duckdb.connect() as connection:
            found = connection.execute("SELECT * FROM read_parquet(?)", [path])
            names = [column[0] for column in found.description]
            while fetched := found.fetchmany(BATCH):
                yield from (dict(zip(names, row, strict=True)) for row in fetched)
    else:
        raise _missing("parquet", "pyarrow, polars or duckdb")


# Tables of libraries.


def _scan_polars(files: Files) -> Any:
    import polars

    paths = list(files.files)
    if files.format == "parquet":
        return polars.scan_parquet(paths)
    if files.format == "csv":
        kinds = {
            "integer": polars.Int64,
            "number": polars.Float64,
            "boolean": polars.Boolean,
            "string": polars.String,
        }
        overrides = {name: kinds[kind] for name, kind in files.schema.items() if kind in kinds}
        return polars.scan_csv(paths, schema_overrides=overrides or None)
    if files.format == "jsonl":
        return polars.scan_ndjson(paths)
    return polars.DataFrame(list(rows(files))).lazy()


def _read_duckdb(files: Files) -> Any:
    import duckdb

    paths = list(files.files)
    if files.format == "parquet":
        return duckdb.read_parquet(paths)
    if files.format == "csv":
        return duckdb.read_csv(paths)
    return duckdb.read_json(paths)


def _arrow_batches(files: Files) -> Any:
    import pyarrow as arrow

    if files.format != "parquet":
        table = arrow.Table.from_pylist(list(rows(files)))
        return arrow.RecordBatchReader.from_batches(table.schema, table.to_batches())
    import pyarrow.parquet as parquet

    def batches() -> Iterator[Any]:
        for path in files.files:
            with parquet.ParquetFile(path) as file:
                yield from file.iter_batches(batch_size=BATCH)

    return arrow.RecordBatchReader.from_batches(parquet.read_schema(files.files[0]), batches())


def _read_arrow(files: Files) -> Any:
    return _arrow_batches(files).read_all()


def _read_pandas(files: Files) -> Any:
    import pandas

    def one(path: str) -> Any:
        if files.format == "parquet":
            if _installed("pyarrow") or _installed("fastparquet"):
                return pandas.read_parquet(path)
            return pandas.DataFrame(list(_parquet_rows(path)))
        if files.format == "csv":
            texts = {name: "string" for name, kind in files.schema.items() if kind == "string"}
            return pandas.read_csv(path, dtype=texts or None)
        if files.format == "jsonl":
            return pandas.read_json(path, lines=True)
        return pandas.DataFrame(list(rows(dataclasses.replace(files, files=(path,)))))

    return pandas.concat([one(path) for path in files.files], ignore_index=True)


def _installed(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None


def _missing(form: str, libraries: str) -> Error:
    return Error(
        f"{form} needs {libraries}, and the environment has none of them",
        code=INVALID_CONFIGURATION,
        remedy="install one, such as servo-pipelines[arrow], or use the format csv or jsonl",
    )


# Writing.


def write(value: Any, directory: str, form: str, schema: Mapping[str, str]) -> None:
    """Write what a function returned as the files of its output."""
    if value is None:
        if not any(files for _, _, files in os.walk(directory)):
            raise Error(
                "the function returned None and wrote no file",
                remedy="return rows, a table or paths, or write files to ctx.output_dir",
            )
        return
    if _paths(value) is not None:
        _copy(_paths(value) or [], directory)
        return
    if form == "files":
        if isinstance(value, (bytes, bytearray)):
            Path(directory, "data").write_bytes(value)
            return
        raise Error(
            f"an output of format files cannot be written from a {_name(value)}",
            remedy="return a path, a list of paths or bytes",
        )
    kind = _TABLES.get((type(value).__module__.split(".")[0], type(value).__name__), "")
    target = os.path.join(directory, "part-0." + form)
    if kind == "pandas":
        _write_pandas(value, target, form)
    elif kind in ("polars", "polars lazy"):
        _write_polars(value, target, form)
    elif kind in ("arrow", "arrow batches"):
        _write_arrow(value, target, form)
    elif kind == "duckdb":
        _write_duckdb(value, target, form)
    elif form == "json":
        _write_json(value, target)
    else:
        _write_rows(_as_rows(value), target, form, schema)


def _name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _paths(value: Any) -> list[Path] | None:
    if isinstance(value, os.PathLike):
        return [Path(value)]
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, os.PathLike) for v in value):
        return [Path(v) for v in value]
    return None


def _copy(paths: list[Path], directory: str) -> None:
    inside = Path(directory).resolve()
    for path in paths:
        if path.resolve().is_relative_to(inside):
            continue
        if path.is_dir():
            shutil.copytree(path, inside, dirs_exist_ok=True)
        elif (inside / path.name).exists():
            raise Error(f"two files of the output have the name {path.name}", remedy="rename one of them")
        else:
            shutil.copyfile(path, inside / path.name)


def _as_rows(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise Error(
            f"the output has rows, and the function returned a {_name(value)}",
            remedy="return a table, a list of dicts, an iterator of dicts or paths",
        )
    for number, row in enumerate(value, start=1):
        if dataclasses.is_dataclass(row) and not isinstance(row, type):
            yield {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
        elif isinstance(row, Mapping):
            yield dict(row)
        else:
            raise Error(f"row {number} of the output is a {_name(row)}", remedy="yield dicts or dataclasses")


def _batches(found: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while batch := list(itertools.islice(found, BATCH)):
        yield batch


def _write_json(value: Any, target: str) -> None:
    if isinstance(value, (types.GeneratorType, collections.abc.Iterator)):
        value = list(value)
    with open(target, "w", encoding="utf-8") as file:
        json.dump(value, file, default=_convert.plain, allow_nan=False, ensure_ascii=False)


def _write_rows(found: Iterator[dict[str, Any]], target: str, form: str, schema: Mapping[str, str]) -> None:
    if form == "parquet":
        _write_parquet_rows(found, target, schema)
        return
    with open(target, "w", encoding="utf-8", newline="") as file:
        if form == "csv":
            _write_csv(found, file, schema)
            return
        for row in found:
            file.write(json.dumps(row, default=_convert.plain, allow_nan=False, ensure_ascii=False) + "\n")


def _write_csv(found: Iterator[dict[str, Any]], file: Any, schema: Mapping[str, str]) -> None:
    names = list(schema)
    first = next(found, None)
    if first is not None and not names:
        names = list(first)
    if not names:
        raise Error(
            "a CSV file without rows needs columns", remedy='declare them: output=Output("csv", schema={…})'
        )
    writer = csv.DictWriter(file, names)
    writer.writeheader()
    try:
        for row in itertools.chain([] if first is None else [first], found):
            writer.writerow({name: _csv_text(value) for name, value in row.items()})
    except ValueError as error:
        raise Error(
            f"the rows have different columns: {error}",
            code=SCHEMA_VIOLATION,
            remedy="yield the same columns",
        ) from None


def _csv_text(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float)):
        return {True: "true", False: "false"}[value] if isinstance(value, bool) else value
    if isinstance(value, (list, dict)):
        return json.dumps(value, default=_convert.plain, ensure_ascii=False)
    return _convert.plain(value)


def _write_parquet_rows(found: Iterator[dict[str, Any]], target: str, schema: Mapping[str, str]) -> None:
    if _installed("pyarrow"):
        import pyarrow as arrow

        _write_batches((arrow.Table.from_pylist(batch) for batch in _batches(found)), target, schema)
    elif _installed("polars"):
        import polars

        stem = target.removesuffix("0.parquet")
        number = -1
        for number, batch in enumerate(_batches(found)):
            polars.DataFrame(batch, infer_schema_length=None).write_parquet(f"{stem}{number}.parquet")
        if number < 0:
            polars.DataFrame(schema=list(schema)).write_parquet(target)
    else:
        raise _missing("writing rows as parquet", "pyarrow or polars")


def _write_batches(tables: Iterator[Any], target: str, schema: Mapping[str, str]) -> None:
    """Write tables one after the other, with the declared types, else with those of the first one."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    kinds = {
        "string": arrow.string(),
        "integer": arrow.int64(),
        "number": arrow.float64(),
        "boolean": arrow.bool_(),
        "date": arrow.date32(),
        "timestamp": arrow.timestamp("us", tz="UTC"),
        "binary": arrow.binary(),
    }
    writer = None
    try:
        for table in itertools.chain(tables, [None]):
            if table is None:
                if writer is None:  # no rows
                    table = arrow.table({name: arrow.array([], kinds.get(k)) for name, k in schema.items()})
                else:
                    break
            if writer is None:
                fields = [f.with_type(kinds.get(schema.get(f.name, ""), f.type)) for f in table.schema]
                writer = parquet.ParquetWriter(target, arrow.schema(fields), compression="zstd")
            try:
                writer.write_table(table.cast(writer.schema))
            except (ValueError, TypeError) as error:
                raise Error(
                    f"the rows do not have the columns of the first ones: {error}",
                    code=SCHEMA_VIOLATION,
                    remedy="declare the columns: output=Output('parquet', schema={…})",
                ) from None
    finally:
        if writer is not None:
            writer.close()


def _write_pandas(frame: Any, target: str, form: str) -> None:
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()  # as after a groupby
    frame.columns = [str(name) for name in frame.columns]
    if form == "csv":
        frame.to_csv(target, index=False)
    elif form in ("json", "jsonl"):
        frame.to_json(target, orient="records", lines=form == "jsonl", date_format="iso")
    elif _installed("pyarrow") or _installed("fastparquet"):
        frame.to_parquet(target, index=False)
    elif _installed("polars"):
        import polars

        polars.from_dicts(frame.to_dict("records")).write_parquet(target)
    else:
        raise _missing("writing pandas as parquet", "pyarrow")


def _write_polars(frame: Any, target: str, form: str) -> None:
    lazy = type(frame).__name__ == "LazyFrame"
    if form == "json":
        (frame.collect() if lazy else frame).write_json(target)
        return
    name = ("sink_" if lazy else "write_") + {"jsonl": "ndjson"}.get(form, form)
    getattr(frame, name)(target)


def _write_arrow(value: Any, target: str, form: str) -> None:
    import pyarrow as arrow

    is_table = isinstance(value, arrow.Table)
    if form == "parquet":
        tables = [value] if is_table else (arrow.Table.from_batches([batch]) for batch in value)
        schema_only = arrow.table({f.name: arrow.array([], f.type) for f in value.schema})
        _write_batches(itertools.chain([schema_only], tables), target, {})
        return
    batches = value.to_batches() if is_table else value
    found = (row for batch in batches for row in batch.to_pylist())
    if form == "json":
        _write_json(found, target)
    else:
        _write_rows(found, target, form, dict.fromkeys(value.schema.names, ""))


def _write_duckdb(relation: Any, target: str, form: str) -> None:
    if form == "parquet":
        relation.write_parquet(target)
    elif form == "csv":
        relation.write_csv(target, header=True)
    else:
        names = relation.columns
        listed = (dict(zip(names, row, strict=True)) for row in relation.fetchall())
        if form == "json":
            _write_json(listed, target)
        else:
            _write_rows(listed, target, form, {})
