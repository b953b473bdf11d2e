package canon

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.arco.dev/servo/internal/base/fault"
)

// offsetValue is the name of the byte offset among a fault's values.
const offsetValue = "offset"

// checker parses a document once, strictly, and keeps its position, so that errors have a path and an
// offset.
type checker struct {
	input []byte
	at    int
	path  []step

	refuseInexact bool
	inexact       bool // a number was found that is not exact
}

// step is one level of the path: the key in an object, or the index in an array.
type step struct {
	key   string
	index int // -1 in an object
}

func check(input []byte) error {
	_, err := checkNumbers(input, false)
	return err
}

// checkNumbers checks a document, and reports whether all its numbers are exact.
func checkNumbers(input []byte, refuseInexact bool) (exact bool, err error) {
	c := &checker{input: input, refuseInexact: refuseInexact}
	err = c.document()
	return !c.inexact, err
}

func (c *checker) document() error {
	input := c.input
	if len(input) > MaxSize {
		return fault.New(fault.LimitExceeded, fmt.Sprintf("has %d bytes, the limit is %d", len(input), MaxSize),
			fault.Remedy("split the document"), fault.Value("limit", MaxSize), fault.Value("current", len(input)))
	}
	c.space()
	if c.at == len(input) {
		return c.fail(c.at, "the document is empty", "send one JSON value")
	}
	if err := c.value(); err != nil {
		return err
	}
	c.space()
	if c.at < len(input) {
		return c.fail(c.at, "unexpected data after the end of the value", "send one JSON value and nothing else")
	}
	return nil
}

func (c *checker) value() error {
	switch b := c.peek(); {
	case b == '{':
		return c.object()
	case b == '[':
		return c.array()
	case b == '"':
		_, err := c.text()
		return err
	case b == '-' || digit(b):
		return c.number()
	case b == 't':
		return c.literal("true")
	case b == 'f':
		return c.literal("false")
	case b == 'n':
		return c.literal("null")
	default:
		return c.unexpected("a value")
	}
}

func (c *checker) object() error {
	if err := c.enter(step{index: -1}); err != nil {
		return err
	}
	c.at++
	var keys keySet
	for first := true; ; first = false {
		c.space()
		if c.peek() == '}' && first {
			break
		}
		at := c.at
		if c.peek() != '"' {
			return c.unexpected("a key in double quotes")
		}
		key, err := c.text()
		if err != nil {
			return err
		}
		c.path[len(c.path)-1].key = key
		if !keys.add(key) {
			return c.fail(at, "duplicate key "+quote(key), "remove one of them")
		}
		c.space()
		if c.peek() != ':' {
			return c.unexpected("':'")
		}
		c.at++
		c.space()
		if err := c.value(); err != nil {
			return err
		}
		c.space()
		if c.peek() == '}' {
			break
		}
		if c.peek() != ',' {
			return c.unexpected("',' or '}'")
		}
		c.at++
	}
	c.at++
	c.leave()
	return nil
}

func (c *checker) array() error {
	if err := c.enter(step{}); err != nil {
		return err
	}
	c.at++
	c.space()
	if c.peek() == ']' {
		c.at++
		c.leave()
		return nil
	}
	for index := 0; ; index++ {
		c.path[len(c.path)-1].index = index
		c.space()
		if err := c.value(); err != nil {
			return err
		}
		c.space()
		if c.peek() == ']' {
			break
		}
		if c.peek() != ',' {
			return c.unexpected("',' or ']'")
		}
		c.at++
	}
	c.at++
	c.leave()
	return nil
}

// text parses a string. Only strings with escapes are copied.
func (c *checker) text() (string, error) {
	start := c.at
	c.at++
	var unescaped []byte
	copied := c.at // unescaped has everything before it
	for {
		if c.at >= len(c.input) {
			return "", c.fail(start, "the string has no end", `close it with '"'`)
		}
		switch b := c.input[c.at]; {
		case b == '"':
			rest := c.input[copied:c.at]
			c.at++
			if unescaped == nil {
				return string(rest), nil
			}
			return string(append(unescaped, rest...)), nil
		case b == '\\':
			unescaped = append(unescaped, c.input[copied:c.at]...)
			r, err := c.escape()
			if err != nil {
				return "", err
			}
			unescaped = utf8.AppendRune(unescaped, r)
			copied = c.at
		case b < ' ':
			return "", c.fail(c.at, fmt.Sprintf("unescaped control character U+%04X in a string", b), "escape it")
		case b < utf8.RuneSelf:
			c.at++
		default:
			r, size := utf8.DecodeRune(c.input[c.at:])
			if r == utf8.RuneError && size <= 1 {
				return "", c.fail(c.at, "a string is not valid UTF-8", "send UTF-8 text")
			}
			c.at += size
		}
	}
}

// escape parses one escape, or the two of a surrogate pair.
func (c *checker) escape() (rune, error) {
	start := c.at
	c.at++
	b := c.peek()
	c.at++
	switch b {
	case '"', '\\', '/':
		return rune(b), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
	default:
		return 0, c.fail(start, "unknown escape in a string", `use \" \\ \/ \b \f \n \r \t or \uXXXX`)
	}
	first, ok := c.hex4()
	if !ok {
		return 0, c.fail(start, `\u needs four hexadecimal digits`, "write \\uXXXX")
	}
	if !utf16.IsSurrogate(first) {
		return first, nil
	}
	if c.peek() == '\\' && c.at+1 < len(c.input) && c.input[c.at+1] == 'u' {
		c.at += 2
		second, ok := c.hex4()
		if r := utf16.DecodeRune(first, second); ok && r != utf8.RuneError {
			return r, nil
		}
	}
	return 0, c.fail(start, "lone surrogate in a string", "send both halves of the pair, or the character itself")
}

func (c *checker) hex4() (rune, bool) {
	if c.at+4 > len(c.input) {
		return 0, false
	}
	var r rune
	for _, b := range c.input[c.at : c.at+4] {
		switch {
		case digit(b):
			r = r<<4 | rune(b-'0')
		case b >= 'a' && b <= 'f':
			r = r<<4 | rune(b-'a'+10)
		case b >= 'A' && b <= 'F':
			r = r<<4 | rune(b-'A'+10)
		default:
			return 0, false
		}
	}
	c.at += 4
	return r, true
}

// number parses a number and refuses one beyond the range of a double. A number that a double rounds
// is refused where numbers must be exact, and rounded otherwise, as RFC 8785 does.
func (c *checker) number() error {
	start := c.at
	if c.peek() == '-' {
		c.at++
	}
	whole := c.at
	if c.digits() == 0 || (c.input[whole] == '0' && c.at > whole+1) {
		return c.fail(start, "is not a number", "write it without leading zeros, such as 0.5")
	}
	if c.peek() == '.' {
		c.at++
		if c.digits() == 0 {
			return c.fail(start, "is not a number", "write digits after the point")
		}
	}
	if b := c.peek(); b == 'e' || b == 'E' {
		c.at++
		if b := c.peek(); b == '+' || b == '-' {
			c.at++
		}
		if c.digits() == 0 {
			return c.fail(start, "is not a number", "write digits in the exponent")
		}
	}
	text := string(c.input[start:c.at])
	if ExactNumber(text) {
		return nil
	}
	c.inexact = true
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		return c.fail(start, "the number is too large for an IEEE double", "send it as a string")
	}
	if c.refuseInexact {
		message, remedy := InexactNumber(text)
		return c.fail(start, message, remedy)
	}
	return nil
}

func (c *checker) digits() (n int) {
	for digit(c.peek()) {
		c.at++
		n++
	}
	return n
}

func (c *checker) literal(word string) error {
	if !strings.HasPrefix(string(c.input[c.at:min(c.at+len(word), len(c.input))]), word) {
		return c.unexpected("a value")
	}
	c.at += len(word)
	return nil
}

func (c *checker) space() {
	for c.at < len(c.input) {
		switch c.input[c.at] {
		case ' ', '\t', '\n', '\r':
			c.at++
		default:
			return
		}
	}
}

// peek is the next byte, or 0 at the end: a zero byte is no part of JSON's grammar.
func (c *checker) peek() byte {
	if c.at < len(c.input) {
		return c.input[c.at]
	}
	return 0
}

func (c *checker) enter(s step) error {
	if len(c.path) == MaxDepth {
		return c.fail(c.at, fmt.Sprintf("is nested deeper than %d levels", MaxDepth), "flatten the document")
	}
	c.path = append(c.path, s)
	return nil
}

func (c *checker) leave() { c.path = c.path[:len(c.path)-1] }

func (c *checker) unexpected(wanted string) error {
	if c.at >= len(c.input) {
		return c.fail(c.at, "unexpected end of the document, expected "+wanted, "send the whole document")
	}
	return c.fail(c.at, "expected "+wanted+", found "+quote(string(c.input[c.at:c.at+1])), "send well-formed JSON")
}

func (c *checker) fail(at int, message, remedy string) error {
	return fault.New(fault.InvalidArgument, fmt.Sprintf("%s (byte %d)", message, at),
		fault.Field(c.place()), fault.Remedy(remedy), fault.Value(offsetValue, at))
}

// place formats the path as a.b[2]. A long path is cut at its beginning.
func (c *checker) place() string {
	const longest = 200
	var text strings.Builder
	for _, s := range c.path {
		switch {
		case s.index >= 0:
			fmt.Fprintf(&text, "[%d]", s.index)
		case s.key == "":
		case plain(s.key):
			if text.Len() > 0 {
				text.WriteByte('.')
			}
			text.WriteString(s.key)
		default:
			text.WriteString("[" + quote(s.key) + "]")
		}
	}
	if place := text.String(); len(place) > longest {
		return "…" + strings.ToValidUTF8(place[len(place)-longest:], "")
	}
	return text.String()
}

// plain reports whether a path can contain a key without quotes.
func plain(key string) bool {
	for _, b := range []byte(key) {
		if b != '_' && b != '-' && !digit(b) && (b|0x20 < 'a' || b|0x20 > 'z') {
			return false
		}
	}
	return key != ""
}

// quote makes a user's text safe to print, and short.
func quote(text string) string {
	const longest = 60
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return strconv.Quote(text)
}

func digit(b byte) bool { return b >= '0' && b <= '9' }

// keySet is a set of an object's keys: a list while it is short, as most are.
type keySet struct {
	few  []string
	many map[string]struct{}
}

func (s *keySet) add(key string) bool {
	const few = 16
	if s.many == nil {
		for _, k := range s.few {
			if k == key {
				return false
			}
		}
		if len(s.few) < few {
			s.few = append(s.few, key)
			return true
		}
		s.many = make(map[string]struct{}, 2*few)
		for _, k := range s.few {
			s.many[k] = struct{}{}
		}
	}
	if _, there := s.many[key]; there {
		return false
	}
	s.many[key] = struct{}{}
	return true
}
