package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestRuns(t *testing.T) {
	t.Parallel()

	t.Run("a run is triggered, worked on and read", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		made := b.trigger(t, "diamond")
		require.Equal(t, servov1.Run_RUNNING, made.GetState())
		require.Equal(t, int32(4), made.GetTasks().GetTotal())
		b.drain(t)
		read, err := b.runs.GetRun(t.Context(), &servov1.GetRunRequest{Tenant: "acme", Run: made.GetId()})
		require.NoError(t, err)
		require.Equal(t, servov1.Run_SUCCEEDED, read.GetState())
	})
}
