package requests

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// naughty are texts that have broken programs before.
func naughty() []string {
	return []string{
		"", " ", "\t", "\n", "\r\n", "\x00", "a\x00b", "\x01\x02\x1f", "\x7f", "\u0080\u009f", "\ufeff", "\ufffd", "\uffff",
		"null", "undefined", "NaN", "Infinity", "-1", "0", "-0", "1e999", "0x10", "010", "1_000", "٣", "½", "True", "[object Object]",
		"' OR 1=1 --", `"; DROP TABLE servo.runs; --`, "1; SELECT pg_sleep(10)", `\'; COPY (SELECT 1) TO PROGRAM 'true'; --`, "%' AND '1'='1", "$1", "$$", ":name", "?", "E'\\\\x'", `"servo"."runs"`,
		"../../../etc/passwd", "..\\..\\x", "/", "//", ".", "..", "~", "a/../b", "%2e%2e%2f", "%", "%zz", "%00", "file:///etc/passwd", "C:\\con\\con", "a/b", "a/b/c", "a:b",
		"{{7*7}}", "${jndi:ldap://x}", "<%= 1 %>", "#{1}", "{{.Tenant}}", "%s%n%d", "%!d(MISSING)", "`id`", "$(id)", "| id", "; id",
		"<script>alert(1)</script>", "<!--", "]]>", "&amp;", "&#0;", "javascript:alert(1)",
		"\u202eabc", "\u200b", "\u200f\u200e", "\u2066x\u2069", "a\u0300\u0301\u0302", strings.Repeat("\u0300", 200), "ı", "İ", "ß", "ﬃ", "Å", "A\u030a", "你好", "مرحبا", "ⓢⓔⓡⓥⓞ",
		"😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "👍🏿", "\U0001f595",
		strings.Repeat("a", 101), strings.Repeat("a", 300), strings.Repeat("x", 5000), strings.Repeat("é", 2000), strings.Repeat("a/", 500), strings.Repeat("(", 500), strings.Repeat("a.", 300),
		"0 0 31 2 *", "* * * * * *", "@every 1ns", "99999999999 * * * *", "CRON_TZ=Nowhere * * * * *", "P1Y", "-1s", "1h1", "9999999h", "1ns",
		"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "urn:uuid:00000000-0000-0000-0000-000000000000", "{00000000-0000-0000-0000-000000000000}",
		"2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "10000-01-01T00:00:00Z", "2026-01-01T25:00:00+99:99",
		"http://127.0.0.1:9/", "http://[::1]:9/", "http://169.254.169.254/latest", "https://user:pass@example.invalid/", "ftp://example.invalid", "http://example.invalid:99999/", "http://", "//example.invalid",
		"parameters.day + 1", "1/0", "a.all(x, x.all(y, y))", strings.Repeat("[", 200) + strings.Repeat("]", 200), "size('a') == 1 ? 'b' : 1",
		"+", "*", "+gold/*+", "tag:", "tag:daily", "!", "gold/**", "-gold/revenue", "sk_", "sk_0000000000000000_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	}
}

// tortureValues are JSON values, or what looks like them, in the place of a value.
func tortureValues(r *rand.Rand) string {
	values := []string{
		"null", "true", "false", "0", "-0", "1", "-1", "1.5", "1e3", "1e999", "-1e999", "1e-999", "0.1e1", "9007199254740993", "2147483648", "-2147483649", "9223372036854775808", "18446744073709551616",
		strings.Repeat("9", 400), "0." + strings.Repeat("0", 300) + "1", "01", "+1", ".5", "5.", "0x10", "NaN", "Infinity", "-", "--1", "1e", "1e+", "1 2",
		`""`, `"\u0000"`, `"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude00"`, `"\u12"`, `"\x41"`, "\"\x01\"", "\"\xff\xfe\"", `"unclosed`, `'single'`, "`back`",
		"{}", "[]", "[{}]", "[[]]", "[null]", "[{},{},null]", `{"":""}`, `{"a":1,"a":2}`, `{"__proto__":{}}`, `{"@type":"x"}`, `{"a":{"b":{"c":{"d":{}}}}}`, "[1,]", `{"a":1,}`, `{a:1}`, `{"a" 1}`, `[1 2]`, "tru", "nul", "undefined", "/* c */ 1", "// c",
		`"9999-12-31T23:59:59.999999999Z"`, `"315576000000s"`, `"-315576000000s"`, `"1e5s"`, `"0.0000000001s"`,
	}
	switch r.IntN(12) {
	case 0:
		depth := []int{5, 50, 99, 100, 101, 1000, 9000}[r.IntN(7)]
		return strings.Repeat("[", depth) + strings.Repeat("]", depth)
	case 1:
		depth := []int{5, 50, 99, 100, 101, 1000}[r.IntN(6)]
		return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
	case 2:
		return "[" + strings.TrimSuffix(strings.Repeat(`{},`, 1+r.IntN(2000)), ",") + "]"
	case 3:
		return `"` + strings.Repeat("x", 1<<r.IntN(16)) + `"`
	}
	return values[r.IntN(len(values))]
}

// tortureBodies are whole bodies.
func tortureBodies(r *rand.Rand, valid string) string {
	switch r.IntN(16) {
	case 0:
		return "\ufeff" + valid
	case 1:
		return valid + valid
	case 2:
		return valid + []string{"x", "}", ",", "\x00", " null", "\n{}", "]"}[r.IntN(7)]
	case 3:
		return valid[:r.IntN(len(valid)+1)]
	case 4:
		return tortureValues(r)
	case 5:
		return strings.ReplaceAll(valid, ":", ": \t\n ")
	case 6:
		return strings.ReplaceAll(valid, `"`, "'")
	case 7: // one bit
		raw := []byte(valid)
		if len(raw) > 0 {
			raw[r.IntN(len(raw))] ^= 1 << r.IntN(8)
		}
		return string(raw)
	case 8: // a part twice
		if len(valid) > 2 {
			from := r.IntN(len(valid))
			to := from + r.IntN(len(valid)-from)
			return valid[:to] + valid[from:]
		}
		return valid
	case 9: // a part missing
		if len(valid) > 2 {
			from := r.IntN(len(valid))
			to := from + r.IntN(len(valid)-from)
			return valid[:from] + valid[to:]
		}
		return valid
	case 10: // a member twice
		if strings.HasPrefix(valid, "{") && len(valid) > 2 {
			return "{" + valid[1:len(valid)-1] + "," + valid[1:]
		}
		return "{}{}"
	case 11:
		return strings.Repeat(valid, 3)
	case 12:
		return fmt.Sprintf(`{"unknown_field_%d":%s}`, r.IntN(10), tortureValues(r))
	case 13:
		return strings.Repeat(" ", 1<<r.IntN(14)) + valid
	case 14: // UTF-16
		var wide strings.Builder
		for _, c := range valid {
			wide.WriteByte(byte(c))
			wide.WriteByte(0)
		}
		return wide.String()
	default:
		raw := make([]byte, r.IntN(64))
		for i := range raw {
			raw[i] = byte(r.IntN(256))
		}
		return string(raw)
	}
}
