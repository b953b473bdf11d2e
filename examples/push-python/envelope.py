"""Reads the envelopes that Servo posts to the workers of push pools, and verifies them.

The signature is HMAC-SHA256 over the RFC 8785 canonical JSON of the envelope without the
signature. Everything needed for that is here; nothing beyond the standard library is used.
"""

import base64
import datetime
import hashlib
import hmac
import json

CONTRACT = 1
MAX_ENVELOPE = 1 << 20
MAX_DEPTH = 100
MAX_SKEW = datetime.timedelta(minutes=1)


class Refused(Exception):
    """The envelope is refused. Its text is the same for every cause, so that who tries
    things out learns nothing; the reason is for the log."""

    def __init__(self, reason):
        super().__init__("the signature is not valid")
        self.reason = reason


def parse_keys(text):
    """The keys of a pool by id, from "id:secret" with commas between."""
    keys = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key_id, _, secret = part.partition(":")
        raw = base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4))
        if not key_id or len(raw) != 32:
            raise ValueError("a key is an id and a secret with a colon between")
        keys[key_id] = raw
    return keys


def verify(raw, keys, now):
    """The envelope in raw bytes, as a dict. Raises Refused."""
    if len(raw) > MAX_ENVELOPE:
        raise Refused("the envelope is too large")
    envelope = parse(raw)
    # Two spellings of a number may be one to the signature and two to a reader: there is one.
    if canonical(envelope) != raw:
        raise Refused("the envelope is not in canonical form")
    auth = envelope.get("auth") if isinstance(envelope, dict) else None
    if not isinstance(auth, dict) or not all(isinstance(auth.get(k), str) for k in ("key_id", "signature")):
        raise Refused("auth is missing or not as it should be")
    secret = keys.get(auth["key_id"])
    expected = sign(envelope, secret or bytes(32))
    if not hmac.compare_digest(expected.encode(), auth["signature"].encode()) or secret is None:
        raise Refused("the key is unknown, or the signature is another")
    if now >= _time(auth["expires_at"]):
        raise Refused("the envelope has expired")
    if _time(auth["issued_at"]) > now + MAX_SKEW:
        raise Refused("the envelope is from the future")
    if envelope.get("contract") != CONTRACT:
        raise ValueError(f"contract {envelope.get('contract')} is not known")
    return envelope


def sign(envelope, secret):
    """The signature of an envelope, whether or not it has one."""
    unsigned = dict(envelope, auth={k: v for k, v in envelope["auth"].items() if k != "signature"})
    mac = hmac.new(secret, canonical(unsigned), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()


def _time(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)


def parse(raw):
    """JSON as RFC 8785 wants it: no key twice, no NaN, no lone surrogates. Raises Refused."""
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the envelope is not proper JSON: {error}") from None


def _object(pairs):
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("duplicate key")
    return out


def _no_constant(name):
    raise ValueError(f"{name} is not a JSON number")


def canonical(value):
    """The RFC 8785 form of a value, as bytes. Raises Refused."""
    try:
        return _write(value, 0).encode("utf-8")
    except (ValueError, OverflowError) as error:  # lone surrogates are of the former
        raise Refused(f"the envelope has no canonical form: {error}") from None


def _write(value, depth):
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, (int, float)):
        return number(float(value))
    if depth >= MAX_DEPTH:
        raise ValueError("it is nested too deep")
    if isinstance(value, list):
        return "[" + ",".join(_write(v, depth + 1) for v in value) + "]"
    # By UTF-16 code units, as ECMAScript sorts, not by code points as Python does.
    keys = sorted(value, key=lambda k: k.encode("utf-16-be"))
    return "{" + ",".join(_string(k) + ":" + _write(value[k], depth + 1) for k in keys) + "}"


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def _string(text):
    return '"' + "".join(_ESCAPES.get(c) or (c if c >= " " else f"\\u{ord(c):04x}") for c in text) + '"'


def number(f):
    """A number as ECMAScript prints it: the shortest digits, which repr finds as well, in
    another notation."""
    if f != f or f in (float("inf"), float("-inf")):
        raise ValueError("it is too large for a double")
    if f == 0:
        return "0"
    sign_, f = ("-", -f) if f < 0 else ("", f)
    mantissa, _, exponent = repr(f).partition("e")
    whole, _, fraction = mantissa.partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0)  # where the point is, counted from the first digit
    if whole == "0":
        point -= 1 + len(fraction) - len(fraction.lstrip("0"))
    digits = digits.rstrip("0")
    n = len(digits)
    if n <= point <= 21:
        return sign_ + digits + "0" * (point - n)
    if 0 < point <= 21:
        return sign_ + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign_ + "0." + "0" * -point + digits
    rest = "." + digits[1:] if n > 1 else ""
    return f"{sign_}{digits[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"
