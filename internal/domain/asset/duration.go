package asset

import "go.arco.dev/servo/internal/base/duration"

// Duration is a time.Duration that is written as text: "90s", "1h30m".
type Duration = duration.Duration

// ParseDuration parses a duration such as 1h30m.
func ParseDuration(text string) (Duration, error) { return duration.Parse(text) }
