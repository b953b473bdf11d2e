"""Import of a project: which modules declare assets, and the manifest of all of them."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import traceback
import typing
from typing import Any

from . import _convert, _execute, _tables
from ._declare import Asset, Problem, registry

_IMPORTS_SERVO = re.compile(rb"^\s*(from\s+servo[\s.]|import\s+([\w., ]+,\s*)?servo\b)", re.MULTILINE)
_SKIPPED = {"node_modules", "tests", "test", "build", "dist", "__pycache__", "site-packages"}


def modules(project: str) -> list[str]:
    """Return the modules of a project that import servo, in order, without tests and environments."""
    root = source_root(project)
    found = []
    for folder, names, files in os.walk(root):
        if "pyvenv.cfg" in files:
            names[:] = []
            continue
        names[:] = sorted(n for n in names if n not in _SKIPPED and n.isidentifier())
        for file in sorted(files):
            stem, extension = os.path.splitext(file)
            if extension != ".py" or not stem.isidentifier() or _is_test(stem):
                continue
            path = os.path.join(folder, file)
            with open(path, "rb") as source:
                if not _IMPORTS_SERVO.search(source.read()):
                    continue
            parts = os.path.relpath(folder, root).split(os.sep) if folder != root else []
            if stem != "__init__":
                parts.append(stem)
            if parts:
                found.append(".".join(parts))
    return found


def _is_test(stem: str) -> bool:
    return stem.startswith("test_") or stem.endswith("_test") or stem in ("conftest", "setup", "__main__")


def source_root(project: str) -> str:
    """Return the folder that modules are imported from: src if the project has one."""
    source = os.path.join(project, "src")
    return source if os.path.isdir(source) else project


def load(project: str, names: list[str] | None = None) -> None:
    """Import the modules of a project. Mistakes are collected in the registry."""
    project = os.path.abspath(project)
    root = source_root(project)
    for folder in (project, root):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    registry.collecting = True
    chosen = names if names else modules(project)
    if not chosen:
        registry.problems.append(
            Problem(
                project,
                0,
                "no module of the project imports servo",
                "declare an asset: from servo import asset",
            )
        )
    for name in chosen:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            registry.problems.append(_import_problem(name, root, error))


def _import_problem(name: str, root: str, error: BaseException) -> Problem:
    """Return the place in the project that an import failed at."""
    file, line = os.path.join(root, *name.split(".")) + ".py", 0
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno or 0
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            if os.path.abspath(frame.filename).startswith(root + os.sep):
                file, line = frame.filename, frame.lineno or 0
    message = f"module {name} cannot be imported: {type(error).__name__}: {error}"
    remedy = "install its dependencies in the project's environment" if isinstance(error, ImportError) else ""
    return Problem(file, line, message, remedy, _execute.trace(error))


def manifest() -> dict[str, Any]:
    """Return the manifest of all declarations, and collect mistakes between them."""
    known = registry.assets
    for asset in known.values():
        for upstream in asset.upstream:
            if upstream not in known:
                registry.report(
                    (asset.file, asset.line),
                    f"asset {asset.key} has the unknown upstream {upstream}"
                    + _similar(upstream, list(known)),
                    "declare it in a module of this project",
                )
            else:
                _check_input(asset, known[upstream])
    if not known and not registry.problems:
        registry.report(("", 0), "the project declares no assets", "decorate a function with @asset")
    document: dict[str, Any] = {"version": 1, "assets": [known[key].manifest() for key in sorted(known)]}
    if registry.pipelines:
        document["pipelines"] = [registry.pipelines[name].manifest() for name in sorted(registry.pipelines)]
    return document


def _check_input(asset: Asset[Any, Any], upstream: Asset[Any, Any]) -> None:
    """Report a parameter whose annotation does not fit what its upstream produces."""
    code = getattr(asset.function, "__code__", None)
    where = (code.co_filename, code.co_firstlineno) if code else (asset.file, asset.line)
    for name, binding in asset.bindings.items():
        if binding.upstream != upstream.key or binding.kind != "input":
            continue
        annotation, table = binding.annotation, _tables.kind_of(binding.annotation)
        text = _spelled(annotation)
        if upstream.output is None:
            if table and not _convert.supported(annotation):
                registry.report(
                    where,
                    f"parameter {name} of {asset.key} is {text}, but {upstream.key} has no output",
                    f'declare one: @asset("{upstream.key}", output="parquet")',
                )
                continue
            returned = _returned(upstream)
            have, want = _convert.parameter_type(returned), _convert.parameter_type(annotation)
            if have and want and have != want and (have, want) != ("integer", "number"):
                registry.report(
                    where,
                    f"parameter {name} of {asset.key} is {text}, but {upstream.key} returns "
                    + _spelled(returned),
                    "use the same type in both",
                )
        elif not table and annotation not in (Any, inspect.Parameter.empty, object, list):
            registry.report(
                where,
                f"parameter {name} of {asset.key} is {text}, but {upstream.key} has an output",
                "annotate it with a table, list[dict[str, Any]], an Iterator of rows, or Path",
            )


def _spelled(annotation: Any) -> str:
    return (
        annotation.__qualname__
        if isinstance(annotation, type) and not typing.get_args(annotation)
        else str(annotation)
    )


def _returned(asset: Asset[Any, Any]) -> Any:
    """Return the annotation of what a function returns; None if it cannot be known."""
    try:
        annotation = typing.get_type_hints(asset.function).get("return")
    except Exception:  # reported where it is declared
        return None
    return annotation


def _similar(name: str, names: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""
