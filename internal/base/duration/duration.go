// Package duration is a time.Duration that people write as text, such as 90s or 1h30m.
package duration

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Duration is a time.Duration that is written as text: "90s", "1h30m".
type Duration time.Duration

// pattern is narrower than time.ParseDuration, so that a published schema can state the same rule:
// whole numbers with units, no signs, no fractions.
var pattern = regexp.MustCompile(`^([0-9]{1,12}(ms|h|m|s))+$`)

// maxText is the maximum length of a duration's text.
const maxText = 40

// Parse parses a duration such as 1h30m.
func Parse(text string) (Duration, error) {
	if len(text) > maxText || !pattern.MatchString(text) {
		return 0, fmt.Errorf("%q is not a duration such as 90s or 1h30m", clip(text))
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is too long a duration", text)
	}
	return Duration(d), nil
}

// clip shortens a user's text for a message.
func clip(text string) string {
	const longest = 80
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

// Std returns the duration as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns the shortest text that Parse accepts: 1h, not 1h0m0s, and 1s500ms.
func (d Duration) String() string {
	std := time.Duration(d)
	if ms := std % time.Second; ms > 0 && ms%time.Millisecond == 0 {
		text := fmt.Sprintf("%dms", ms.Milliseconds())
		if std > time.Second {
			text = Duration(std-ms).String() + text
		}
		return text
	}
	text := std.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalText writes a text that UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) {
	if std := time.Duration(d); std < 0 || std%time.Millisecond != 0 {
		return nil, fmt.Errorf("%s is not a whole number of milliseconds", std)
	}
	return []byte(d.String()), nil
}

// UnmarshalText reads what MarshalText writes, and every duration of a manifest.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}
