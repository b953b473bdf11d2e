package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// bundle is a database with an engine and one tenant, whose clock a test may set.
type bundle struct {
	*engine.Engine

	db     *servotest.Database
	tenant id.Tenant
	duty   store.Duty
}

var engineMeta = event.Meta{Actor: "test"}

// The manifest of most tests: a diamond a → b, c → d, a single task, and a task to fan out.
const manifestText = `
version: 1
assets:
  - {key: d/a, exec: {command: [run]}}
  - {key: d/b, exec: {command: [run]}, upstream: [d/a]}
  - {key: d/c, exec: {command: [run]}, upstream: [d/a]}
  - {key: d/d, exec: {command: [run]}, upstream: [d/b, d/c]}
  - {key: s/one, exec: {command: [run]}, timeout: 60s}
  - {key: f/scan, exec: {command: [run]}}
  - {key: f/fetch, exec: {command: [run]}, pool: fetch}
  - {key: f/join, exec: {command: [run]}, upstream: [f/scan]}
pipelines:
  - {name: diamond, overlap: allow, select: ["d/*"]}
  - {name: single, overlap: allow, select: [s/one]}
  - {name: fan, overlap: allow, select: [f/scan, f/join]}
`

func setup(t testing.TB) *bundle {
	t.Helper()
	db := servotest.DB(t)
	return setupOn(t, db, engine.Config{})
}

func setupOn(t testing.TB, db *servotest.Database, config engine.Config) *bundle {
	t.Helper()
	if config.Quotas == (tenant.Quotas{}) {
		config.Quotas = tenant.NoLimits()
	}
	if config.QueueWithoutWorkers == 0 {
		config.QueueWithoutWorkers = 5000 // tests claim by hand: no worker is ever seen
	}
	e := engine.New(db.Store, config, nil)
	t.Cleanup(e.Stop)
	b := &bundle{Engine: e, db: db}
	var err error
	b.tenant, err = e.CreateTenant(t.Context(), "acme", event.Meta{Actor: "test"})
	require.NoError(t, err)
	b.deploy(t, manifestText)
	b.duty, err = db.TakeDuty(t.Context(), "admission", "test", time.Hour)
	require.NoError(t, err)
	return b
}

func (b *bundle) deploy(t testing.TB, text string) {
	t.Helper()
	manifest, err := asset.Parse([]byte(text), "servo.yaml")
	require.NoError(t, err)
	deployed, err := b.Deploy(t.Context(), b.tenant, "default", manifest, event.Meta{Actor: "test"})
	require.NoError(t, err)
	// A server reads the code of a deployment once, in a transaction of its own.
	_, _, err = b.Code(t.Context(), store.DeploymentKey{Tenant: b.tenant, Deployment: deployed})
	require.NoError(t, err)
}

func (b *bundle) trigger(t testing.TB, pipeline string) store.RunKey {
	t.Helper()
	triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: pipeline})
	require.NoError(t, err)
	return store.RunKey{Tenant: b.tenant, Run: triggered.Run}
}

func (b *bundle) admit(t testing.TB) int {
	t.Helper()
	n, _, err := b.Admit(t.Context(), b.duty, 1000)
	require.NoError(t, err)
	return n
}

func newClaim() id.Claim { return id.Of[id.Claim](uuid.New()) }

func (b *bundle) claim(t testing.TB, most int, start bool) []engine.Lease {
	t.Helper()
	leases, err := b.Claim(t.Context(), engine.ClaimRequest{
		Worker: "w1", Claim: newClaim(), Pools: []string{"default", "fetch"}, Max: most, Start: start,
	})
	require.NoError(t, err)
	return leases
}

// one admits and claims one started task.
func (b *bundle) one(t testing.TB) engine.Lease {
	t.Helper()
	b.admit(t)
	leases := b.claim(t, 1, true)
	require.Len(t, leases, 1)
	return leases[0]
}

func report(l engine.Lease, a engine.Action) engine.Report {
	return engine.Report{TaskKey: l.TaskKey, Token: l.Token, Action: a}
}

func (b *bundle) report(t testing.TB, l engine.Lease, a engine.Action) engine.Answer {
	t.Helper()
	answer, err := b.ReportOne(t.Context(), report(l, a))
	require.NoError(t, err)
	return answer
}

func (b *bundle) reportError(t testing.TB, l engine.Lease, a engine.Action) error {
	t.Helper()
	_, err := b.ReportOne(t.Context(), report(l, a))
	require.Error(t, err)
	return err
}

// drain works until nothing is ready or queued any more.
func (b *bundle) drain(t testing.TB, act func(engine.Lease) engine.Action) {
	t.Helper()
	for {
		b.admit(t)
		leases := b.claim(t, 1000, true)
		if len(leases) == 0 {
			return
		}
		reports := make([]engine.Report, len(leases))
		for i, l := range leases {
			reports[i] = report(l, act(l))
		}
		_, errs := b.Report(t.Context(), reports)
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
}

func succeed(engine.Lease) engine.Action { return engine.Complete{} }

// tasks are all tasks of a run in the order of the plan, as its tenant reads them.
func (b *bundle) tasks(t testing.TB, key store.RunKey) []store.TaskView {
	t.Helper()
	tasks, err := b.db.ListTasks(context.WithoutCancel(t.Context()), key, store.TaskFilter{}, store.BeforeFirst, engine.MaxFanOut)
	require.NoError(t, err)
	return tasks
}

// states are a run's state and its tasks' states by asset, as its tenant reads them.
func (b *bundle) states(t testing.TB, key store.RunKey) (run.State, map[string]string) {
	t.Helper()
	r, err := b.db.GetRun(context.WithoutCancel(t.Context()), key)
	require.NoError(t, err)
	states := map[string]string{}
	for _, task := range b.tasks(t, key) {
		name := task.Asset
		if task.Partition != "" {
			name += "@" + task.Partition
		}
		states[name] = task.State.String()
	}
	return r.State, states
}

func (b *bundle) requireStates(t testing.TB, key store.RunKey, want run.State, tasks ...string) {
	t.Helper()
	state, got := b.states(t, key)
	require.Equal(t, want.String(), state.String())
	for _, text := range tasks {
		name, wanted, _ := strings.Cut(text, "=")
		require.Equal(t, wanted, got[name], "%s in %s", name, fmt.Sprint(got))
	}
}
