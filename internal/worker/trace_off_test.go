package worker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestNoTraceTakesNoMemory(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	w, a, ctx := &Worker{}, &attempt{lease: &servov1.Lease{}}, context.Background()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		under, span := w.traced(ctx, a)
		_, step := w.step(under, "execute_function")
		endSpan(step, nil)
		endSpan(span, nil)
	}))
}
