"""Declarations and their mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypedDict

import pytest

from servo import Context, DeclarationError, RetryPolicy, asset, pipeline
from servo._declare import registry


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    registry.assets.clear()
    registry.pipelines.clear()


@dataclass
class Config:
    day: str
    region: Literal["eu", "us"] = "eu"
    limit: int | None = None
    tags: list[str] = field(default_factory=lambda: ["a"])


class Order(TypedDict):
    id: int


def test_manifest_of_an_asset() -> None:
    @asset(
        "gold/revenue",
        upstream=["silver/orders"],
        pool="big",
        timeout=timedelta(minutes=5),
        retry=RetryPolicy(max_attempts=5, initial_delay=timedelta(seconds=1)),
        tags=["daily"],
        owners=["data"],
    )
    def revenue(ctx: Context, orders: list[Order], config: Config) -> int:
        """Sum of all
        orders.

        More text.
        """
        return len(orders)

    assert revenue.manifest() == {
        "key": "gold/revenue",
        "python": {"function": f"{__name__}:test_manifest_of_an_asset.<locals>.revenue"},
        "description": "Sum of all orders.",
        "upstream": ["silver/orders"],
        "pool": "big",
        "timeout": "300000ms",
        "retry": {"max_attempts": 5, "initial_delay": "1000ms"},
        "tags": ["daily"],
        "owners": ["data"],
    }
    assert {name: b.kind for name, b in revenue.bindings.items()} == {
        "ctx": "context",
        "orders": "input",
        "config": "config",
    }


def test_parameters_of_a_pipeline() -> None:
    assert pipeline("daily", config=Config).manifest() == {
        "name": "daily",
        "select": ["*"],
        "parameters": [
            {"name": "day", "type": "string", "required": True},
            {"name": "region", "type": "string", "enum": ["eu", "us"], "default": "eu"},
            {"name": "limit", "type": "integer"},
            {"name": "tags", "type": "array", "default": ["a"]},
        ],
    }


def test_a_declared_asset_is_still_a_function() -> None:
    @asset("a/b")
    def double(n: int = 2) -> int:
        return n * 2

    assert double(4) == 8


def test_mistakes_have_a_place() -> None:
    with pytest.raises(DeclarationError, match=r"test_declare.py:\d+: 'Gold' is not a valid key"):
        asset("Gold")(lambda: None)
    with pytest.raises(DeclarationError, match="is text"):
        asset("a/b", tags="x")(lambda: None)
    with pytest.raises(DeclarationError, match="did you mean orders"):

        @asset("a/b", upstream=["a/orders"])
        def b(order: int) -> None: ...

    with pytest.raises(DeclarationError, match="no upstream of it"):

        @asset("a/c", inputs={"x": "a/x"})
        def c(x: int) -> None: ...
