"""Conversion of JSON values to annotated types, and of results to JSON."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import inspect
import json
import math
import pathlib
import types
import typing
from typing import Any

from .errors import Error

_SCALARS: dict[Any, str] = {str: "a string", int: "an integer", float: "a number", bool: "a boolean"}
_SEQUENCES = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable)
_MAPPINGS = (dict, collections.abc.Mapping)
# Python 3.10 has no Required and NotRequired.
_WRAPPERS = tuple(
    getattr(typing, name) for name in ("Annotated", "Required", "NotRequired") if hasattr(typing, name)
)


class Mismatch(ValueError):
    """Value that does not have the annotated type."""


def is_record(annotation: Any) -> bool:
    """Report whether an annotation is a dataclass or a TypedDict."""
    return isinstance(annotation, type) and (
        dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation)
    )


def supported(annotation: Any) -> bool:
    """Report whether values can be converted to an annotation."""
    if annotation in (Any, None, type(None), object, inspect.Parameter.empty) or annotation in _SCALARS:
        return True
    if annotation in (datetime.date, datetime.datetime, decimal.Decimal):
        return True
    if is_record(annotation):
        return all(supported(kind) for kind in _fields(annotation).values())
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return True
    if annotation in _SEQUENCES or annotation in _MAPPINGS:
        return True
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _WRAPPERS:
        return supported(arguments[0])
    if origin is typing.Literal:
        return True
    if origin in (typing.Union, types.UnionType) or origin in _SEQUENCES or origin in _MAPPINGS:
        return all(supported(a) for a in arguments if a is not Ellipsis)
    return False


def _fields(record: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(record)
    if dataclasses.is_dataclass(record):
        return {f.name: hints[f.name] for f in dataclasses.fields(record) if f.init}
    return hints


def convert(value: Any, annotation: Any, path: str) -> Any:
    """Convert a JSON value to an annotated type. A value of another type raises Mismatch."""
    if annotation in (Any, object, inspect.Parameter.empty):
        return value
    if annotation is None or annotation is type(None):
        if value is not None:
            raise _mismatch(path, "null", value)
        return None
    if annotation in _SCALARS:
        return _scalar(value, annotation, path)
    if annotation in (datetime.date, datetime.datetime, decimal.Decimal):
        return _text(value, annotation, path)
    if is_record(annotation):
        return _record(value, annotation, path)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        try:
            return annotation(value)
        except ValueError:
            allowed = ", ".join(repr(member.value) for member in annotation)
            raise Mismatch(f"{path} is {value!r}, must be one of {allowed}") from None
    if annotation in _SEQUENCES:
        return _sequence(value, list, (), path)
    if annotation in _MAPPINGS:
        return _mapping(value, (), path)
    return _generic(value, annotation, path)


def _generic(value: Any, annotation: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _WRAPPERS:
        return convert(value, arguments[0], path)
    if origin is typing.Literal:
        if value not in arguments:
            raise Mismatch(f"{path} is {value!r}, must be one of {', '.join(map(repr, arguments))}")
        return value
    if origin in (typing.Union, types.UnionType):
        for argument in arguments:
            try:
                return convert(value, argument, path)
            except Mismatch:
                continue
        raise _mismatch(path, " or ".join(_name(a) for a in arguments), value)
    if origin in _SEQUENCES:
        return _sequence(value, origin, arguments, path)
    if origin in _MAPPINGS:
        return _mapping(value, arguments, path)
    return value


def _scalar(value: Any, annotation: Any, path: str) -> Any:
    if annotation is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if annotation is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, annotation) or (annotation is int and isinstance(value, bool)):
        raise _mismatch(path, _SCALARS[annotation], value)
    return value


def _text(value: Any, annotation: Any, path: str) -> Any:
    if isinstance(value, annotation):  # of a Parquet file
        return value
    if not isinstance(value, str):
        raise _mismatch(path, f"text for {_name(annotation)}", value)
    try:
        if annotation is decimal.Decimal:
            return decimal.Decimal(value)
        return annotation.fromisoformat(value.replace("Z", "+00:00"))
    except (ValueError, decimal.InvalidOperation):
        raise Mismatch(f"{path} is {value!r}, which is no {_name(annotation)}") from None


def _record(value: Any, annotation: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise _mismatch(path, "an object", value)
    fields = _fields(annotation)
    missing = sorted(required_fields(annotation) - value.keys())
    if missing:
        raise Mismatch(f"{path}.{missing[0]} is missing" if path else f"{missing[0]} is missing")
    known = {
        name: convert(value[name], kind, f"{path}.{name}" if path else name)
        for name, kind in fields.items()
        if name in value
    }
    return annotation(**known)


def required_fields(record: Any) -> set[str]:
    """Return the fields of a dataclass or TypedDict that have no default."""
    if dataclasses.is_dataclass(record):
        return {
            f.name
            for f in dataclasses.fields(record)
            if f.init and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        }
    return set(record.__required_keys__)


def _sequence(value: Any, origin: Any, arguments: tuple[Any, ...], path: str) -> Any:
    if not isinstance(value, list):
        raise _mismatch(path, "a list", value)
    of = arguments[0] if arguments else Any
    if origin is tuple and arguments and Ellipsis not in arguments:
        if len(value) != len(arguments):
            raise Mismatch(f"{path} has {len(value)} entries, must have {len(arguments)}")
        return tuple(
            convert(v, a, f"{path}[{i}]") for i, (v, a) in enumerate(zip(value, arguments, strict=True))
        )
    converted = [convert(v, of, f"{path}[{i}]") for i, v in enumerate(value)]
    return origin(converted) if origin in (tuple, set, frozenset) else converted


def _mapping(value: Any, arguments: tuple[Any, ...], path: str) -> Any:
    if not isinstance(value, dict):
        raise _mismatch(path, "an object", value)
    of = arguments[1] if len(arguments) == 2 else Any
    return {key: convert(entry, of, f"{path}.{key}") for key, entry in value.items()}


def _mismatch(path: str, want: str, value: Any) -> Mismatch:
    return Mismatch(f"{path} must be {want}, is {json_name(value)}")


def json_name(value: Any) -> str:
    """Name the JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)


def parameter_type(annotation: Any) -> str | None:
    """Return the type of a pipeline's parameter for an annotation; None if there is none."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _WRAPPERS:
        return parameter_type(arguments[0])
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in arguments if a is not type(None)]
        return parameter_type(rest[0]) if len(rest) == 1 else None
    if origin is typing.Literal:
        kinds = {type(a) for a in arguments}
        return parameter_type(kinds.pop()) if len(kinds) == 1 else None
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        kinds = {type(member.value) for member in annotation}
        return parameter_type(kinds.pop()) if len(kinds) == 1 else None
    if annotation in (str, datetime.date, datetime.datetime, decimal.Decimal):
        return "string"
    if annotation is bool:
        return "boolean"
    if annotation is int:
        return "integer"
    if annotation is float:
        return "number"
    if is_record(annotation) or annotation in _MAPPINGS or origin in _MAPPINGS:
        return "object"
    if annotation in _SEQUENCES or origin in _SEQUENCES:
        return "array"
    return None


def parameter_enum(annotation: Any) -> list[Any] | None:
    """Return the permitted values of an annotation; None if all are."""
    if typing.get_origin(annotation) is typing.Literal:
        return list(typing.get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [member.value for member in annotation]
    return None


MAX_RESULT = 64 << 10


def encode_result(value: Any) -> str:
    """Encode a result as JSON. A value that JSON cannot express raises Error."""
    try:
        text = json.dumps(value, default=plain, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Error(
            f"the result cannot be encoded as JSON: {error}",
            remedy="return numbers, text, lists, dicts or dataclasses",
        ) from None
    if len(text.encode()) > MAX_RESULT:
        raise Error(
            f"the result has {len(text.encode())} bytes, the limit is {MAX_RESULT}",
            remedy="store the data elsewhere, and return a reference to it",
        )
    return text


def plain(value: Any) -> Any:
    """Return the JSON form of a value that json does not know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, pathlib.PurePath)):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if hasattr(value, "item") and callable(value.item) and getattr(value, "shape", None) == ():
        return value.item()  # a scalar of numpy
    if isinstance(value, float) and math.isnan(value):
        return None
    raise TypeError(f"a {type(value).__module__}.{type(value).__qualname__} has no JSON form")


def plain_value(value: Any) -> Any:
    """Return a value as JSON has it."""
    return json.loads(json.dumps(value, default=plain, allow_nan=False))
