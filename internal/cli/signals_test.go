package cli

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSecondSignal(t *testing.T) {
	t.Parallel()
	delivered := make(chan os.Signal, 2) // so that no signal of this test can be lost, or kill it
	signal.Notify(delivered, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(delivered)
	asked := WithSignals(t.Context())
	impatient, done := secondSignal(asked)
	defer done()

	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	<-delivered
	<-asked.Done() // the first one asks for an orderly end
	select {
	case <-impatient:
		t.Fatal("one signal is no impatience")
	default:
	}
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	<-delivered
	<-impatient
}
