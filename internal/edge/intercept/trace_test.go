package intercept

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoTraceTakesNoMemory(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	c, ctx := &Chain{}, context.Background()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		under, span := c.startSpan(ctx, "/servo.v1.RunService/TriggerRun", "acme")
		if traceparent(under) != "" {
			panic("there is no trace")
		}
		endSpan(span, nil)
	}))
}
