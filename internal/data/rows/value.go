package rows

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// Kind is the kind of a value.
type Kind uint8

// The kinds of values.
const (
	Null Kind = iota
	Bool
	Int
	Float
	Text
	Bytes
	Date   // Int is the day since 1970-01-01
	Time   // Int is microseconds since 1970-01-01 UTC
	Nested // Text is JSON
)

// Value is one field of one row. Text is valid until the next batch is read.
type Value struct {
	Kind  Kind
	Int   int64
	Float float64
	Text  []byte
}

// Number returns a numeric value as a float64.
func (v Value) Number() (float64, bool) {
	switch v.Kind {
	case Int:
		return float64(v.Int), true
	case Float:
		return v.Float, true
	default:
		return 0, false
	}
}

// Instant returns a date or a timestamp as a time, also from text.
func (v Value) Instant() (time.Time, bool) {
	switch v.Kind {
	case Date:
		return time.Unix(v.Int*86_400, 0).UTC(), true
	case Time:
		return time.UnixMicro(v.Int).UTC(), true
	case Text:
		return ParseTime(string(v.Text))
	default:
		return time.Time{}, false
	}
}

// ParseTime parses a date or a timestamp as people write them: 2026-01-31, 2026-01-31T10:00:00Z, or
// with a space, with or without zone. Without a zone it is UTC.
func ParseTime(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// String returns the value as text, as CSV would write it.
func (v Value) String() string {
	switch v.Kind {
	case Null:
		return ""
	case Bool:
		return strconv.FormatBool(v.Int != 0)
	case Int:
		return strconv.FormatInt(v.Int, 10)
	case Float:
		return strconv.FormatFloat(v.Float, 'g', -1, 64)
	case Date:
		return time.Unix(v.Int*86_400, 0).UTC().Format(time.DateOnly)
	case Time:
		return time.UnixMicro(v.Int).UTC().Format(time.RFC3339Nano)
	case Bytes:
		return base64.StdEncoding.EncodeToString(v.Text)
	case Text, Nested:
	}
	return string(v.Text)
}

// JSON returns the value for a sample. Texts are shortened to limit bytes.
func (v Value) JSON(limit int) json.RawMessage {
	switch v.Kind {
	case Null:
		return json.RawMessage("null")
	case Bool, Int:
		return json.RawMessage(v.String())
	case Float:
		if math.IsNaN(v.Float) || math.IsInf(v.Float, 0) {
			return json.RawMessage(strconv.Quote(v.String()))
		}
		return json.RawMessage(v.String())
	case Text, Bytes, Date, Time, Nested:
	}
	text := v.String()
	if len(text) > limit {
		text = text[:limit]
		for len(text) > 0 && !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return json.RawMessage(`""`)
	}
	return quoted
}

// AppendKey appends bytes that are equal for equal values and different for different ones, for
// hashing. Integers and whole floats are equal.
func (v Value) AppendKey(dst []byte) []byte {
	switch v.Kind {
	case Null:
		return append(dst, 0)
	case Float:
		if whole := math.Trunc(v.Float); whole == v.Float && math.Abs(whole) < 1<<53 {
			return appendNumber(append(dst, byte(Int)), uint64(int64(whole))) //nolint:gosec // bits, not a number
		}
		return appendNumber(append(dst, byte(Float)), math.Float64bits(v.Float))
	case Bool, Int, Date, Time:
		return appendNumber(append(dst, byte(v.Kind)), uint64(v.Int)) //nolint:gosec // bits, not a number
	case Text, Bytes, Nested:
	}
	dst = appendNumber(append(dst, byte(Text)), uint64(len(v.Text)))
	return append(dst, v.Text...)
}

// AppendText appends the value as text, for comparing columns of different formats: an untyped "7" of
// CSV equals the integer 7 and the float 7.0 of Parquet.
func (v Value) AppendText(dst []byte) []byte {
	switch v.Kind {
	case Int:
		return strconv.AppendInt(dst, v.Int, 10)
	case Float:
		if whole := math.Trunc(v.Float); whole == v.Float && math.Abs(whole) < 1<<53 {
			return strconv.AppendInt(dst, int64(whole), 10)
		}
		return strconv.AppendFloat(dst, v.Float, 'g', -1, 64)
	case Text, Bytes, Nested:
		return append(dst, v.Text...)
	case Null, Bool, Date, Time:
	}
	return append(dst, v.String()...)
}

func appendNumber(dst []byte, n uint64) []byte {
	return binary.LittleEndian.AppendUint64(dst, n)
}
