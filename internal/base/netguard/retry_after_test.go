package netguard_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/netguard"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 2, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after, date string
		want        time.Duration
	}{
		{after: "30", want: 30 * time.Second},
		{after: " 30 ", want: 30 * time.Second},
		{after: "0"},
		{after: ""},
		{after: "soon"},
		{after: "-30"},
		{after: "1.5"},
		{after: "4000000000", want: time.Hour},
		{after: "99999999999999999999"},
		{after: "Sat, 31 Jan 2026 02:00:45 GMT", want: 45 * time.Second},
		{after: "Sat, 31 Jan 2026 01:00:00 GMT"},
		{after: "Sat, 31 Jan 2099 01:00:00 GMT", want: time.Hour},
		{after: "Sat, 31 Jan 2026 09:00:10 GMT", date: "Sat, 31 Jan 2026 09:00:00 GMT", want: 10 * time.Second},
	} {
		h := http.Header{"Retry-After": {c.after}}
		if c.date != "" {
			h.Set("Date", c.date)
		}
		require.Equal(t, c.want, netguard.RetryAfter(h, now, time.Hour), "%q, date %q", c.after, c.date)
	}
}
