"""Assets that break their host, and one that does not."""

import ctypes
import os
import subprocess
import sys
import time
from typing import TypedDict

from servo import Context, Permanent, Retry, asset, pipeline


class Config(TypedDict):
    how: str
    mark: str


@asset("mis/behave")
def behave(ctx: Context, config: Config) -> str:
    """Do what the parameter asks for."""
    actions[config["how"]](ctx, config["mark"])
    return "done"


@asset("mis/good")
def good(ctx: Context) -> int:
    """Return the process id, to see which host is reused."""
    ctx.log.warning("well")
    print("printed")
    ctx.progress(0.5, phase="WORK")
    return os.getpid()


pipeline("behave", select=["mis/behave"], config=Config)
pipeline("good", select=["mis/good"])


def started(mark: str) -> None:
    """Write the process id, so that the test knows that the function runs."""
    with open(mark + ".tmp", "w") as file:
        file.write(str(os.getpid()))
    os.rename(mark + ".tmp", mark)


def segfault(_: Context, mark: str) -> None:
    started(mark)
    ctypes.string_at(0)


def exits(_: Context, mark: str) -> None:
    started(mark)
    os._exit(7)


def sys_exit(_: Context, mark: str) -> None:
    sys.exit(3)


def leaks(_: Context, mark: str) -> None:
    started(mark)
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)))


def holds(_: Context, mark: str) -> None:
    """Hold the GIL for two seconds: the lease of the test is one second."""
    started(mark)
    ctypes.PyDLL(None).usleep(2_000_000)


def prints(_: Context, mark: str) -> None:
    started(mark)
    line = "x" * 99
    for _i in range(1_000_000):
        print(line)


def forks(_: Context, mark: str) -> None:
    """Leave a grandchild in a session of its own, with all descriptors closed."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    open(%r, 'w').write(str(os.getpid()))\n    time.sleep(600)" % mark],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    child.wait()
    while not os.path.exists(mark):
        time.sleep(0.01)


def ignores(_: Context, mark: str) -> None:
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    started(mark)
    time.sleep(600)


def waits(_: Context, mark: str) -> None:
    started(mark)
    time.sleep(600)


def retries(ctx: Context, mark: str) -> None:
    if ctx.attempt == 1:
        raise Retry("later", after=0.01)


def permanent(_: Context, mark: str) -> None:
    raise Permanent("never", code="NETWORK_ERROR", details={"host": "old"})


def raises(_: Context, mark: str) -> None:
    raise ValueError("wrong")


actions = {
    "segfault": segfault,
    "exit": exits,
    "sys.exit": sys_exit,
    "leak": leaks,
    "gil": holds,
    "print": prints,
    "fork": forks,
    "ignore": ignores,
    "wait": waits,
    "retry": retries,
    "permanent": permanent,
    "raise": raises,
}
