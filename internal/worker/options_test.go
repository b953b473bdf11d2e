package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/worker"
)

func TestConfig(t *testing.T) {
	t.Parallel()

	t.Run("a worker with a short lease beats often enough to keep it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			done := make(chan struct{})
			b := start(t, handlers{"gold/a": func(context.Context, *worker.Task) (worker.Result, error) {
				<-done
				return worker.Result{}, nil
			}}, func(c *worker.Options) { c.Lease = 2 * time.Second })
			id := b.add(1, "gold/a")[0]
			time.Sleep(time.Minute)
			require.Greater(t, b.count(func(m proto.Message) bool { _, beat := m.(*servov1.HeartbeatRequest); return beat }), 60)
			close(done)
			b.ended(t, id)
		})
	})

	t.Run("a heartbeat that comes after the lease's end is refused", func(t *testing.T) {
		t.Parallel()
		_, err := worker.New(worker.Options{Conn: newFake(), Lease: time.Second, HeartbeatEvery: time.Second})
		require.True(t, fault.Is(err, fault.InvalidArgument), err)
		_, err = worker.New(worker.Options{Conn: newFake(), Lease: time.Second})
		require.NoError(t, err)
	})
}
