"""Assets with partitions, outputs and checks, with the standard library only."""

from collections.abc import Iterator
from typing import Any, TypedDict

from servo import Context, Output, asset, check, daily, pipeline

days = daily("date", start="2026-01-01")


class Config(TypedDict):
    rows: int


class Order(TypedDict):
    id: int
    total: float
    day: str


@asset(
    "bronze/orders",
    partitions=days,
    output=Output("csv", schema={"id": "integer", "total": "number", "day": "string"}),
    checks=[check.row_count(min=1), check.unique("id")],
)
def orders(ctx: Context, config: Config) -> Iterator[dict[str, Any]]:
    """Orders of a day."""
    for i in range(config["rows"]):
        yield {"id": i, "total": 1.5, "day": ctx.partition}


@check
def few_days(rows: list[dict[str, Any]], orders: Iterator[Order]) -> str | None:
    """Check the output, and read an input again."""
    days = {order["day"] for order in orders}
    return None if len(rows) == len(days) <= 2 else f"{len(days)} days"


@asset(
    "silver/days",
    upstream=[orders],
    partitions=days,
    partition_mapping={"bronze/orders": "last 3 days"},
    output="jsonl",
    checks=[check.row_count(min=1, phase="PRE", name="input"), few_days],
)
def by_day(orders: Iterator[Order]) -> list[dict[str, Any]]:
    """Totals of the last three days."""
    totals: dict[str, float] = {}
    for order in orders:
        totals[order["day"]] = totals.get(order["day"], 0) + order["total"]
    return [{"day": day, "total": total} for day, total in sorted(totals.items())]


@asset("gold/total", upstream=[by_day])
def total(ctx: Context, days: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum of all rows of all partitions."""
    return {"rows": len(days), "total": sum(day["total"] for day in days), "files": len(ctx.files("silver/days"))}


pipeline("days", config=Config)
