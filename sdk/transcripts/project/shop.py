"""Project of the recorded transcripts."""

from servo import Context, Permanent, Yield, asset


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


@asset("shop/region")
def region(ctx: Context) -> str:
    """Return the partition."""
    return ctx.partition


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
