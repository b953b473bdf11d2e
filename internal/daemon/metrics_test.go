package daemon_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
)

// documented are the metrics that docs/metrics.md lists.
func documented(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	var names []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [a-z_, ]*\\| .+ \\|$").FindAllStringSubmatch(string(page), -1) {
		names = append(names, row[1])
	}
	slices.Sort(names)
	return names
}

// served are the metrics of a server, but for those of Go and of the process.
func served(t *testing.T, s *servertest.Server) []string {
	t.Helper()
	_, _, body := get(t, s.URL+"/metrics")
	var names []string
	for _, line := range regexp.MustCompile(`(?m)^# HELP (\S+)`).FindAllStringSubmatch(body, -1) {
		if !strings.HasPrefix(line[1], "go_") && !strings.HasPrefix(line[1], "process_") {
			names = append(names, line[1])
		}
	}
	return names
}

func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	quotas := tenant.DefaultQuotas()
	quotas.MaxConcurrentRuns = 1
	s := servertest.StartWith(t, daemon.Config{
		DatabaseURL: servotest.DB(t).URL, Engine: engine.Config{PollEvery: 50 * time.Millisecond, Quotas: quotas},
	})
	conn := s.Dial(t)
	runs := servov1.NewRunServiceClient(conn)
	_, err := servov1.NewTenantServiceClient(conn).CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"})
	require.NoError(t, err)
	var manifest structpb.Struct
	require.NoError(t, manifest.UnmarshalJSON([]byte(`{"version": 1, "assets": [{"key": "s/one", "go": {}}], "pipelines": [{"name": "p"}, {"name": "q"}]}`)))
	_, err = servov1.NewDeploymentServiceClient(conn).Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: &manifest})
	require.NoError(t, err)
	_, err = servov1.NewPoolServiceClient(conn).CreatePool(t.Context(), &servov1.CreatePoolRequest{Name: "push", Kind: servov1.Pool_PUSH, Url: "https://example.invalid/"})
	require.NoError(t, err)

	// A run that ends in failure while others ask for its lock and for its tenant's quota.
	_, err = runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "p"})
	require.NoError(t, err)
	again, err := runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "p"})
	require.NoError(t, err)
	require.True(t, again.GetAlreadyRunning())
	_, err = runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "q"})
	require.Error(t, err)
	seen := map[string]bool{} // by any scrape: some are there only while something is in flight
	require.Eventually(t, func() bool {
		for _, name := range served(t, s) {
			seen[name] = true
		}
		return seen["servo_quota_usage_ratio"]
	}, eventually, 50*time.Millisecond)

	workers := servov1.NewWorkerServiceClient(conn)
	claimed, err := workers.Claim(t.Context(), &servov1.ClaimRequest{
		WorkerId: "w", ClaimId: uuid.NewString(), Pools: []string{"default"}, Max: 1, Wait: durationpb.New(eventually), Start: true,
	})
	require.NoError(t, err)
	require.Len(t, claimed.GetLeases(), 1)
	answer, err := workers.Report(t.Context(), &servov1.ReportRequest{WorkerId: "w", Items: []*servov1.ReportItem{{
		Lease: claimed.GetLeases()[0].GetLease(), Action: &servov1.ReportItem_Fail{Fail: &servov1.Fail{Error: &servov1.Failure{Code: "IMPORT_ERROR", Message: "no"}}},
	}}})
	require.NoError(t, err)
	require.Nil(t, answer.GetAnswers()[0].GetError())

	require.Eventually(t, func() bool { // the push pool is noticed after a while
		for _, name := range served(t, s) {
			seen[name] = true
		}
		return seen["servo_push_breaker_state"]
	}, eventually, 50*time.Millisecond)
	require.Equal(t, documented(t), slices.Sorted(maps.Keys(seen)))

	_, _, body := get(t, s.URL+"/metrics")
	for _, line := range []string{
		`servo_task_total{asset="s/one",outcome="`, `state="FAILED",tenant="acme",workspace="default"} 1`,
		`servo_task_attempts_total{result="FAILED",tenant="acme"} 1`, `servo_run_total{state="FAILED",tenant="acme"} 1`,
		`servo_worker_errors_total{code="IMPORT_ERROR"} 1`, `servo_quota_refusals_total{quota="max_concurrent_runs"} 1`,
		`pipeline_lock_acquisitions_total{result="acquired"} 1`, `pipeline_lock_acquisitions_total{result="held"} 1`,
		`servo_scheduling_latency_seconds_count 1`, `servo_admission_admitted_total 1`, `servo_duty_held{duty="admission"} 1`,
	} {
		require.Contains(t, body, line)
	}
}
