package servo_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// TestReplayedEnvelope: an envelope that was recorded on its way and is sent again, to another process
// of the pool or to one that was restarted, runs no code there: its start is refused.
func TestReplayedEnvelope(t *testing.T) {
	t.Parallel()
	b := setup(t, edge)
	var executed atomic.Int64
	finish := make(chan struct{})
	var keys []string
	process := func() *servo.PushHandler {
		w := servo.NewWorker(servo.WorkerOptions{Concurrency: 8, Lease: time.Second})
		servo.Asset(w, "e/waits", func(context.Context, *servo.Task, servo.None) (string, error) {
			executed.Add(1)
			<-finish
			return "done", nil
		})
		h, err := servo.NewPushHandler(w, servo.PushOptions{Keys: keys})
		require.NoError(t, err)
		return h
	}
	var first atomic.Pointer[servo.PushHandler]
	recorded := make(chan []byte, 1)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		recorded <- raw
		r.Body = io.NopCloser(bytes.NewReader(raw))
		first.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(endpoint.Close)
	made, err := b.Pools().CreatePool(t.Context(), &servov1.CreatePoolRequest{Name: "edge", Kind: servov1.Pool_PUSH, Url: endpoint.URL})
	require.NoError(t, err)
	for _, key := range made.GetWorkerKeys() {
		keys = append(keys, key.GetKey())
	}
	first.Store(process())

	run := b.trigger(t, "waits", nil)
	raw := <-recorded
	require.Eventually(t, func() bool { return executed.Load() == 1 }, time.Minute, time.Millisecond)
	for range 10 { // some are stopped before they have begun the task, some after
		other := process()
		answer := httptest.NewRecorder()
		other.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(raw)))
		require.Equal(t, http.StatusAccepted, answer.Code, answer.Body.String())
		require.NoError(t, other.Shutdown(t.Context()), "it has received that the task is not its own")
	}
	require.EqualValues(t, 1, executed.Load())
	close(finish)
	require.Equal(t, servov1.Run_SUCCEEDED, b.end(t, run).GetState(), "what the others did has not hurt the attempt")
	require.EqualValues(t, 1, b.tasks(t, run)["e/waits"].GetAttempt())
	require.NoError(t, first.Load().Shutdown(t.Context()))
}
