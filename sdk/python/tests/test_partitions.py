"""Partitions: declarations, their mistakes, and what a task knows of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone
from typing import Any

import pytest

from servo import Context, DeclarationError, Error, asset, daily, hourly, monthly, static, weekly
from servo._declare import registry
from servo.testing import run


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    registry.assets.clear()


def test_manifest() -> None:
    @asset(
        "a/b",
        upstream=["a/a"],
        partitions=daily("date", start=date(2026, 1, 1), timezone="Europe/Berlin", end_offset=-1)
        * static("region", ["eu", "us"]),
        partition_mapping={"a/a": "last 7 days"},
        partitions_per_task=31,
    )
    def b() -> None: ...

    fields = b.manifest()
    assert fields["partitions"] == [
        {
            "dimension": "date",
            "kind": "daily",
            "start": "2026-01-01",
            "timezone": "Europe/Berlin",
            "end_offset": -1,
        },
        {"dimension": "region", "kind": "static", "values": ["eu", "us"]},
    ]
    assert fields["partition_mapping"] == {"a/a": "last 7 days"}
    assert fields["partitions_per_task"] == 31


def test_starts_are_spelled_by_kind() -> None:
    start = datetime(2026, 1, 1, 5, tzinfo=timezone.utc)
    assert hourly(start=start).start == "2026-01-01T05Z"
    assert hourly(start=date(2026, 1, 1)).start == "2026-01-01T00Z"
    assert weekly(start=date(2027, 1, 1)).start == "2026-W53"
    assert monthly(start=date(2026, 1, 1)).start == "2026-01"
    assert daily(start=start).start == "2026-01-01"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"partitions": daily("date", start="1.1.2026")}, "start of dimension date is '1.1.2026'"),
        ({"partitions": static("region", [])}, "values of dimension region"),
        ({"partitions": static("region", "eu")}, "values of dimension region"),
        ({"partitions": "daily"}, "partitions is 'daily'"),
        ({"partitions": [daily(start="2026-01-01")] * 4}, "has 4 dimensions"),
        ({"partition_mapping": {"a/a": "yesterday"}}, "'yesterday' is no mapping"),
        ({"partition_mapping": {"a/c": "all"}}, "a/c, which is no upstream of it"),
        ({"partitions_per_task": 3}, "no partitions"),
    ],
)
def test_mistakes(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        asset("a/b", upstream=["a/a"], **arguments)(lambda: None)


def test_a_task_knows_its_partitions() -> None:
    @asset("a/one", partitions=daily("date", start="2026-01-01"))
    def one(ctx: Context) -> list[str]:
        return [ctx.partition, *[p["date"] for p in ctx.partitions]]

    assert run(one, partition="2026-01-31").result == ["2026-01-31", "2026-01-31"]
    assert run(one, partition="date=2026-01-31").result[0] == "2026-01-31"
    assert run(one, partitions=["2026-01-30", "2026-01-31"]).result[1:] == ["2026-01-30", "2026-01-31"]

    @asset("a/two", partitions=daily("date", start="2026-01-01") * static("region", ["eu", "us"]))
    def two(ctx: Context) -> str:
        return f"{ctx.partitions[0]['region']} {ctx.partition}"

    assert run(two, partition={"region": "eu", "date": "2026-01-31"}).result == (
        'eu {"date":"2026-01-31","region":"eu"}'
    )


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ("", "the test names none"),
        ("January", "is not written as 2026-01-01"),
        ("region=eu", "must have the dimensions date"),
    ],
)
def test_partitions_that_the_asset_does_not_have(partition: str, message: str) -> None:
    @asset("a/b", partitions=daily("date", start="2026-01-01"))
    def b() -> None: ...

    with pytest.raises(Error, match=message):
        run(b, partition=partition)
