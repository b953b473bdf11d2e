package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/quality"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

const outputManifest = `
version: 1
assets:
  - key: bronze/orders
    exec: {command: [run]}
    retry: {max_attempts: 3}
    output: {format: csv}
    checks:
      - {type: row_count, min: 1}
      - {type: unique, columns: [id], severity: ERROR}
  - {key: gold/report, exec: {command: [run]}, upstream: [bronze/orders], output: {format: json}}
  - {key: gold/mail, exec: {command: [run]}, upstream: [gold/report]}
  - key: silver/days
    exec: {command: [run]}
    output: {format: csv}
    partitions_per_task: 31
    partitions: [{dimension: date, kind: daily, start: "2025-01-01"}]
pipelines:
  - {name: report, overlap: allow, select: ["+gold/mail"]}
  - {name: orders, overlap: allow, select: [bronze/orders]}
  - {name: days, overlap: allow, select: [silver/days]}
`

// committedOutputs are the versions in a blob store, by prefix.
type committedOutputs struct {
	mu       sync.Mutex
	versions map[string]committedVersion
	err      error // of every read
}

type committedVersion struct {
	marker   output.Marker
	metadata output.Metadata
}

// ReadOutput implements engine.OutputReader.
func (c *committedOutputs) ReadOutput(_ context.Context, of output.Attempt) (output.Marker, output.Metadata, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return output.Marker{}, output.Metadata{}, c.err
	}
	v, found := c.versions[of.Prefix()]
	if !found {
		return output.Marker{}, output.Metadata{}, fault.New(fault.NotFound, "no object "+of.Prefix()+output.MarkerName)
	}
	data, err := json.Marshal(v.marker)
	if err != nil {
		return output.Marker{}, output.Metadata{}, err
	}
	m, err := output.ParseMarker(data, of)
	return m, v.metadata, err
}

// outputs is a bundle with assets that have outputs.
type outputs struct {
	*bundle

	blobs *committedOutputs
}

func setupOutputs(t testing.TB) *outputs {
	t.Helper()
	blobs := &committedOutputs{versions: map[string]committedVersion{}}
	o := &outputs{bundle: setupOn(t, servotest.DB(t), engine.Config{Outputs: blobs}), blobs: blobs}
	o.deploy(t, outputManifest)
	return o
}

// commit writes the version of a lease as a worker does, and returns its completion. Change may spoil it.
func (o *outputs) commit(l engine.Lease, change ...func(*committedVersion)) engine.Complete {
	digest := strings.Repeat("ab", 32)
	of := output.Attempt{
		Tenant: "acme", Workspace: l.Workspace.String(), Asset: l.Asset, Partition: l.Partition, Run: l.Run.String(), Task: l.Task.String(), Attempt: l.Attempt, Token: l.Token,
	}
	v := committedVersion{
		marker: output.NewMarker(of, l.Code.Output.Format, []output.File{{Name: "part-0", Bytes: 5, SHA256: digest}}, 2, digest),
		metadata: output.Metadata{
			Schema: []quality.Column{{Name: "id", Type: quality.Integer}}, SchemaHash: "h", StartedAt: l.ExpiresAt, CommittedAt: l.ExpiresAt,
		},
	}
	for _, c := range l.Code.Checks {
		r := quality.Of(c)
		r.Passed = true
		v.metadata.Checks = append(v.metadata.Checks, r)
	}
	for _, u := range l.Upstream {
		v.metadata.Inputs = append(v.metadata.Inputs, output.Input{Asset: u.Asset, Run: u.Run.String(), Task: u.Task.String(), Digest: digest})
	}
	for _, f := range change {
		f(&v)
	}
	o.blobs.mu.Lock()
	defer o.blobs.mu.Unlock()
	o.blobs.versions[of.Prefix()] = v
	return complete(l)
}

// complete is the completion of a lease that names its version.
func complete(l engine.Lease) engine.Complete {
	return engine.Complete{Result: json.RawMessage(fmt.Sprintf(`{"servo_output": {"format": "csv", "attempt": %d, "token": %d}}`, l.Attempt, l.Token))}
}

// failing makes checks of a version fail.
func failingCheck(name string) func(*committedVersion) {
	return func(v *committedVersion) {
		for i := range v.metadata.Checks {
			if strings.HasPrefix(v.metadata.Checks[i].Name, name) {
				v.metadata.Checks[i].Passed, v.metadata.Checks[i].Actual = false, "0 rows"
			}
		}
	}
}

func (o *outputs) versions(t testing.TB, asset string) []store.Materialization {
	t.Helper()
	found, err := o.db.ListMaterializations(t.Context(), store.MaterializationFilter{Tenant: o.tenant, Workspace: "default", Asset: asset}, 0, 100)
	require.NoError(t, err)
	return found
}

func (o *outputs) pointer(t testing.TB, asset, partition string) (current, highest int64) {
	t.Helper()
	current = int64(o.db.Count(t, `SELECT coalesce((SELECT current FROM servo.pointers WHERE asset = $1 AND partition = $2), -1)`, asset, partition))
	highest = int64(o.db.Count(t, `SELECT coalesce((SELECT highest FROM servo.pointers WHERE asset = $1 AND partition = $2), -1)`, asset, partition))
	return current, highest
}

func TestPromotion(t *testing.T) {
	t.Parallel()

	t.Run("the transaction that completes a task promotes its version", func(t *testing.T) {
		t.Parallel()
		o := setupOutputs(t)
		key := o.trigger(t, "report")
		first := o.one(t)
		require.Equal(t, run.Succeeded, o.report(t, first, o.commit(first, failingCheck("unique"))).State)
		current, highest := o.pointer(t, "bronze/orders", "")
		require.Equal(t, first.Token, current)
		require.Equal(t, first.Token, highest)
		second := o.one(t)
		o.report(t, second, o.commit(second))
		third := o.one(t)
		o.report(t, third, engine.Complete{})

		found := o.versions(t, "bronze/orders")
		require.Len(t, found, 1)
		require.True(t, found[0].Current)
		require.Equal(t, output.Promoted, found[0].State)
		require.Equal(t, quality.Warn, found[0].Gate, "the server decides the gate itself")
		require.Equal(t, key.Run, found[0].Run)
		require.Equal(t, int64(2), found[0].Rows)

		report := o.versions(t, "gold/report")
		whole, err := o.db.GetMaterialization(t.Context(), store.MaterializationKey{Tenant: o.tenant, Workspace: "default", Asset: "gold/report", Token: report[0].Token})
		require.NoError(t, err)
		require.Equal(t, "bronze/orders", whole.Inputs[0].Asset)
		require.Len(t, whole.Schema, 1)
		from, made, err := o.db.Lineage(t.Context(), store.MaterializationKey{Tenant: o.tenant, Workspace: "default", Asset: "bronze/orders", Token: first.Token}, 10)
		require.NoError(t, err)
		require.Empty(t, from)
		require.Equal(t, []store.VersionOf{{Asset: "gold/report", Token: second.Token}}, made)
		require.Zero(t, o.db.Count(t, `SELECT count(*) FROM servo.materializations WHERE asset = 'gold/mail'`))
		ended, err := o.db.GetRun(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, run.RunSucceeded, ended.State)
		require.True(t, ended.Warned)
		verifytest.Clean(t, o.db)
	})

	t.Run("a repeated report gets the first answer and promotes nothing", func(t *testing.T) {
		t.Parallel()
		o := setupOutputs(t)
		o.trigger(t, "orders")
		l := o.one(t)
		done := o.commit(l)
		o.report(t, l, done)
		require.True(t, o.report(t, l, done).Repeat)
		require.Len(t, o.versions(t, "bronze/orders"), 1)
		verifytest.Clean(t, o.db)
	})

	t.Run("versions are ordered by their tokens", func(t *testing.T) {
		t.Parallel()
		o := setupOutputs(t)
		o.trigger(t, "orders")
		o.trigger(t, "orders")
		o.admit(t)
		leases := o.claim(t, 2, true)
		older, newer := leases[0], leases[1]
		if older.Token > newer.Token {
			older, newer = newer, older
		}
		o.report(t, newer, o.commit(newer))
		require.Equal(t, run.Succeeded, o.report(t, older, o.commit(older)).State)
		current, _ := o.pointer(t, "bronze/orders", "")
		require.Equal(t, newer.Token, current)
		found := o.versions(t, "bronze/orders")
		require.Equal(t, output.Promoted, found[0].State)
		require.Equal(t, output.Superseded, found[1].State)
		require.False(t, found[1].Current)
		verifytest.Clean(t, o.db)
	})

	t.Run("a range moves the pointer of each of its partitions", func(t *testing.T) {
		t.Parallel()
		o := setupOutputs(t)
		_, err := o.TriggerRun(t.Context(), engine.Trigger{Tenant: o.tenant, Pipeline: "days", Partitions: []string{"date=2025-01-01..2025-01-10"}})
		require.NoError(t, err)
		l := o.one(t)
		require.Len(t, l.Partitions, 10)
		o.report(t, l, o.commit(l))
		require.Equal(t, 10, o.db.Count(t, `SELECT count(*) FROM servo.pointers WHERE current = $1`, l.Token))
		current, _ := o.pointer(t, "silver/days", l.Partitions[3])
		require.Equal(t, l.Token, current)
		verifytest.Clean(t, o.db)
	})

	t.Run("a late result of a cancelled run promotes nothing", func(t *testing.T) {
		t.Parallel()
		o := setupOutputs(t)
		key := o.trigger(t, "orders")
		l := o.one(t)
		_, err := o.CancelRun(t.Context(), engine.Cancel{Tenant: o.tenant, Run: key.Run})
		require.NoError(t, err)
		require.True(t, o.report(t, l, o.commit(l)).Late)
		require.Empty(t, o.versions(t, "bronze/orders"))
		current, _ := o.pointer(t, "bronze/orders", "")
		require.LessOrEqual(t, current, int64(0))
		verifytest.Clean(t, o.db)
	})

	t.Run("verify finds a changed version, and repair restores it from the log", func(t *testing.T) {
		t.Parallel()
		o := setupOutputs(t)
		key := o.trigger(t, "orders")
		l := o.one(t)
		o.report(t, l, o.commit(l))
		for _, damage := range []string{
			`UPDATE servo.materializations SET rows = rows + 1`,
			`UPDATE servo.materializations SET state = 'QUARANTINED'`,
			`DELETE FROM servo.materializations`,
		} {
			o.db.Exec(t, damage)
			verifytest.Repair(t, o.db, key)
			verifytest.Clean(t, o.db)
		}
	})

	t.Run("a lost lease promotes nothing", func(t *testing.T) {
		t.Parallel()
		o := setupOutputs(t)
		o.trigger(t, "orders")
		old := o.one(t)
		done := o.commit(old)
		o.report(t, old, engine.Yield{})
		l := o.one(t)
		require.True(t, fault.Is(o.reportError(t, old, done), fault.Stale))
		require.Empty(t, o.versions(t, "bronze/orders"))
		o.report(t, l, o.commit(l))
		require.Equal(t, l.Token, o.versions(t, "bronze/orders")[0].Token)
		verifytest.Clean(t, o.db)
	})
}

func TestPromotionRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil   func(*committedVersion)
		done    func(engine.Lease) engine.Complete
		code    string
		message string
	}{
		"no marker":                   {done: complete, code: "INVALID_CONFIGURATION", message: "--blob-url"},
		"a marker of another attempt": {spoil: func(v *committedVersion) { v.marker.Attempt.Attempt = 9 }, code: "DATA_CORRUPTION", message: "attempt"},
		"a marker of another tenant":  {spoil: func(v *committedVersion) { v.marker.Tenant = "bravo" }, code: "DATA_CORRUPTION", message: "belongs to"},
		"a blocking check":            {spoil: failingCheck("row_count"), code: "CHECK_FAILED", message: "row_count"},
		"a check without a result":    {spoil: func(v *committedVersion) { v.metadata.Checks = nil }, code: "CHECK_FAILED"},
		"a completion without version": {
			done: func(engine.Lease) engine.Complete { return engine.Complete{Result: json.RawMessage(`{"rows": 1}`)} }, code: "INVALID_CONFIGURATION", message: "declares an output",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := setupOutputs(t)
			o.trigger(t, "orders")
			l := o.one(t)
			var done engine.Complete
			if c.done != nil {
				done = c.done(l)
			} else {
				done = o.commit(l, c.spoil)
			}
			require.Equal(t, run.Failed, o.report(t, l, done).State)
			task, err := o.db.GetTask(t.Context(), l.TaskKey)
			require.NoError(t, err)
			require.Equal(t, c.code, task.Failure.Code)
			require.Contains(t, task.Failure.Message+task.Failure.SuggestedAction, c.message)
			require.Empty(t, o.versions(t, "bronze/orders"))
			require.Zero(t, o.db.Count(t, `SELECT count(*) FROM servo.pointers WHERE current > 0`))
			verifytest.Clean(t, o.db)
		})
	}

	t.Run("a blob store that does not answer leaves the task as it is", func(t *testing.T) {
		t.Parallel()
		o := setupOutputs(t)
		o.trigger(t, "orders")
		l := o.one(t)
		done := o.commit(l)
		o.blobs.err = errors.New("connection refused")
		require.True(t, fault.Is(o.reportError(t, l, done), fault.Unavailable))
		o.blobs.err = nil
		require.Equal(t, run.Succeeded, o.report(t, l, done).State)
		verifytest.Clean(t, o.db)
	})
}

// TestPromotionCosts: a batch with versions needs at most four statements more than one without, and tasks
// without an output need none.
func TestPromotionCosts(t *testing.T) {
	t.Parallel()
	o := setupOutputs(t)
	const tasks = 20
	statements := func(pipeline string, act func(engine.Lease) engine.Action) int64 {
		for range tasks {
			o.trigger(t, pipeline)
		}
		o.admit(t)
		leases := o.claim(t, tasks, true)
		require.Len(t, leases, tasks)
		reports := make([]engine.Report, tasks)
		for i, l := range leases {
			reports[i] = report(l, act(l))
		}
		before := o.db.Stats()
		_, errs := o.Report(t.Context(), reports)
		for _, err := range errs {
			require.NoError(t, err)
		}
		after := o.db.Stats()
		// Each transaction of a batch has its own begin and commit; OutputTasks is one more.
		return after.Statements - before.Statements - 2*(after.Transactions-before.Transactions)
	}
	statements("orders", func(l engine.Lease) engine.Action { return o.commit(l) }) // first uses
	o.deploy(t, strings.ReplaceAll(outputManifest, "    output: {format: csv}\n    checks:\n      - {type: row_count, min: 1}\n      - {type: unique, columns: [id], severity: ERROR}\n", ""))
	plain := statements("orders", succeed)
	rows := o.db.Count(t, `SELECT count(*) FROM servo.materializations`)
	require.Equal(t, plain, statements("orders", succeed))
	require.Equal(t, rows, o.db.Count(t, `SELECT count(*) FROM servo.materializations`))
	o.deploy(t, outputManifest)
	promoting := statements("orders", func(l engine.Lease) engine.Action { return o.commit(l) })
	t.Logf("%d statements for %d tasks without outputs, %d with", plain, tasks, promoting)
	require.LessOrEqual(t, promoting, plain+4)
	verifytest.Clean(t, o.db)
}
