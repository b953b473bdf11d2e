// Package canon writes JSON in the canonical form of RFC 8785, so that equal values have equal bytes
// and equal digests: keys sorted by UTF-16 code units, numbers as ECMAScript prints them, no needless
// escapes, no whitespace. It refuses ambiguous input, with the path and byte offset of the error.
package canon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"

	"github.com/gowebpki/jcs"

	"go.arco.dev/servo/internal/base/fault"
)

// The limits of a document.
const (
	MaxSize  = 16 << 20 // bytes
	MaxDepth = 100      // objects and arrays inside each other
)

// JSON returns the canonical form of one JSON document. Duplicate keys, lone surrogates, invalid
// UTF-8, data after the value, numbers too large for an IEEE double and documents over MaxSize or
// MaxDepth are faults with the path as field and the byte offset as value.
func JSON(input []byte) ([]byte, error) {
	if err := check(input); err != nil {
		return nil, err
	}
	return transform(input)
}

// Check reports whether JSON would accept a document, without writing its canonical form.
func Check(input []byte) error { return check(input) }

// Marshal returns the canonical form of a Go value, by way of encoding/json. A string that is not
// valid UTF-8 is a fault: encoding/json would replace its bytes, and two different values would have
// the same digest.
func Marshal(v any) ([]byte, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, fault.New(fault.InvalidArgument, "has no JSON form: "+err.Error(),
			fault.Remedy("use values that JSON can express"), fault.Cause(err))
	}
	if at := replacedText(plain); at >= 0 {
		return nil, fault.New(fault.InvalidArgument, "contains text that is not valid UTF-8",
			fault.Remedy("use UTF-8 text, or encode bytes as base64"), fault.Value(offsetValue, at))
	}
	// The output of encoding/json is well-formed, but it only compacts RawMessages: they may have
	// duplicate keys or lone surrogates.
	if err := check(plain); err != nil {
		return nil, err
	}
	return transform(plain)
}

// Digest returns the sha256, in hexadecimal, of the canonical form of a Go value.
func Digest(v any) (string, error) {
	canonical, err := Marshal(v)
	if err != nil {
		return "", err
	}
	return Sum(canonical), nil
}

// Sum returns the sha256, in hexadecimal, of canonical bytes.
func Sum(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// Number formats a number by RFC 8785.
func Number(f float64) (string, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("%v is not a JSON number", f), fault.Remedy("use a finite number"))
	}
	return jcs.NumberToJSON(f)
}

// transform sorts and prints a document that check has accepted.
func transform(input []byte) ([]byte, error) {
	canonical, err := jcs.Transform(input)
	if err != nil {
		return nil, fault.New(fault.InvalidArgument, "cannot be written as canonical JSON",
			fault.Remedy("send one well-formed JSON document"), fault.Cause(err))
	}
	return canonical, nil
}

// replacedText finds the escape that encoding/json writes in place of invalid UTF-8, or
// -1. The character U+FFFD itself is written as it is and never as an escape.
func replacedText(plain []byte) int {
	const replacement = `\ufffd`
	for from := 0; ; {
		at := bytes.Index(plain[from:], []byte(replacement))
		if at < 0 {
			return -1
		}
		at += from
		backslashes := 0
		for i := at - 1; i >= 0 && plain[i] == '\\'; i-- {
			backslashes++
		}
		if backslashes%2 == 0 {
			return at
		}
		from = at + len(replacement)
	}
}
