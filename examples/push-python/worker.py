"""A worker of a push pool in Python's standard library.

Servo posts a signed envelope for each task. This worker verifies it, answers 202, executes
the task in a thread, and reports at the callback URLs of the envelope. It signs nothing.

    SERVO_PUSH_KEYS=sk-…:… python3 worker.py --port 9000
"""

import argparse
import datetime
import http.server
import json
import logging
import os
import random
import threading
import time
import urllib.error
import urllib.request
import uuid

import envelope as envelopes

log = logging.getLogger("worker")


class Lost(Exception):
    """The lease is lost: further reports are refused."""


class Failure(Exception):
    """A failure with a code, which decides whether Servo tries the task again."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Task:
    """What a function sees of its task."""

    def __init__(self, envelope):
        self.envelope = envelope
        self.asset = envelope["asset"]
        self.partition = envelope["partition"]
        self.parameters = envelope["parameters"]
        self.upstream = {u["asset"]: u.get("result") for u in envelope["upstream"]}
        self.cursor = envelope["cursor"]
        self.cancelled = threading.Event()  # look at it from time to time, and stop
        self._progress = {}
        self._lock = threading.Lock()
        self._urls = envelope["callbacks"]

    def progress(self, fraction, stage=""):
        """Sets the progress; the next heartbeat reports it."""
        with self._lock:
            self._progress = {"fraction": fraction, "stage": stage}

    def advance(self, position):
        """Moves the cursor: a later attempt continues from there."""
        self.call("cursor", {"expected": self.cursor, "next": position})
        self.cursor = position

    def call(self, action, body):
        """Posts to a callback until it is answered."""
        for attempt in range(1000):
            with self._lock:
                url = self._urls[action]
            request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST")
            try:
                with urllib.request.urlopen(request, timeout=20) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                if error.code in (401, 403, 404, 410):
                    raise Lost from None
                if error.code < 500 and error.code != 429:
                    raise Failure("INVALID_CONFIGURATION", f"Servo refuses it: {error.read(1000)!r}") from None
            except OSError:
                pass  # away: the same again
            time.sleep(min(0.05 * 2**attempt, 5) * random.uniform(0.5, 1))
        raise Lost

    def beat(self):
        """Sends a heartbeat. The answer may contain a cancellation or new URLs."""
        with self._lock:
            progress = dict(self._progress)
        answer = self.call("heartbeat", {"progress": progress} if progress else {})
        if answer.get("callbacks"):
            with self._lock:
                self._urls = answer["callbacks"]
        if answer.get("should_cancel"):
            self.cancelled.set()
        if not answer.get("held"):
            self.cancelled.set()
            raise Lost


class Worker:
    """Executes envelopes, each once."""

    def __init__(self, keys, functions, beat_every=10.0, slots=16):
        self.keys = keys
        self.functions = functions
        self.beat_every = beat_every
        self.slots = threading.Semaphore(slots)
        self.instance = str(uuid.uuid4())  # of this process: an envelope may reach two of them
        self._seen = {}  # idempotency keys, until their envelopes expire
        self._lock = threading.Lock()

    def accept(self, raw):
        """The status and the body to answer with."""
        now = datetime.datetime.now(datetime.timezone.utc)
        try:
            envelope = envelopes.verify(raw, self.keys, now)
        except envelopes.Refused as refused:
            log.warning("an envelope is refused: %s", refused.reason)
            return 403, {"code": "FORBIDDEN", "message": str(refused)}
        except (ValueError, KeyError, TypeError) as error:  # signed, and not as this version knows it
            return 400, {"code": "INVALID_ARGUMENT", "message": str(error)}
        key, until = envelope["idempotency_key"], envelope["auth"]["expires_at"]
        with self._lock:
            self._seen = {k: u for k, u in self._seen.items() if u > now.strftime("%Y-%m-%dT%H:%M:%SZ")}
            if key in self._seen:
                return 202, {"status": "ACCEPTED", "repeat": True, "instance": self.instance}
            if not self.slots.acquire(blocking=False):
                return 429, {"code": "LIMIT_EXCEEDED", "message": "all slots of the worker are taken"}
            self._seen[key] = until
        threading.Thread(target=self._run, args=(Task(envelope),), daemon=True).start()
        return 202, {"status": "ACCEPTED", "repeat": False, "instance": self.instance}

    def _run(self, task):
        done = threading.Event()
        beats = threading.Thread(target=self._beat, args=(task, done), daemon=True)
        try:
            task.call("status", {"start": {"instance": self.instance}})  # refused if another executes it
            beats.start()
            end = self._execute(task)
            task.call("status", end)
            log.info("%s: %s", task.asset, next(iter(end)))
        except Lost:
            log.warning("%s: the lease of the task is lost", task.asset)
        except Exception:
            log.exception("%s: the end of the task could not be reported; Servo retries it", task.asset)
        finally:
            done.set()
            self.slots.release()

    def _execute(self, task):
        name = task.envelope["entrypoint"] or task.asset
        function = self.functions.get(name)
        if function is None:
            return _failed("NOT_IMPLEMENTED", f"this worker has no function {name}")
        try:
            return {"complete": {"status": "SUCCESS", "result": function(task)}}
        except Lost:
            raise
        except Failure as failure:
            return _failed(failure.code, str(failure))
        except Exception as error:
            if task.cancelled.is_set():
                return _failed("CANCELLED", str(error))
            return _failed("USER_CODE_EXCEPTION", f"{type(error).__name__}: {error}")

    def _beat(self, task, done):
        while not done.wait(self.beat_every):
            try:
                task.beat()
            except (Lost, Failure):
                task.cancelled.set()
                return


def _failed(code, message):
    return {"fail": {"error": {"code": code, "message": message}}}


def server(worker, port):
    """An HTTP server on this port; 0 is any."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers.get("Content-Length") or 0)
            if length > envelopes.MAX_ENVELOPE:
                self.close_connection = True
                length = 0  # refused like everything that is no envelope
            status, body = worker.accept(self.rfile.read(length))
            encoded = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, *_):
            pass

    return http.server.ThreadingHTTPServer(("", port), Handler)


def word_count(task):
    """An asset: how often each word is in a text."""
    counts = {}
    words = str(task.parameters.get("text", "")).split()
    for n, word in enumerate(words, 1):
        if task.cancelled.is_set():
            raise Failure("CANCELLED", "stopped when asked to")
        counts[word] = counts.get(word, 0) + 1
        task.progress(n / len(words))
    return counts


FUNCTIONS = {"text/words": word_count}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--beat-every", type=float, default=10.0, help="seconds between heartbeats")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    keys = envelopes.parse_keys(os.environ.get("SERVO_PUSH_KEYS", ""))
    if not keys:
        parser.error("SERVO_PUSH_KEYS is empty: give the pool's signing key, id and secret with a colon between")
    with server(Worker(keys, FUNCTIONS, args.beat_every), args.port) as httpd:
        print(f"listening on port {httpd.server_address[1]}", flush=True)
        httpd.serve_forever()


if __name__ == "__main__":
    main()
