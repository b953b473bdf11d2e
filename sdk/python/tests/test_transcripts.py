"""The transcripts of docs/hosts.md, replayed against the host of this SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from servo import host

ROOT = Path(__file__).parents[2] / "transcripts"


class Process:
    """Host process with its pipes."""

    def __init__(self, project: Path, folder: Path) -> None:
        down_read, self.down = os.pipe()
        up_read, up_write = os.pipe()
        log_read, log_write = os.pipe()

        def pipes() -> None:
            copies = [os.dup(fd) for fd in (down_read, up_write, log_write)]
            for fd, copy in enumerate(copies, start=3):
                os.dup2(copy, fd)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "servo.host", str(project)],
            env={**os.environ, "PYTHONPATH": str(Path(host.__file__).parents[1])},
            cwd=folder,
            preexec_fn=pipes,
            close_fds=False,
        )
        for fd in (down_read, up_write, log_write):
            os.close(fd)
        self.watchdog = threading.Timer(60, self.process.kill)
        self.watchdog.start()
        self.up: BinaryIO = os.fdopen(up_read, "rb")
        self.log: BinaryIO = os.fdopen(log_read, "rb")

    def send(self, frame: dict[str, Any]) -> None:
        os.write(self.down, host.encode(frame))

    def receive(self) -> dict[str, Any]:
        frame = host.decode(self.up)
        assert frame is not None, "the host has closed its pipe"
        return frame

    def close(self) -> int:
        os.close(self.down)
        code = self.process.wait(timeout=30)
        self.watchdog.cancel()
        self.up.close()
        self.log.close()
        return code


def matches(want: Any, got: Any) -> bool:
    """Compare a recorded value, where "*" is any value."""
    if want == "*":
        return True
    if isinstance(want, dict) and isinstance(got, dict):
        return want.keys() == got.keys() and all(matches(want[k], got[k]) for k in want)
    return bool(want == got)


@pytest.mark.parametrize("name", sorted(path.stem for path in ROOT.glob("*.jsonl")))
def test_transcript(name: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "part-0.csv").write_text("region\neu\nus\n")
    process = Process(ROOT / "project", tmp_path)
    for line in (ROOT / f"{name}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if "down" in entry:
            process.send(entry["down"])
        else:
            got = process.receive()
            assert matches(entry["up"], got), f"recorded {entry['up']}\nreceived {got}"
    assert process.close() == 0
    if name == "output":
        written = (tmp_path / "out" / "part-0.csv").read_text()
        assert written.split() == ["region,day", "eu,2026-01-31", "us,2026-01-31"]


def test_log_records_have_levels(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "import logging\nfrom servo import Context, asset\n\n@asset('a/b')\ndef b(ctx: Context) -> None:\n"
        "    ctx.log.info('one')\n    logging.getLogger('lib').error('two\\nthree')\n"
    )
    process = Process(tmp_path, tmp_path)
    process.receive()
    process.send({"type": "run", "task": "t", "asset": "a/b", "parameters": {}})
    assert process.receive()["type"] == "result"
    os.close(process.down)
    records = [json.loads(line) for line in process.log.read().splitlines()]
    assert [(r["level"], r["message"]) for r in records] == [
        ("INFO", "one"),
        ("ERROR", "two"),
        ("ERROR", "three"),
    ]
    assert process.process.wait(timeout=30) == 0
    process.watchdog.cancel()
