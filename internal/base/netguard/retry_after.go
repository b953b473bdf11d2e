package netguard

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter returns the delay that an endpoint requests with Retry-After: in seconds, or until a date
// by the endpoint's own clock if it sends one. 0 is none; longer delays than the maximum are capped.
func RetryAfter(h http.Header, now time.Time, maximum time.Duration) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maximum)
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if its, err := http.ParseTime(h.Get("Date")); err == nil {
		now = its
	}
	return min(max(until.Sub(now), 0), maximum)
}
