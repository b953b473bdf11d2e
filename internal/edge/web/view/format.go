package view

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
)

// Clip shortens a text to about the given number of bytes.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// ShortID abbreviates an id: its beginning is the time, its end is random.
func ShortID(id string) string {
	if len(id) != 36 {
		return Clip(id, 20)
	}
	return id[:8] + "…" + id[28:]
}

// Duration formats a duration in at most two units, rounded down.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "−" + Duration(-d)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", math.Floor(d.Seconds()*10)/10)
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return two(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 24*time.Hour:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	default:
		return two(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
	}
}

func two(a int, unit string, b int, smaller string) string {
	if b == 0 || a >= 10 {
		return fmt.Sprintf("%d %s", a, unit)
	}
	return fmt.Sprintf("%d %s %d %s", a, unit, b, smaller)
}

// DurationOf is Duration of a message; "" for nil.
func DurationOf(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return Duration(d.AsDuration())
}

// Count formats a number with a separator of thousands, and "≥" for a lower bound.
func Count[N int | int32 | int64](n N, atLeast bool) string {
	text := fmt.Sprintf("%d", n)
	var out strings.Builder
	for i, c := range text {
		if i > 0 && (len(text)-i)%3 == 0 && text[i-1] != '-' {
			out.WriteString("\u202f")
		}
		out.WriteRune(c)
	}
	if atLeast {
		return "≥ " + out.String()
	}
	return out.String()
}

// Plural is a number with its noun.
func Plural[N int | int32 | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n, false) + " " + many
}

// Percent formats a fraction.
func Percent(part float64) string { return fmt.Sprintf("%.0f %%", part*100) }

// Words formats a name of the API: RETRY_WAIT is "retry wait".
func Words(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", " ")) }

// orDash is the text, or a dash in its place.
func orDash(text string) string { return cmp.Or(text, "–") }
