package demo_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"go.arco.dev/servo/client"
	"go.arco.dev/servo/examples/shards"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/demo"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

func TestMain(m *testing.M) {
	const devpg = "go.arco.dev/servo/internal/devkit/devpg.(*Server)." // stays for the next package
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(devpg+"launchOn.func1"), goleak.IgnoreAnyFunction(devpg+"spawn.func1"))
}

// soon is how long a claim may take to become true, and look how often it is looked at.
const (
	soon = time.Minute
	look = 50 * time.Millisecond
)

// world is a server that a seed was put into.
type world struct {
	*client.Client

	seed *demo.Demo
}

// setup fills a server. No worker runs and no seeding continues yet.
func setup(t *testing.T) *world {
	t.Helper()
	c, err := client.New(client.Options{Servers: []string{servertest.Start(t).GRPC}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	w := &world{Client: c, seed: demo.New(demo.Options{Client: c, Every: 100 * time.Millisecond})}
	require.NoError(t, w.seed.Fill(t.Context()))
	return w
}

// live runs the workers, and continues to seed, until the test is over.
func (w *world) live(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { w.seed.Run(ctx) })
	for _, worker := range demo.Workers(demo.WorkerOptions{Conn: w.Conn(), Name: "test", Dir: t.TempDir(), Grace: time.Millisecond}) {
		ended.Go(func() {
			if err := worker.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); ended.Wait() })
}

func (w *world) config(t *testing.T, tenant, name string) *servov1.Config {
	t.Helper()
	c, err := w.Configs().GetConfig(t.Context(), &servov1.GetConfigRequest{Tenant: tenant, Config: name})
	require.NoError(t, err)
	return c
}

func (w *world) quotas(t *testing.T, tenant string) *servov1.TenantQuotas {
	t.Helper()
	q, err := w.Tenants().GetQuotas(t.Context(), &servov1.GetQuotasRequest{Tenant: tenant})
	require.NoError(t, err)
	return q
}

func TestFill(t *testing.T) {
	t.Parallel()
	w := setup(t)

	t.Log("three tenants share the workers by their weights, within quotas that can be seen")
	weights := map[string]float64{"acme": 4, "globex": 2, "initech": 1}
	for tenant, weight := range weights {
		q := w.quotas(t, tenant).GetQuotas()
		require.InDelta(t, weight, q.GetFairnessWeight(), 0, tenant)
		require.Positive(t, q.GetMaxConcurrentTasks(), tenant)
		require.Positive(t, q.GetMaxConcurrentRuns(), tenant)
		require.Positive(t, q.GetMaxDailyRuns(), tenant)
	}

	t.Log("they have the pipelines of two examples, and the configs that the files define")
	configs := 0
	for tenant := range weights {
		pipelines, err := w.Assets().ListPipelines(t.Context(), &servov1.ListPipelinesRequest{Tenant: tenant})
		require.NoError(t, err)
		var names []string
		for _, p := range pipelines.GetPipelines() {
			names = append(names, p.GetName())
		}
		require.ElementsMatch(t, []string{"cost_billing", "security_audit", shards.Pipeline}, names)
		list, err := w.Configs().ListConfigs(t.Context(), &servov1.ListConfigsRequest{Tenant: tenant, PageSize: 100})
		require.NoError(t, err)
		configs += len(list.GetConfigs())
	}
	require.Equal(t, 13, configs)
	require.Equal(t, "Australia/Lord_Howe", w.config(t, "globex", "globex-azure-cost").GetSpec().GetTimezone())
	require.Equal(t, "4410", w.config(t, "acme", "acme-aws-cost").GetSpec().GetParameters().AsMap()["account"], "texts stay texts")

	t.Log("the first runs are there")
	for tenant, pipeline := range map[string]string{demo.Tenant: demo.Pipeline, "acme": shards.Pipeline, "globex": shards.Pipeline, "initech": shards.Pipeline} {
		runs, err := w.Runs().ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: tenant, Pipeline: pipeline})
		require.NoError(t, err)
		require.Len(t, runs.GetRuns(), 1, tenant)
	}

	t.Log("once more changes nothing, and quotas that were changed since are kept")
	before := w.config(t, "acme", "acme-aws-cost").GetVersion()
	weight := 7.0
	_, err := w.Tenants().SetQuotas(t.Context(), &servov1.SetQuotasRequest{Tenant: "initech", Quotas: &servov1.Quotas{FairnessWeight: &weight}})
	require.NoError(t, err)
	versions := map[string]int32{}
	for tenant := range weights {
		versions[tenant] = w.quotas(t, tenant).GetVersion()
	}
	require.NoError(t, w.seed.Fill(t.Context()))
	require.Equal(t, before, w.config(t, "acme", "acme-aws-cost").GetVersion())
	for tenant, version := range versions {
		require.Equal(t, version, w.quotas(t, tenant).GetVersion(), tenant)
	}
}

func TestLife(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.live(t)

	t.Log("all three tenants have a long queue for few slots")
	require.Eventually(t, func() bool {
		list, err := w.Fairness().ListShares(t.Context(), &servov1.ListSharesRequest{Pool: shards.Pool})
		waiting, tenants := int32(0), 0
		for _, s := range list.GetShares() {
			if s.GetWaiting() > 0 {
				waiting, tenants = waiting+s.GetWaiting(), tenants+1
			}
		}
		return err == nil && tenants == 3 && waiting > 150
	}, soon, look)

	t.Log("a task was tried again, and succeeded")
	require.Eventually(t, func() bool {
		runs, _ := w.Runs().ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: demo.Tenant, State: []servov1.Run_State{servov1.Run_SUCCEEDED}, PageSize: 100})
		for _, run := range runs.GetRuns() {
			if run.GetParameters().AsMap()["network"] != "bad" {
				continue
			}
			for task, err := range client.AllTasks(t.Context(), w.Client, &servov1.ListTasksRequest{Tenant: demo.Tenant, Run: run.GetId()}) {
				if err == nil && task.GetAsset() == "silver/quality" {
					return task.GetState() == servov1.Task_SUCCEEDED && task.GetAttempt() > 1
				}
			}
		}
		return false
	}, soon, look)

	t.Log("a config fails, and there is an alert")
	require.Eventually(t, func() bool {
		list, err := w.Alerts().ListAlerts(t.Context(), &servov1.ListAlertsRequest{Tenant: "globex", Open: true, Kind: "PIPELINE_FAILING"})
		return err == nil && len(list.GetAlerts()) == 1 && list.GetAlerts()[0].GetName() == "default/globex-aws-expired"
	}, soon, look)

	t.Log("it is disabled in the end, and stays so when the seed comes again")
	require.Eventually(t, func() bool {
		if w.config(t, "globex", "globex-aws-expired").GetState() == servov1.Config_DISABLED {
			return true
		}
		_, err := w.Configs().TriggerConfig(t.Context(), &servov1.TriggerConfigRequest{Tenant: "globex", Config: "globex-aws-expired"})
		require.NoError(t, err)
		return false
	}, soon, look)
	require.NoError(t, w.seed.Fill(t.Context()))
	require.Equal(t, servov1.Config_DISABLED, w.config(t, "globex", "globex-aws-expired").GetState())
}
