"""Project of the recorded transcripts."""

from collections.abc import Iterator
from typing import Any

from servo import Context, Permanent, Yield, asset, check, daily


@asset("shop/orders")
def orders(ctx: Context) -> list[int]:
    """Return some orders."""
    ctx.progress(0.5, phase="EXTRACT", records_extracted=3)
    return [1, 2, 3]


@asset("shop/total", upstream=["shop/orders"])
def total(orders: list[int]) -> int:
    """Return the sum of the orders."""
    return sum(orders)


@asset("shop/pages")
def pages(ctx: Context) -> None:
    """Advance the cursor, add tasks, and yield."""
    ctx.advance("page-2")
    ctx.fan_out(["eu", "us"], asset="shop/region", barrier=True)
    raise Yield("page-3")


@asset("shop/region", output="csv")
def region(ctx: Context) -> list[dict[str, str]]:
    """Return the partition."""
    return [{"region": ctx.partition}]


@check
def has_days(rows: list[dict[str, Any]]) -> bool:
    """Check that each row has its day."""
    return all(row["day"] == "2026-01-31" for row in rows)


@asset(
    "shop/regions",
    upstream=["shop/region"],
    partitions=daily("date", start="2026-01-01"),
    output="csv",
    checks=[check.row_count(min=1), has_days],
)
def regions(ctx: Context, region: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return the rows of an upstream with the day."""
    for row in region:
        yield {**row, "day": ctx.partition}


@asset("shop/broken")
def broken() -> None:
    """Fail for good."""
    raise Permanent("the source is gone", code="RESOURCE_NOT_FOUND", details={"host": "old"})


@asset("shop/slow")
def slow(ctx: Context) -> str:
    """Wait until the task is cancelled."""
    while not ctx.is_cancelled:
        pass
    return "stopped in order"
