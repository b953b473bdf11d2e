"""Tests this worker with the vectors of Servo, and its own guarantees.

    python3 -m unittest
"""

import datetime
import http.server
import json
import pathlib
import threading
import unittest
import urllib.error
import urllib.request

import envelope as envelopes
import worker

VECTORS = json.loads((pathlib.Path(__file__).parent / "testdata" / "vectors.json").read_text(encoding="utf-8"))
KEYS = envelopes.parse_keys(VECTORS["key"])
NOW = datetime.datetime.strptime(VECTORS["now"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)


class Canonical(unittest.TestCase):
    def test_it_agrees_with_servo_byte_for_byte(self):
        for v in VECTORS["canonical"]:
            with self.subTest(v["name"]):
                self.assertEqual(envelopes.canonical(envelopes.parse(v["input"].encode())).decode(), v["canonical"])

    def test_it_agrees_with_servo_about_numbers(self):
        for text, want in VECTORS["numbers"].items():
            with self.subTest(text):
                self.assertEqual(envelopes.number(float(text)), want)

    def test_what_two_readers_could_understand_differently_is_refused(self):
        for text in VECTORS["not_json"]:
            with self.subTest(text), self.assertRaises(envelopes.Refused):
                envelopes.canonical(envelopes.parse(text.encode("utf-8", "surrogatepass")))


class Signature(unittest.TestCase):
    def test_a_signed_envelope_is_accepted(self):
        self.assertTrue(VECTORS["envelopes"])
        for v in VECTORS["envelopes"]:
            with self.subTest(v["name"]):
                raw = v["envelope"].encode()
                got = envelopes.verify(raw, KEYS, NOW)
                unsigned = dict(got, auth={k: x for k, x in got["auth"].items() if k != "signature"})
                self.assertEqual(envelopes.canonical(unsigned).decode(), v["unsigned"])
                self.assertEqual(envelopes.sign(got, KEYS[got["auth"]["key_id"]]), v["signature"])

    def test_what_was_changed_is_refused_with_one_answer(self):
        self.assertTrue(VECTORS["tampered"])
        for v in VECTORS["tampered"]:
            with self.subTest(v["name"]), self.assertRaises(envelopes.Refused) as caught:
                envelopes.verify(v["envelope"].encode(), KEYS, NOW)
            self.assertEqual(str(caught.exception), "the signature is not valid")

    def test_any_changed_byte_is_refused(self):
        raw = VECTORS["envelopes"][0]["envelope"].encode()
        for at in range(0, len(raw), 7):
            changed = bytearray(raw)
            changed[at] ^= 1
            with self.subTest(at), self.assertRaises(envelopes.Refused):
                envelopes.verify(bytes(changed), KEYS, NOW)

    def test_time_and_keys_count(self):
        raw = VECTORS["envelopes"][0]["envelope"].encode()
        for name, keys, now in (
            ("expired", KEYS, NOW + datetime.timedelta(minutes=5)),
            ("from the future", KEYS, NOW - datetime.timedelta(minutes=2)),
            ("unknown key", {}, NOW),
            ("another secret", {k: bytes(32) for k in KEYS}, NOW),
        ):
            with self.subTest(name), self.assertRaises(envelopes.Refused):
                envelopes.verify(raw, keys, now)

    def test_the_placeholder_secret_of_an_unknown_key_signs_nothing(self):
        forged = json.loads(VECTORS["envelopes"][0]["envelope"])
        forged["auth"]["key_id"] = "sk-unknown"
        forged["auth"]["signature"] = envelopes.sign(forged, bytes(32))
        with self.assertRaises(envelopes.Refused):
            envelopes.verify(envelopes.canonical(forged), KEYS, NOW)

    def test_keys_are_read_as_they_are_shown(self):
        self.assertEqual(envelopes.parse_keys(""), {})
        self.assertEqual(len(envelopes.parse_keys(VECTORS["key"] + ", sk-2:" + "A" * 43)), 2)
        for text in ("sk-1", "sk-1:short", ":" + "A" * 43):
            with self.subTest(text), self.assertRaises(ValueError):
                envelopes.parse_keys(text)


class Calls(unittest.TestCase):
    """A worker and the server that its callbacks go to, both here."""

    def setUp(self):
        self.received, self.changed, self.cancel, self.refusals = [], threading.Condition(), False, []
        test = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = {}
                with test.changed:
                    status = test.refusals.pop(0) if test.refusals else 200
                    if status == 200:
                        test.received.append((self.path, body))
                    if self.path == "/heartbeat":
                        answer = {"held": True, "should_cancel": test.cancel}
                    test.changed.notify_all()
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_):
                pass

        self.callbacks = self.serve(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        self.release = threading.Event()
        self.addCleanup(self.release.set)
        functions = dict(worker.FUNCTIONS, **{"text/waits": self.waits, "text/fails": self.fails})
        self.worker = worker.Worker(KEYS, functions, beat_every=0.02, slots=1)
        self.url = self.serve(worker.server(self.worker, 0))

    def serve(self, httpd):
        threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.addCleanup(httpd.server_close)
        self.addCleanup(httpd.shutdown)
        return f"http://127.0.0.1:{httpd.server_address[1]}"

    def waits(self, task):
        while not self.release.wait(0.01):
            if task.cancelled.is_set():
                raise worker.Failure("CANCELLED", "stopped")

    def fails(self, task):
        raise KeyError("no such column")

    def envelope(self, asset, attempt=1, **changes):
        now = datetime.datetime.now(datetime.timezone.utc)
        stamp = lambda t: t.strftime("%Y-%m-%dT%H:%M:%SZ")
        e = json.loads(VECTORS["envelopes"][0]["envelope"])
        e.update(asset=asset, entrypoint="", attempt=attempt, idempotency_key=f"{asset}:{attempt}", parameters={"text": "a b a"}, **changes)
        e["callbacks"] = {action: f"{self.callbacks}/{action}" for action in ("status", "report", "heartbeat", "cursor", "fan_out")}
        e["auth"].update(issued_at=stamp(now), expires_at=stamp(now + datetime.timedelta(minutes=5)))
        e["auth"]["signature"] = envelopes.sign(e, KEYS[e["auth"]["key_id"]])
        return envelopes.canonical(e)

    def post(self, raw):
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url, raw, method="POST"), timeout=30) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def wait(self, is_so):
        with self.changed:
            self.assertTrue(self.changed.wait_for(lambda: is_so(self.received), timeout=30), self.received)

    def end(self):
        self.wait(lambda received: any(p == "/status" and "start" not in b for p, b in received))
        return [b for p, b in self.received if p == "/status"]

    def test_a_task_starts_and_completes_though_servo_does_not_answer_for_a_while(self):
        self.refusals = [503, 502, 429]
        self.assertEqual(self.post(self.envelope("text/words")), (202, {"status": "ACCEPTED", "repeat": False, "instance": self.worker.instance}))
        self.assertEqual(self.end(), [{"start": {"instance": self.worker.instance}}, {"complete": {"status": "SUCCESS", "result": {"a": 2, "b": 1}}}])

    def test_the_same_envelope_is_executed_once(self):
        raw = self.envelope("text/words")
        for _ in range(3):
            self.assertEqual(self.post(raw)[0], 202)
        self.end()
        self.assertTrue(self.post(raw)[1]["repeat"])
        self.assertEqual(sum(1 for _, b in self.received if "start" in b), 1)

    def test_a_failure_has_a_code(self):
        self.post(self.envelope("text/fails"))
        self.assertEqual(self.end()[-1]["fail"]["error"], {"code": "USER_CODE_EXCEPTION", "message": "KeyError: 'no such column'"})

    def test_an_unknown_function_is_reported(self):
        self.post(self.envelope("text/nothing"))
        self.assertEqual(self.end()[-1]["fail"]["error"]["code"], "NOT_IMPLEMENTED")

    def test_a_cancel_comes_with_a_heartbeat(self):
        self.post(self.envelope("text/waits"))
        self.wait(lambda received: any(p == "/heartbeat" for p, _ in received))
        self.cancel = True
        self.assertEqual(self.end()[-1]["fail"]["error"]["code"], "CANCELLED")

    def test_a_lost_task_is_left_in_silence_and_frees_its_slot(self):
        self.refusals = [403]
        self.post(self.envelope("text/words"))
        while self.post(self.envelope("text/words", attempt=2))[0] == 429:
            pass
        self.assertEqual(self.end()[-1]["complete"]["status"], "SUCCESS")

    def test_a_worker_without_a_free_slot_reports_it(self):
        self.post(self.envelope("text/waits"))
        self.assertEqual(self.post(self.envelope("text/words"))[0], 429)

    def test_a_refused_envelope_is_not_executed(self):
        for raw in (b"", b"{}", self.envelope("text/words").replace(b"text/words", b"text/fails", 1), b"x" * (envelopes.MAX_ENVELOPE + 1)):
            try:
                self.assertEqual(self.post(raw), (403, {"code": "FORBIDDEN", "message": "the signature is not valid"}))
            except OSError:
                self.assertGreater(len(raw), envelopes.MAX_ENVELOPE)  # the connection may end before all is sent
        self.assertEqual(self.received, [])


if __name__ == "__main__":
    unittest.main()
