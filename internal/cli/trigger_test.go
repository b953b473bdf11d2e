package cli

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/client"
)

// TestWithinRate has a script that triggers more runs than a minute allows: it waits and continues.
func TestWithinRate(t *testing.T) {
	t.Parallel()
	limited := func(values map[string]any, after time.Duration) error {
		return &client.Problem{Code: client.LimitExceeded, Message: "over the limit of 100 trigger calls a minute", RetryAfter: after, Values: values}
	}
	rate := map[string]any{"class": "trigger", "limit": 100}
	call := func(ctx context.Context, answers ...error) (calls int, reported []string, err error) {
		s := &session{}
		s.reportTo(func(text string) { reported = append(reported, text) })
		err = s.withinRate(ctx, func() error {
			answer := answers[min(calls, len(answers)-1)]
			calls++
			return answer
		})
		return calls, reported, err
	}

	calls, reported, err := call(t.Context(), limited(rate, time.Millisecond), limited(rate, time.Millisecond), nil)
	require.NoError(t, err)
	require.Equal(t, 3, calls)
	require.Equal(t, []string{
		"over the limit of 100 trigger calls a minute; continuing in 1ms", "over the limit of 100 trigger calls a minute; continuing in 1ms",
	}, reported)

	for name, refusal := range map[string]error{
		"a quota":                 limited(map[string]any{"quota": "max_concurrent_runs"}, time.Second),
		"a wait without an end":   limited(rate, time.Hour),
		"a limit without a time":  limited(rate, 0),
		"something else entirely": &client.Problem{Code: client.NotFound},
	} {
		calls, reported, err = call(t.Context(), refusal)
		require.ErrorIs(t, err, refusal, name)
		require.Equal(t, 1, calls, name)
		require.Empty(t, reported, name)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = call(ended, limited(rate, time.Minute))
	require.ErrorIs(t, err, context.Canceled)
}
