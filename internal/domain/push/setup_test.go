package push_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/push"
)

var start = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// counting is a source of bytes for tests: the same each time.
func counting(from byte) *bytes.Reader {
	out := make([]byte, 1024)
	for i := range out {
		out[i] = from + byte(i)
	}
	return bytes.NewReader(out)
}

func keyAt(t require.TestingT, seed byte, created time.Time) push.Key {
	key, err := push.NewKey(counting(seed), created)
	require.NoError(t, err)
	return key
}

func callbackOf(now time.Time) push.Callback {
	m := id.NewMinter(now)
	return push.Callback{
		Tenant: id.New[id.Tenant](m), Run: id.New[id.Run](m), Task: id.New[id.Task](m), Attempt: 3,
		Action: push.ActionStatus, Token: 9007199254740993,
	}
}

// full is an envelope in which nothing is empty.
func full(t require.TestingT, key push.Key, now time.Time) push.Envelope {
	c := callbackOf(now)
	callbacks, err := push.SignCallbacks("https://servo.example.com/base/", c, key, now.Add(push.CallbackLifetime))
	require.NoError(t, err)
	return push.Envelope{
		Pool: "gpu", Tenant: "acme", Run: c.Run, Task: c.Task, Attempt: c.Attempt, Asset: "gold/revenue", Entrypoint: "revenue",
		Pipeline: "daily", Partition: "2026-08-01",
		Parameters: json.RawMessage(`{"région":"eu","limit":2.50,"deep":{"list":[1,"two",null,true,{"x":"\u20ac"}],"empty":{}}}`),
		Upstream: []push.Upstream{
			{Run: c.Run, Task: c.Task, Asset: "bronze/orders", Partition: "a", Result: json.RawMessage(`[{"n":1e3}]`)},
			{Run: c.Run, Task: c.Task, Asset: "bronze/large", Partition: "b", Omitted: true},
		},
		Cursor: "page 7", FanOuts: 2, TimeoutSeconds: 3600, LeaseSeconds: 300, Deadline: now.Add(time.Hour),
		Trace:     push.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "vendor=x"},
		Callbacks: callbacks,
	}
}

const lifetime = 5 * time.Minute

func signed(t require.TestingT, e push.Envelope, key push.Key, now time.Time) []byte {
	raw, err := push.Sign(e, key, now, lifetime, counting(7))
	require.NoError(t, err)
	return raw
}

// refused holds an error to the one answer.
func refused(t require.TestingT, err error, why ...any) {
	require.ErrorIs(t, err, push.ErrRefused, why...)
	require.Equal(t, "the signature is not valid", err.Error(), why...)
	require.NotEmpty(t, push.ReasonOf(err), why...)
}

func TestSetup(t *testing.T) {
	t.Parallel()
	require.NotContains(t, string(signed(t, full(t, keyAt(t, 1, start), start), keyAt(t, 1, start), start)), `""`, "the envelope of the tests has a value everywhere")
}
