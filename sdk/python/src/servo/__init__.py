"""Servo: declare data assets in Python.

from servo import asset, Context

@asset("gold/revenue", upstream=["silver/orders"])
def revenue(ctx: Context, orders: list[dict[str, float]]) -> float:
    ctx.log.info("%d orders", len(orders))
    return sum(order["amount"] for order in orders)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._checks import Check, Output, check
from ._context import Context, Interval, MappedResult
from ._declare import Asset, Pipeline, RetryPolicy, asset, pipeline
from ._partitions import (
    Dimension,
    Partition,
    Partitions,
    daily,
    hourly,
    monthly,
    static,
    weekly,
)
from .errors import Cancelled, DeclarationError, Error, Permanent, Retry, Yield

if TYPE_CHECKING:
    from .client import APIError, Client

__version__ = "0.1.0"

__all__ = [
    "APIError",
    "Asset",
    "Cancelled",
    "Check",
    "Client",
    "Context",
    "DeclarationError",
    "Dimension",
    "Error",
    "Interval",
    "MappedResult",
    "Output",
    "Partition",
    "Partitions",
    "Permanent",
    "Pipeline",
    "Retry",
    "RetryPolicy",
    "Yield",
    "asset",
    "check",
    "daily",
    "hourly",
    "monthly",
    "pipeline",
    "static",
    "weekly",
]


def __getattr__(name: str) -> Any:
    """Import the client at its first use: hosts do not need it and start faster."""
    if name in ("APIError", "Client"):
        from . import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
