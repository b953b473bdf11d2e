package intercept_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/edge/ratelimit"
)

// TestRateClasses compares the rate classes with the contract.
func TestRateClasses(t *testing.T) {
	t.Parallel()
	classes := intercept.RateClasses()
	for full, m := range intercept.Calls() {
		want := ratelimit.Unlimited
		switch {
		case m.Name() == "ListUpstreamTasks": // of workers
		case strings.HasPrefix(string(m.Name()), "List"), m.Name() == "Search":
			want = ratelimit.List
		case m.Name() == "TriggerRun", m.Name() == "TriggerRuns", m.Name() == "TriggerConfig", m.Name() == "RetryRun", m.Name() == "SendEvent":
			want = ratelimit.Trigger
		case m.Name() == "Deploy":
			want = ratelimit.Deploy
		case m.IsStreamingServer():
			want = ratelimit.Stream
		}
		require.Equal(t, want, classes[full], full)
		delete(classes, full)
	}
	require.Empty(t, classes, "calls that the contract does not have")
	worker := servov1.File_servo_v1_workers_proto.Services().ByName("WorkerService").Methods()
	for i := range worker.Len() {
		if name := string(worker.Get(i).Name()); !strings.HasPrefix(name, "List") {
			require.Zero(t, intercept.RateClasses()["/servo.v1.WorkerService/"+name], "a worker's call is never limited")
		}
	}
}
