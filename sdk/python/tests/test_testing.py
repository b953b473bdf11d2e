"""servo.testing.run: what a function receives and reports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal

import pytest

from servo import Context, Error, Yield, asset
from servo._declare import registry
from servo.testing import run


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    registry.assets.clear()


@dataclass
class Config:
    day: date
    factor: float = 1


@dataclass
class Order:
    amount: Decimal
    at: datetime | None = None


def test_inputs_and_parameters_are_converted() -> None:
    @asset("gold/revenue", upstream=["silver/orders"])
    def revenue(ctx: Context, orders: list[Order], config: Config) -> dict[str, object]:
        ctx.log.info("%d orders", len(orders))
        assert isinstance(orders[0].amount, Decimal)
        return {"day": config.day, "sum": sum(o.amount for o in orders)}

    outcome = run(
        revenue,
        inputs={"silver/orders": [{"amount": "1.5"}, {"amount": "2"}]},
        parameters={"day": "2026-01-31", "factor": 2, "other": True},
    )
    assert outcome.result == {"day": "2026-01-31", "sum": "3.5"}
    assert outcome.logs == ["INFO 2 orders"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "parameter day is missing"),
        ({"day": 3}, "parameter day must be text for date, is a number"),
        ({"day": "2026-01-01", "factor": "x"}, "parameter factor must be a number, is a string"),
    ],
)
def test_parameters_of_a_wrong_type(parameters: dict[str, object], message: str) -> None:
    @asset("a/b")
    def b(config: Config) -> None: ...

    with pytest.raises(Error, match=message) as caught:
        run(b, parameters=parameters)
    assert caught.value.code == "INVALID_CONFIGURATION"


def test_inputs_of_a_wrong_type() -> None:
    @asset("a/b", upstream=["a/a"])
    def b(a: list[int]) -> None: ...

    with pytest.raises(Error, match="must be an integer, is a string") as caught:
        run(b, inputs={"a/a": ["x"]})
    assert caught.value.code == "SCHEMA_VIOLATION"
    with pytest.raises(Error, match="no result of upstream a/a"):
        run(b)


def test_async_functions() -> None:
    @asset("a/b")
    async def b() -> int:
        await asyncio.sleep(0)
        return 3

    assert run(b).result == 3


def test_reports() -> None:
    @asset("a/b")
    def b(ctx: Context) -> None:
        ctx.progress(0.5, stage="half")
        ctx.advance(ctx.cursor + "1")
        assert ctx.cursor == "01"
        assert ctx.fan_out([("a/c", "x")]) == ["a/c[x]"]
        assert [m.value for m in ctx.mapped("a/c")] == [7]
        assert ctx.secret("token") == "t"
        ctx.partial()
        raise Yield

    outcome = run(b, cursor="0", secrets={"token": "t"}, mapped={"a/c": {"x": 7}})
    assert outcome.progress == [{"fraction": 0.5, "stage": "half"}]
    assert outcome.cursors == ["01"]
    assert outcome.partial
    assert outcome.yielded == "0"


def test_times_of_a_context() -> None:
    @asset("a/b")
    def b(ctx: Context) -> None:
        assert ctx.slot == datetime(2026, 1, 31, 2, tzinfo=timezone.utc)
        assert ctx.deadline == datetime(2026, 1, 31, 2, 0, 0, 123456, tzinfo=timezone.utc)

    run(b, context={"slot": "2026-01-31T02:00:00Z", "deadline": "2026-01-31T02:00:00.123456789Z"})


def test_results_that_json_cannot_express() -> None:
    @asset("a/b")
    def b() -> object:
        return object()

    @asset("a/c")
    def c() -> str:
        return "x" * 70_000

    with pytest.raises(Error, match=r"builtins\.object has no JSON form"):
        run(b)
    with pytest.raises(Error, match="the limit is 65536"):
        run(c)
