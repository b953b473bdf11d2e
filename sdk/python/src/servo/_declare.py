"""Declarations: assets, pipelines, retry policies, and the registry that collects them."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import FrameType
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from . import _convert, _partitions, _tables
from ._checks import Check, Output
from ._context import Context
from ._partitions import Dimension, Partitions
from .errors import DeclarationError

P = ParamSpec("P")
R = TypeVar("R")

_KEY = re.compile(r"^[a-z0-9][a-z0-9_.-]*/[a-z0-9][a-z0-9_.-]*$")
_NAME = re.compile(r"^[a-z0-9][a-z0-9_.-]*$")


@dataclasses.dataclass(frozen=True)
class Problem:
    """Mistake in a project, with its place."""

    file: str
    line: int
    message: str
    remedy: str = ""
    traceback: str = ""


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """Retry policy of an asset or a pipeline. A field that is not set has the default of the manifest."""

    max_attempts: int | None = None
    max_deaths: int | None = None
    initial_delay: str | timedelta | None = None
    max_delay: str | timedelta | None = None
    multiplier: float | None = None
    jitter: float | None = None
    retry_on: Sequence[str] | None = None
    no_retry_on: Sequence[str] | None = None
    timeout_growth: float | None = None

    def manifest(self) -> dict[str, Any]:
        """Return the policy as the manifest declares it."""
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, timedelta):
                value = duration(value)
            elif value is not None and not isinstance(value, (str, int, float)):
                value = list(value)
            if value is not None:
                fields[field.name] = value
        return fields


def duration(value: str | timedelta) -> str:
    """Return a duration as the manifest declares it."""
    return value if isinstance(value, str) else f"{round(value.total_seconds() * 1000)}ms"


class Asset(Generic[P, R]):
    """Declared asset. It is called like the function that it decorates."""

    def __init__(self, function: Callable[P, R], key: str, where: tuple[str, int]) -> None:
        self.function = function
        self.key = key
        self.file, self.line = where
        self.fields: dict[str, Any] = {}
        self.upstream: tuple[str, ...] = ()
        self.bindings: dict[str, Binding] = {}
        self.partitions: list[Dimension] = []
        self.output: Output | None = None
        self.checks: dict[str, CheckFunction] = {}  # of the project's own code, by function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", "asset")
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<asset {self.key}>"

    def manifest(self) -> dict[str, Any]:
        """Return the asset as the manifest declares it."""
        name = f"{self.function.__module__}:{self.function.__qualname__}"
        return {"key": self.key, "python": {"function": name}, **self.fields}


@dataclasses.dataclass(frozen=True)
class Binding:
    """What a parameter of a function receives: the context, the config, an upstream, or the output."""

    kind: str  # context, config, input or output
    annotation: Any
    upstream: str = ""


@dataclasses.dataclass(frozen=True)
class CheckFunction:
    """Function that checks the output of an asset."""

    function: Callable[..., Any]
    bindings: Mapping[str, Binding]


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """Declared pipeline: a selection of assets that can be run, with its parameters."""

    name: str
    fields: Mapping[str, Any]
    file: str
    line: int

    def manifest(self) -> dict[str, Any]:
        """Return the pipeline as the manifest declares it."""
        return {"name": self.name, **self.fields}


class Registry:
    """Collected declarations of a process."""

    def __init__(self) -> None:
        self.assets: dict[str, Asset[Any, Any]] = {}
        self.pipelines: dict[str, Pipeline] = {}
        self.problems: list[Problem] = []
        self.collecting = False  # problems are collected instead of raised

    def report(self, where: tuple[str, int], message: str, remedy: str = "") -> None:
        """Report a mistake."""
        if not self.collecting:
            raise DeclarationError(where[0], where[1], message, remedy)
        self.problems.append(Problem(where[0], where[1], message, remedy))


registry = Registry()


def _caller() -> tuple[str, int]:
    """Return the file and line of the first frame outside of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == __name__.split(".")[0]:
        if "__servo_project__" in frame.f_globals:
            break
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)


def asset(
    key: str,
    *,
    upstream: Iterable[str | Asset[Any, Any]] = (),
    inputs: Mapping[str, str] | None = None,
    description: str | None = None,
    pool: str | None = None,
    timeout: str | timedelta | None = None,
    retry: RetryPolicy | None = None,
    tags: Iterable[str] = (),
    owners: Iterable[str] = (),
    partitions: Dimension | Partitions | Sequence[Dimension] | None = None,
    partition_mapping: Mapping[str | Asset[Any, Any], str] | None = None,
    partitions_per_task: int | Literal["all"] | None = None,
    output: str | Output | None = None,
    checks: Iterable[Check] = (),
) -> Callable[[Callable[P, R]], Asset[P, R]]:
    """Declare the asset that a function produces.

    A parameter of the function receives the context if it is annotated with Context or named ctx, the
    result of an upstream if it has the name of the upstream (`orders` for `silver/orders`, or what
    `inputs` maps it to), and the run's parameters if it is annotated with a dataclass or TypedDict.

    With `output` the worker writes what the function returns as files of that format, runs `checks`
    over them, and commits them. Downstream functions receive the data.
    """
    where = _caller()

    def declare(function: Callable[P, R]) -> Asset[P, R]:
        declared = Asset(function, str(key), where)
        if not isinstance(key, str) or not _KEY.match(key):
            registry.report(
                where, f"{key!r} is not a valid key", "write namespace/name, such as gold/revenue"
            )
            return declared
        if not callable(function):
            registry.report(where, f"asset {key} decorates {function!r}", "decorate a function")
            return declared
        fields: dict[str, Any] = {}
        doc = inspect.getdoc(function)
        text = (
            description
            if description is not None
            else (doc.split("\n\n")[0].replace("\n", " ") if doc else "")
        )
        if text:
            fields["description"] = text
        declared.upstream = _keys(where, key, upstream)
        if declared.upstream:
            fields["upstream"] = list(declared.upstream)
        if pool is not None:
            fields["pool"] = pool
        if timeout is not None:
            fields["timeout"] = duration(timeout)
        if retry is not None:
            fields["retry"] = retry.manifest()
        for name, words in (("tags", tags), ("owners", owners)):
            if isinstance(words, str):
                registry.report(where, f"{name} of {key} is text", f'write a list: {name}=["{words}"]')
            elif listed := list(words):
                fields[name] = listed
        declared.fields = fields
        _add_partitions(declared, partitions, partition_mapping, partitions_per_task)
        _add_output(declared, output)
        declared.bindings = _bind(declared, function, dict(inputs or {}))
        _add_checks(declared, checks, dict(inputs or {}))
        earlier = registry.assets.get(key)
        if earlier is not None and not _same_function(earlier.function, function):
            registry.report(
                where,
                f"asset {key} is declared twice, first in {earlier.file}:{earlier.line}",
                "rename or remove one of them",
            )
        registry.assets[key] = declared
        return declared

    return declare


def _add_partitions(
    declared: Asset[Any, Any], partitions: Any, mapping: Any, per_task: int | str | None
) -> None:
    """Declare the partitions of an asset."""
    where, key = (declared.file, declared.line), declared.key
    if partitions is not None:
        declared.partitions, mistake = _partitions.declaration(partitions)
        if mistake:
            registry.report(where, f"asset {key}: {mistake[0]}", mistake[1])
            return
        declared.fields["partitions"] = [d.manifest() for d in declared.partitions]
    if mapping:
        named = {up.key if isinstance(up, Asset) else up: text for up, text in dict(mapping).items()}
        for upstream, text in named.items():
            if problem := _partitions.mapping_mistake(text):
                registry.report(
                    where,
                    f"asset {key}: {problem} to {upstream}",
                    "use identity, all, last 7 days, first dimension or previous",
                )
                return
            if upstream not in declared.upstream and upstream != key:
                registry.report(
                    where,
                    f"partition_mapping of {key} names {upstream}, which is no upstream of it",
                    f'add "{upstream}" to upstream',
                )
                return
        declared.fields["partition_mapping"] = named
    if per_task is not None:
        if not declared.partitions:
            registry.report(
                where, f"asset {key} has partitions_per_task and no partitions", "declare partitions"
            )
            return
        declared.fields["partitions_per_task"] = per_task


def _add_output(declared: Asset[Any, Any], output: Any) -> None:
    """Declare the output of an asset."""
    if output is None:
        return
    where, key = (declared.file, declared.line), declared.key
    made = Output(output) if isinstance(output, str) else output
    if not isinstance(made, Output):
        registry.report(where, f"asset {key}: output is {output!r}", 'write output="parquet"')
        return
    if mistake := made.mistake():
        registry.report(where, f"asset {key}: {mistake[0]}", mistake[1])
        return
    declared.output = made
    declared.fields["output"] = made.manifest()


def _add_checks(declared: Asset[Any, Any], checks: Any, inputs: dict[str, str]) -> None:
    """Declare the checks of an asset's output and inputs."""
    where, key = (declared.file, declared.line), declared.key
    if isinstance(checks, Check):
        registry.report(where, f"checks of {key} is one check", "write a list: checks=[…]")
        return
    listed = []
    for entry in checks:
        if not isinstance(entry, Check):
            registry.report(
                where, f"checks of {key} has {entry!r}", "use check.row_count(…), or decorate it with @check"
            )
            return
        if mistake := entry.mistake():
            registry.report(where, f"asset {key}: {mistake[0]}", mistake[1])
            return
        if entry.fields.get("phase") != "PRE" and declared.output is None:
            registry.report(where, f"asset {key} has checks and no output", 'declare one: output="parquet"')
            return
        if entry.function is not None:
            bindings = _bind(declared, entry.function, inputs, check=True)
            declared.checks[entry.function.__name__] = CheckFunction(entry.function, bindings)
        listed.append(entry.manifest())
    if listed:
        declared.fields["checks"] = listed


def _same_function(one: Any, other: Any) -> bool:
    """Report whether a module was imported again, as by a reload."""
    return (one.__module__, one.__qualname__) == (
        other.__module__,
        other.__qualname__,
    ) and one.__code__.co_firstlineno == other.__code__.co_firstlineno


def _keys(where: tuple[str, int], key: str, upstream: Any) -> tuple[str, ...]:
    if isinstance(upstream, (str, Asset)):
        registry.report(where, f"upstream of {key} is {upstream!r}", f"write a list: upstream=[{upstream!r}]")
        return ()
    keys = []
    for entry in upstream:
        if isinstance(entry, Asset):
            keys.append(entry.key)
        elif isinstance(entry, str) and _KEY.match(entry):
            keys.append(entry)
        else:
            registry.report(where, f"upstream {entry!r} of {key} is not a key", "write namespace/name")
    return tuple(keys)


def parameter_name(key: str) -> str:
    """Return the name of the parameter that receives an upstream's result."""
    return re.sub(r"\W", "_", key.split("/", 1)[1])


def _bind(
    declared: Asset[Any, Any], function: Callable[..., Any], inputs: dict[str, str], *, check: bool = False
) -> dict[str, Binding]:
    """Decide what each parameter of an asset's function, or of a check of it, receives."""
    key = declared.key
    where = (
        (function.__code__.co_filename, function.__code__.co_firstlineno)
        if hasattr(function, "__code__")
        else (declared.file, declared.line)
    )
    try:
        annotations = typing.get_type_hints(function)
    except Exception as error:
        registry.report(
            where, f"an annotation of {key} cannot be resolved: {error}", "import the annotated type"
        )
        annotations = {}
    by_name = {parameter_name(upstream): upstream for upstream in declared.upstream}
    for name, upstream in inputs.items():
        if upstream not in declared.upstream:
            registry.report(
                where,
                f"inputs of {key} names {upstream}, which is no upstream of it",
                f'add "{upstream}" to upstream',
            )
        by_name[name] = upstream
    bound: dict[str, Binding] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = annotations.get(name, inspect.Parameter.empty)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            registry.report(where, f"{key} takes *{name}", "name each parameter")
        elif annotation is Context or (name == "ctx" and annotation is inspect.Parameter.empty):
            bound[name] = Binding("context", annotation)
        elif name in by_name:
            _check_annotation(where, key, name, annotation)
            bound[name] = Binding("input", annotation, by_name[name])
        elif check and not any(binding.kind == "output" for binding in bound.values()):
            _check_annotation(where, key, name, annotation)
            bound[name] = Binding("output", annotation)
        elif _convert.is_record(annotation):
            if not _convert.supported(annotation):
                registry.report(
                    where, _unknown_annotation(key, name, annotation), "use JSON types for the fields"
                )
            bound[name] = Binding("config", annotation)
        elif parameter.default is inspect.Parameter.empty:
            _unbound(where, key, name, annotation, by_name)
    return bound


def _check_annotation(where: tuple[str, int], key: str, name: str, annotation: Any) -> None:
    if not _convert.supported(annotation) and not _tables.kind_of(annotation):
        registry.report(
            where,
            _unknown_annotation(key, name, annotation),
            "annotate it with a JSON type, a dataclass, a TypedDict, a table or Path",
        )


def _unknown_annotation(key: str, name: str, annotation: Any) -> str:
    text = getattr(annotation, "__qualname__", None) or str(annotation)
    return f"parameter {name} of {key} has the unsupported annotation {text}"


def _unbound(
    where: tuple[str, int], key: str, name: str, annotation: Any, by_name: Mapping[str, str]
) -> None:
    if annotation is not inspect.Parameter.empty and not _convert.supported(annotation):
        registry.report(
            where,
            _unknown_annotation(key, name, annotation),
            "annotate it with Context, a dataclass or a TypedDict",
        )
        return
    similar = difflib.get_close_matches(name, by_name, n=1)
    message = f"parameter {name} of {key} is no upstream"
    if similar:
        message += f"; did you mean {similar[0]}?"
    registry.report(
        where, message, f'add the asset to upstream, or map it: inputs={{"{name}": "namespace/name"}}'
    )


def pipeline(
    name: str,
    *,
    select: Iterable[str | Asset[Any, Any]] = ("*",),
    config: type[Any] | None = None,
    description: str | None = None,
    max_execution: str | timedelta | None = None,
    priority: int | None = None,
    retry: RetryPolicy | None = None,
    overlap: str | None = None,
    lock: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Declare a pipeline. The fields of `config`, a dataclass or TypedDict, are its parameters."""
    where = _caller()
    fields: dict[str, Any] = {}
    if not isinstance(name, str) or not _NAME.match(name):
        registry.report(
            where,
            f"{name!r} is not a valid pipeline name",
            "use lower case letters, digits, '_', '-' and '.'",
        )
    if isinstance(select, (str, Asset)):
        registry.report(where, f"select of pipeline {name} is {select!r}", "write a list")
        select = ()
    fields["select"] = [entry.key if isinstance(entry, Asset) else entry for entry in select]
    if config is not None:
        fields["parameters"] = _parameters(where, name, config)
    for field, value in (
        ("description", description),
        ("priority", priority),
        ("overlap", overlap),
        ("lock", lock),
    ):
        if value is not None:
            fields[field] = value
    if max_execution is not None:
        fields["max_execution"] = duration(max_execution)
    if retry is not None:
        fields["retry"] = retry.manifest()
    declared = Pipeline(str(name), fields, *where)
    earlier = registry.pipelines.get(declared.name)
    if earlier is not None and (earlier.file, earlier.line) != where:
        registry.report(
            where,
            f"pipeline {name} is declared twice, first in {earlier.file}:{earlier.line}",
            "rename or remove one of them",
        )
    registry.pipelines[declared.name] = declared
    return declared


def _parameters(where: tuple[str, int], name: str, config: Any) -> list[dict[str, Any]]:
    if not _convert.is_record(config):
        registry.report(where, f"config of pipeline {name} is {config!r}", "use a dataclass or a TypedDict")
        return []
    required = _convert.required_fields(config)
    defaults: dict[str, Any] = {}
    if dataclasses.is_dataclass(config):
        for field in dataclasses.fields(config):
            if field.default is not dataclasses.MISSING:
                defaults[field.name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                defaults[field.name] = field.default_factory()
    declared = []
    for field_name, annotation in typing.get_type_hints(config).items():
        kind = _convert.parameter_type(annotation)
        if kind is None:
            registry.report(
                where,
                f"field {field_name} of {config.__qualname__} has the unsupported annotation {annotation}",
                "use str, int, float, bool, a list or a dict",
            )
            continue
        parameter: dict[str, Any] = {"name": field_name, "type": kind}
        if field_name in required:
            parameter["required"] = True
        enum = _convert.parameter_enum(annotation)
        if enum is not None and kind in ("string", "integer", "number"):
            parameter["enum"] = enum
        if defaults.get(field_name) is not None:
            parameter["default"] = _convert.plain_value(defaults[field_name])
        declared.append(parameter)
    return declared
