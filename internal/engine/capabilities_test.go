package engine_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// capableManifest has assets of each kind in one pool.
const capableManifest = `
version: 1
assets:
  - {key: k/exec, exec: {command: [run]}}
  - {key: k/http, http: {url: "https://example.com"}}
  - {key: k/old, go: {handler: old}}
  - {key: k/new, go: {handler: new}}
pipelines:
  - {name: exec, overlap: allow, select: [k/exec]}
  - {name: http, overlap: allow, select: [k/http]}
  - {name: old, overlap: allow, select: [k/old]}
  - {name: new, overlap: allow, select: [k/new]}
`

// able claims as a worker with capabilities, and has it written that the worker is there.
func (b *bundle) able(t testing.TB, worker string, most int, capabilities ...string) []engine.Lease {
	t.Helper()
	leases, err := b.Claim(t.Context(), engine.ClaimRequest{
		Worker: worker, Claim: newClaim(), Pools: []string{"default"}, Max: most, Slots: 8, Start: true, Capabilities: capabilities,
	})
	require.NoError(t, err)
	b.present(t)
	return leases
}

// present writes which workers were seen, as a server does.
func (b *bundle) present(t testing.TB) {
	t.Helper()
	workers, alive, _ := b.SeenWorkers()
	_, err := b.db.RenewPresence(t.Context(), store.Presence{Name: "test", Workers: workers, Alive: alive})
	require.NoError(t, err)
	_, err = b.MatchWorkers(t.Context(), 100)
	require.NoError(t, err)
}

func assetsOf(leases []engine.Lease) (assets []string) {
	for _, l := range leases {
		assets = append(assets, l.Asset)
	}
	return assets
}

func TestCapabilities(t *testing.T) {
	t.Parallel()

	t.Run("a worker gets the tasks that it can run", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, capableManifest)
		for _, pipeline := range []string{"exec", "http", "old", "new"} {
			b.trigger(t, pipeline)
		}
		require.Equal(t, 4, b.admit(t), "without workers tasks of every kind are queued")
		require.ElementsMatch(t, []string{"k/exec", "k/http"}, assetsOf(b.able(t, "plain", 10, "exec", "http")))
		require.Empty(t, b.able(t, "go-1", 10, "go:old"), "its task has left the queue, since only the first worker was there")
		require.Equal(t, 1, b.admit(t))
		require.Equal(t, []string{"k/old"}, assetsOf(b.able(t, "go-1", 10, "go:old")))
		require.Zero(t, b.admit(t))
		require.Empty(t, b.able(t, "any", 1))
		require.Equal(t, 1, b.admit(t))
		require.Equal(t, []string{"k/new"}, assetsOf(b.able(t, "any", 10)), "a worker that declares nothing runs everything")
		verifytest.Clean(t, b.db)
	})

	t.Run("tasks with an output or checks wait for a worker that commits outputs", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, `
version: 1
assets:
  - {key: k/plain, exec: {command: [run]}}
  - {key: k/rows, exec: {command: [run]}, output: {format: csv}, checks: [{type: row_count, min: 1}]}
pipelines:
  - {name: plain, overlap: allow, select: [k/plain]}
  - {name: rows, overlap: allow, select: [k/rows]}
`)
		run := b.trigger(t, "rows")
		b.trigger(t, "plain")
		require.Equal(t, 2, b.admit(t))
		require.Equal(t, []string{"k/plain"}, assetsOf(b.able(t, "plain", 10, "exec")))
		why := b.whyTask(t, run, "k/rows")
		require.Contains(t, why.Blockers[0].Message, "the capability exec and a blob store for outputs")
		require.Contains(t, why.Blockers[0].Remedy, "--blob-url")
		b.able(t, "blobs", 1, "exec", "output:exec")
		b.admit(t)
		leases := b.able(t, "blobs", 10, "exec", "output:exec")
		require.Equal(t, []string{"k/rows"}, assetsOf(leases))
		require.NotNil(t, leases[0].Code.Declared())
		verifytest.Clean(t, b.db)
	})

	t.Run("tasks with a custom_sql check wait for a worker with DuckDB", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, `
version: 1
assets:
  - {key: k/rows, exec: {command: [run]}, output: {format: csv}, checks: [{type: custom_sql, name: q, sql: SELECT 1}]}
pipelines:
  - {name: rows, overlap: allow}
`)
		run := b.trigger(t, "rows")
		b.admit(t)
		require.Empty(t, b.able(t, "small", 10, "exec", "output:exec"), "a worker without DuckDB does not get the task")
		why := b.whyTask(t, run, "k/rows")
		require.Contains(t, why.Blockers[0].Message, "the capability exec and a blob store for outputs and DuckDB for custom_sql checks")
		require.Contains(t, why.Blockers[0].Remedy, "-tags duckdb")
		b.able(t, "large", 1, "exec", "output:exec", "sql:output:exec")
		b.admit(t)
		require.Equal(t, []string{"k/rows"}, assetsOf(b.able(t, "large", 10, "exec", "output:exec", "sql:output:exec")))
		verifytest.Clean(t, b.db)
	})

	t.Run("claims of one batch that can run different tasks share a pool", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, capableManifest)
		for _, pipeline := range []string{"exec", "old", "exec", "new"} {
			b.trigger(t, pipeline)
		}
		require.Equal(t, 4, b.admit(t))
		got := make(chan []engine.Lease, 3)
		for _, capabilities := range [][]string{{"exec"}, {"exec", "go:old"}, nil} {
			go func() {
				leases, err := b.Claim(t.Context(), engine.ClaimRequest{
					Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 10, Start: true, Capabilities: capabilities,
				})
				if err != nil {
					t.Error(err)
				}
				got <- leases
			}()
		}
		total := 0
		for range 3 {
			total += len(<-got)
		}
		require.GreaterOrEqual(t, total, 2)
		require.Len(t, b.claim(t, 10, true), 4-total, "the rest is left, nothing is lost")
		verifytest.Clean(t, b.db)
	})

	t.Run("tasks that no worker can run are held, and return when one can", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, capableManifest)
		b.able(t, "go-1", 10, "go:old")
		for range 50 {
			b.trigger(t, "new")
		}
		b.trigger(t, "old")
		for range 3 {
			b.admit(t)
		}
		require.Equal(t, []string{"k/old"}, assetsOf(b.able(t, "go-1", 10, "go:old")), "others are not behind them")
		require.Zero(t, b.admit(t))
		b.able(t, "go-2", 1, "go:new", "go:old")
		require.Positive(t, b.admit(t))
		leases := b.able(t, "go-2", 10, "go:new", "go:old")
		require.NotEmpty(t, leases)
		require.Equal(t, "k/new", leases[0].Asset)
		verifytest.Clean(t, b.db)
	})

	t.Run("an old task behind many urgent ones is held once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, capableManifest)
		_, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "new", Priority: 1})
		require.NoError(t, err)
		for range 1005 {
			_, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "old", Priority: 10})
			require.NoError(t, err)
		}
		b.able(t, "go-1", 1, "go:old")
		for range 10 { // each eighth task is the oldest
			b.admit(t)
			b.able(t, "go-1", 8, "go:old")
		}
		require.Equal(t, 1, b.db.Count(t, "SELECT count(*) FROM servo.ready_q WHERE held AND lacks_worker"))
	})

	t.Run("a queued task leaves the queue when its last worker is gone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, capableManifest)
		b.able(t, "go-1", 10, "go:old")
		b.trigger(t, "old")
		require.Equal(t, 1, b.admit(t))
		b.able(t, "plain", 10, "exec", "http")
		b.db.Exec(t, "UPDATE servo.workers SET seen_at = seen_at - interval '10 minutes' WHERE name = 'go-1'")
		looked, err := b.MatchWorkers(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, 1, looked)
		require.Zero(t, b.admit(t))
		require.Empty(t, b.able(t, "plain", 10, "exec", "http"))
		b.able(t, "go-2", 1, "go:old")
		require.Equal(t, 1, b.admit(t))
		require.Len(t, b.able(t, "go-2", 1, "go:old"), 1)
		verifytest.Clean(t, b.db)
	})

	t.Run("a paused asset stays held when a worker appears", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, capableManifest)
		b.able(t, "go-1", 10, "go:old")
		b.trigger(t, "new")
		require.Zero(t, b.admit(t))
		pause := engine.AssetPause{Tenant: b.tenant, Workspace: "default", Asset: "k/new", Meta: engineMeta}
		_, err := b.PauseAsset(t.Context(), pause)
		require.NoError(t, err)
		b.able(t, "go-2", 1, "go:new")
		require.Zero(t, b.admit(t))
		_, err = b.ResumeAsset(t.Context(), pause)
		require.NoError(t, err)
		require.Equal(t, 1, b.admit(t))
	})

	t.Run("a handoff leases a task to a claim that can run it", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		b.deploy(t, capableManifest)
		b.able(t, "plain", 1, "exec")
		b.able(t, "go-1", 1, "go:old")
		ask := func(capability string) <-chan []engine.Lease {
			return b.waitingClaim(t, engine.ClaimRequest{Worker: "w " + capability, Pools: []string{"default"}, Max: 1, Slots: 8, Start: true, Capabilities: []string{capability}})
		}
		plain, golang := ask("exec"), ask("go:old")
		b.trigger(t, "old")
		require.Equal(t, []string{"k/old"}, assetsOf(<-golang), "not the claim that has waited longest")
		b.trigger(t, "exec")
		require.Equal(t, []string{"k/exec"}, assetsOf(<-plain))
	})

	t.Run("capabilities are bounded", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for name, capabilities := range map[string][]string{"empty": {""}, "zero": {"go:\x00"}, "long": {strings.Repeat("x", 400)}, "many": make([]string, 10_001)} {
			_, err := b.Claim(t.Context(), engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Capabilities: capabilities})
			require.True(t, fault.Is(err, fault.InvalidArgument) || fault.Is(err, fault.LimitExceeded), "%s: %v", name, err)
		}
	})
}

func TestWhyNoCapableWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deploy(t, capableManifest)
	b.able(t, "plain", 10, "http")
	goRun, execRun := b.trigger(t, "new"), b.trigger(t, "exec")
	for range 2 { // before and after admission has held it
		for asset, want := range map[string]engine.Blocker{
			"k/new": {
				Code: engine.BlockedByCapability, Message: "no live worker of pool default has the Go handler new",
				Remedy: "start the Go program that registers handler new for pool default; servo worker cannot run Go assets",
				Values: map[string]any{"pool": "default", "capability": "go:new", "handler": "new"},
			},
			"k/exec": {
				Code: engine.BlockedByCapability, Message: "no live worker of pool default has the capability exec",
				Remedy: "start a worker for exec and http assets: servo worker --pool default",
				Values: map[string]any{"pool": "default", "capability": "exec"},
			},
		} {
			why := b.whyTask(t, map[string]store.RunKey{"k/new": goRun, "k/exec": execRun}[asset], asset)
			require.Equal(t, "READY", why.State)
			require.Equal(t, []engine.Blocker{want}, why.Blockers)
		}
		b.admit(t)
	}
}

func TestWhyDeadDispatcher(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.trigger(t, "single")
	b.admit(t)
	_, err := b.Claim(t.Context(), engine.ClaimRequest{Worker: engine.DispatcherName("srv-1", "default"), Claim: newClaim(), Pools: []string{"default"}, Max: 1})
	require.NoError(t, err)
	_, err = b.db.RenewPresence(t.Context(), store.Presence{Name: "srv-1"})
	require.NoError(t, err)
	require.Empty(t, b.whyTask(t, key, "s/one").Blockers)
	b.db.Exec(t, "UPDATE servo.servers SET seen_at = seen_at - interval '1 minute'")
	why := b.whyTask(t, key, "s/one")
	require.Equal(t, []engine.BlockerCode{engine.BlockedBySilence}, codes(why))
	require.Regexp(t, `^server srv-1, which sends the tasks of push pool default, is silent; its leases end at \S+$`, why.Blockers[0].Message)

	require.Equal(t, "srv-1", engine.DispatchingServer(engine.DispatcherName("srv-1", "a/b")))
	require.Empty(t, engine.DispatchingServer("host-1"))
}

func TestWorkerWarnings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	manifest, err := asset.Parse([]byte(capableManifest), "servo.yaml")
	require.NoError(t, err)
	b.able(t, "plain", 1, "http")
	warnings, err := b.WorkerWarnings(t.Context(), manifest)
	require.NoError(t, err)
	require.Equal(t, []engine.WorkerWarning{
		{
			Pool: "default", Capabilities: []string{"exec"}, Assets: []string{"k/exec"}, Message: "no live worker of pool default has the capability exec",
			Remedy: "start a worker for exec and http assets: servo worker --pool default",
		},
		{
			Pool: "default", Capabilities: []string{"go:new", "go:old"}, Assets: []string{"k/new", "k/old"}, Message: "no live worker of pool default has the Go handlers new, old",
			Remedy: "start the Go program that registers them for pool default; servo worker cannot run Go assets",
		},
	}, warnings)
	b.able(t, "any", 1)
	warnings, err = b.WorkerWarnings(t.Context(), manifest)
	require.NoError(t, err)
	require.Empty(t, warnings)
}
