package daemon

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFailed(t *testing.T) {
	t.Parallel()
	start := func() *Daemon {
		return &Daemon{config: Config{Logger: slog.New(slog.DiscardHandler)}, failed: make(chan error, 2)}
	}

	t.Run("a listener that dies is reported", func(t *testing.T) {
		t.Parallel()
		d := start()
		d.serve("HTTP", func() error { return errors.New("too many open files") })
		require.EqualError(t, <-d.Failed(), "the HTTP listener died: too many open files")
	})

	t.Run("one that was asked to stop is not", func(t *testing.T) {
		t.Parallel()
		d := start()
		d.serve("HTTP", func() error { return http.ErrServerClosed })
		d.serve("gRPC", func() error { return nil })
		d.serving.Wait()
		require.Empty(t, d.failed)
	})
}
