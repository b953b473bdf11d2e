package worker_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"go.arco.dev/servo/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a worker with a fake server.
type bundle struct {
	*fake

	worker *worker.Worker
	stop   context.CancelFunc
	done   chan error
}

// handlers are the functions of a test, by asset.
type handlers map[string]worker.Handler

// start runs a worker. It is stopped at the end of the test, if it was not before.
func start(t testing.TB, functions handlers, change ...func(*worker.Options)) *bundle {
	t.Helper()
	f := newFake()
	registered := worker.NewHandlers()
	for name, handler := range functions {
		registered.Add(name, handler)
	}
	config := worker.Options{Conn: f, ID: "w1", Concurrency: 4, Ahead: worker.NoAhead, Executors: []worker.Executor{registered}}
	for _, c := range change {
		c(&config)
	}
	w, err := worker.New(config)
	require.NoError(t, err)
	b := &bundle{fake: f, worker: w, done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	go func() { b.done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		w.Abort()
		if b.done != nil {
			<-b.done
		}
	})
	return b
}

// stopped stops the worker and waits for its end.
func (b *bundle) stopped() error {
	b.stop()
	err := <-b.done
	b.done = nil
	return err
}

func nothing(context.Context, *worker.Task) (worker.Result, error) { return worker.Result{}, nil }

func returns(value string) worker.Handler {
	return func(context.Context, *worker.Task) (worker.Result, error) {
		return worker.Result{JSON: json.RawMessage(value)}, nil
	}
}

// untilCancelled waits for its context and returns its error.
func untilCancelled(ctx context.Context, _ *worker.Task) (worker.Result, error) {
	<-ctx.Done()
	return worker.Result{}, ctx.Err()
}
