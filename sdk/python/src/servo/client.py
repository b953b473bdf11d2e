"""Client of the REST API, with the standard library only."""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict, cast

__all__ = ["APIError", "Client", "Run", "Task"]

DEFAULT_SERVER = "http://127.0.0.1:8080"
_ENDED = frozenset({"SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELLED"})


class Run(TypedDict, total=False):
    """Run as the API returns it; the most used fields."""

    id: str
    tenant: str
    workspace: str
    pipeline: str
    state: str
    parameters: dict[str, Any]
    config: str
    created_at: str
    started_at: str
    finished_at: str


class Task(TypedDict, total=False):
    """Task as the API returns it; the most used fields."""

    id: str
    run: str
    asset: str
    partition: str
    state: str
    outcome: str
    result: Any
    failure: dict[str, Any]


class APIError(Exception):
    """Answer of the server that refuses a call."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("message") or f"HTTP {status}"))
        self.status = status
        self.code = str(problem.get("code", ""))
        self.field = str(problem.get("field", ""))
        self.remedy = str(problem.get("remedy", ""))
        self.problem = dict(problem)


class Client:
    """Client of one tenant.

    Defaults come from SERVO_URL, SERVO_TENANT, SERVO_WORKSPACE and SERVO_API_KEY. Mutations carry an
    idempotency key and are repeated when the outcome of a call is unknown.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        tenant: str | None = None,
        workspace: str | None = None,
        api_key: str | None = None,
        timeout: float = 30.0,
        attempts: int = 5,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.url = (url or os.environ.get("SERVO_URL") or DEFAULT_SERVER).rstrip("/")
        self.tenant = tenant or os.environ.get("SERVO_TENANT") or ""
        self.workspace = workspace or os.environ.get("SERVO_WORKSPACE") or ""
        self._key = api_key or os.environ.get("SERVO_API_KEY") or ""
        self._timeout = timeout
        self._attempts = attempts
        self._context = context
        if not self.tenant:
            raise ValueError("tenant is missing; pass tenant= or set SERVO_TENANT")

    # Runs.

    def trigger(
        self,
        pipeline: str | None = None,
        *,
        select: Sequence[str] = (),
        parameters: Mapping[str, Any] | None = None,
        priority: int | None = None,
        note: str | None = None,
        queue: bool = False,
        idempotency_key: str | None = None,
    ) -> Run:
        """Start a run of a pipeline or of a selection of assets."""
        body: dict[str, Any] = {}
        for name, value in (
            ("pipeline", pipeline),
            ("select", list(select)),
            ("parameters", parameters),
            ("priority", priority),
            ("note", note),
            ("queue", queue),
            ("workspace", self.workspace),
        ):
            if value:
                body[name] = value
        return cast(Run, self.call("POST", "/runs", body, idempotency_key=idempotency_key)["run"])

    def run(self, run: str) -> Run:
        """Return a run."""
        return cast(Run, self.call("GET", f"/runs/{_part(run)}"))

    def runs(self, **filters: str | int) -> Iterator[Run]:
        """Iterate over the runs, the newest first, with the filters of the API: state, pipeline, config."""
        return cast("Iterator[Run]", self._pages("/runs", "runs", filters))

    def tasks(self, run: str) -> Iterator[Task]:
        """Iterate over the tasks of a run."""
        return cast("Iterator[Task]", self._pages(f"/runs/{_part(run)}/tasks", "tasks", {}))

    def task(self, run: str, task: str) -> Task:
        """Return a task with its result and attempts."""
        return cast(Task, self.call("GET", f"/runs/{_part(run)}/tasks/{_part(task)}"))

    def cancel(self, run: str, reason: str = "") -> Run:
        """Cancel a run."""
        return cast(
            Run, self.call("POST", f"/runs/{_part(run)}:cancel", {"reason": reason} if reason else {})
        )

    def retry(self, run: str) -> Run:
        """Start a new run of the tasks that did not succeed."""
        answer = self.call("POST", f"/runs/{_part(run)}:retry", {})
        return cast(Run, answer.get("run", answer))

    def wait(self, run: str, *, timeout: float | None = None) -> Run:
        """Return a run when it has ended. Raises TimeoutError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.1
        while True:
            found = self.run(run)
            if found.get("state") in _ENDED:
                return found
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"run {run} is {found.get('state')} after {timeout} seconds")
            time.sleep(pause)
            pause = min(pause * 1.5, 2.0)

    def events(self, run: str) -> Iterator[dict[str, Any]]:
        """Iterate over the events of a run until it has ended. A broken stream is resumed."""
        last, failures = "", 0
        path = f"{self._base()}/runs/{_part(run)}/events"
        while True:
            headers = {"Accept": "text/event-stream"}
            if last:
                headers["Last-Event-ID"] = last
            try:
                with self._open("GET", path, None, headers) as stream:
                    failures = 0
                    for kind, number, data in _server_sent(stream):
                        last = number or last
                        if kind == "end":
                            return
                        if data:
                            yield json.loads(data)
            except (OSError, urllib.error.URLError):
                failures += 1
                if failures >= self._attempts:
                    raise
                time.sleep(0.1 * 2**failures)

    # Configs.

    def configs(self, **filters: str | int) -> Iterator[dict[str, Any]]:
        """Iterate over the configs of the tenant."""
        return self._pages("/configs", "configs", filters)

    def config(self, config: str) -> dict[str, Any]:
        """Return a config by id or name."""
        return self.call("GET", f"/configs/{_part(config)}")

    def pause_config(self, config: str, reason: str = "") -> dict[str, Any]:
        """Pause a config."""
        return self.call("POST", f"/configs/{_part(config)}:pause", {"reason": reason} if reason else {})

    def resume_config(self, config: str) -> dict[str, Any]:
        """Resume a config."""
        return self.call("POST", f"/configs/{_part(config)}:resume", {})

    def trigger_config(self, config: str) -> dict[str, Any]:
        """Start a run of a config."""
        return self.call("POST", f"/configs/{_part(config)}:trigger", {})

    # Calls.

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Make a call below /v1/tenants/TENANT and return its answer."""
        headers = {}
        if method != "GET":
            headers["Idempotency-Key"] = idempotency_key or str(uuid.uuid4())
        data = None if body is None else json.dumps(body).encode()
        for attempt in range(1, self._attempts + 1):
            try:
                with self._open(method, self._base() + path, data, headers) as answer:
                    return cast("dict[str, Any]", json.loads(answer.read() or b"{}"))
            except APIError as error:
                if error.status not in (429, 502, 503, 504) or attempt == self._attempts:
                    raise
                pause = float(error.problem.get("retry_after") or 0.1 * 2**attempt)
            except OSError:
                if attempt == self._attempts:
                    raise
                pause = 0.1 * 2**attempt
            time.sleep(min(pause, 30.0))
        raise AssertionError("unreachable")

    def _base(self) -> str:
        return f"/v1/tenants/{_part(self.tenant)}"

    def _pages(self, path: str, field: str, filters: Mapping[str, str | int]) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            query: dict[str, str | int] = {"page_size": 100, **filters}
            if token:
                query["page_token"] = token
            page = self.call("GET", f"{path}?{urllib.parse.urlencode(query)}")
            yield from page.get(field, [])
            token = page.get("next_page_token", "")
            if not token:
                return

    def _open(self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]) -> Any:
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("User-Agent", "servo-python")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self._key:
            request.add_header("Authorization", f"Bearer {self._key}")
        for name, value in headers.items():
            request.add_header(name, value)
        try:
            return urllib.request.urlopen(request, timeout=self._timeout, context=self._context)
        except urllib.error.HTTPError as error:
            with error:
                raise APIError(error.code, _problem(error.read())) from None


def _part(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _problem(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {"message": body.decode(errors="replace")[:500]}
    return document if isinstance(document, dict) else {"message": str(document)}


def _server_sent(stream: Any) -> Iterator[tuple[str, str, str]]:
    """Parse server-sent events into kind, id and data."""
    kind, number = "", ""
    data: list[str] = []
    for raw in stream:
        line = raw.decode().rstrip("\r\n")
        if not line:
            if data or kind:
                yield kind, number, "\n".join(data)
            kind, number, data = "", "", []
        elif line.startswith("event:"):
            kind = line[6:].strip()
        elif line.startswith("id:"):
            number = line[3:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].strip())
