package verify

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// Options select what to verify. The zero value is everything.
type Options struct {
	Tenant *id.Tenant // one tenant's rows and events
	// Sample verifies this many random runs and leaves out the checks of whole tables; 0 is all
	// runs.
	Sample int
	// ChunkRuns and ChunkTasks bound what is held in memory at a time; a run with more
	// tasks is a chunk of its own. 0 is the default.
	ChunkRuns, ChunkTasks int
	// Keep is how many divergences the report holds; the rest is counted. 0 is the default.
	Keep int
}

// The defaults of Options.
const (
	defaultChunkRuns  = 500
	defaultChunkTasks = 5000
	defaultKeep       = 1000
	chunkTenants      = 100
)

func (o Options) withDefaults() Options {
	o.ChunkRuns = cmp.Or(o.ChunkRuns, defaultChunkRuns)
	o.ChunkTasks = cmp.Or(o.ChunkTasks, defaultChunkTasks)
	o.Keep = cmp.Or(o.Keep, defaultKeep)
	return o
}

// Verify compares the tables with the log, in one snapshot. It returns an error if it could not
// read them; the report has the divergences.
func Verify(ctx context.Context, s *store.Store, o Options) (Report, error) {
	o = o.withDefaults()
	v := &verifier{options: o, codec: store.Codec(), tables: newTables(), report: Report{Divergences: []Divergence{}, keep: o.Keep}}
	err := s.Snapshot(store.Once(ctx), v.run) // a second try would report twice
	return v.report, err
}

// verifier is one pass over the database.
type verifier struct {
	options Options
	codec   *event.Codec
	tables  *tables
	limits  limits
	report  Report
}

func (v *verifier) run(ctx context.Context, tx *store.Tx) error {
	var err error
	if v.limits.token, v.limits.position, err = tx.Sequences(ctx); err != nil {
		return err
	}
	if err := tx.PlanByKey(ctx); err != nil {
		return err
	}
	if err := v.entities(ctx, tx); err != nil {
		return fmt.Errorf("verify tenants: %w", err)
	}
	if v.options.Tenant == nil {
		if err := v.platform(ctx, tx); err != nil {
			return fmt.Errorf("verify the platform: %w", err)
		}
	}
	if v.options.Sample > 0 {
		return v.sample(ctx, tx)
	}
	if err := v.walk(ctx, tx); err != nil {
		return fmt.Errorf("verify runs: %w", err)
	}
	if err := tx.PlanByScan(ctx); err != nil {
		return err
	}
	if err := v.wholeTables(ctx, tx); err != nil {
		return fmt.Errorf("verify whole tables: %w", err)
	}
	return nil
}

// walk verifies every run, in the order of keys.
func (v *verifier) walk(ctx context.Context, tx *store.Tx) error {
	var last store.RunKey
	for {
		rows, err := tx.RunsAfter(ctx, last, v.options.Tenant, v.options.ChunkRuns)
		if err != nil || len(rows) == 0 {
			return err
		}
		last = keyOf(rows[len(rows)-1])
		if err := v.chunks(ctx, tx, rows); err != nil {
			return err
		}
	}
}

func keyOf(row store.RunRow) store.RunKey {
	return store.RunKey{Tenant: id.Of[id.Tenant](row.TenantID), Run: id.Of[id.Run](row.ID)}
}

// sample verifies random runs.
func (v *verifier) sample(ctx context.Context, tx *store.Tx) error {
	keys, err := tx.SampleRuns(ctx, v.options.Tenant, v.options.Sample)
	if err != nil {
		return err
	}
	slices.SortFunc(keys, func(a, b store.RunKey) int {
		return cmp.Or(bytes.Compare(a.Tenant.UUID[:], b.Tenant.UUID[:]), bytes.Compare(a.Run.UUID[:], b.Run.UUID[:]))
	})
	for some := range slices.Chunk(keys, v.options.ChunkRuns) {
		rows, err := tx.RunsByKey(ctx, some)
		if err != nil {
			return err
		}
		if err := v.chunks(ctx, tx, rows); err != nil {
			return err
		}
	}
	return nil
}

// chunks splits runs into chunks by their number of tasks.
func (v *verifier) chunks(ctx context.Context, tx *store.Tx, rows []store.RunRow) error {
	for len(rows) > 0 {
		n, tasks := 1, int(rows[0].Total)
		for n < len(rows) && tasks+int(rows[n].Total) <= v.options.ChunkTasks {
			tasks += int(rows[n].Total)
			n++
		}
		checks := make([]*check, n)
		for i := range checks {
			checks[i] = newCheck(keyOf(rows[i]), &rows[i], v.tables, v.limits, v.report.add)
		}
		if err := v.checkRuns(ctx, tx, checks); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// checkRuns folds the events of some runs and compares their rows.
func (v *verifier) checkRuns(ctx context.Context, tx *store.Tx, checks []*check) error {
	v.report.Chunks++
	v.report.Runs += len(checks)
	keys := make([]store.RunKey, len(checks))
	byKey := make(map[store.RunKey]*check, len(checks))
	byRun := make(map[uuid.UUID]*check, len(checks))
	for i, c := range checks {
		keys[i], byKey[c.key], byRun[c.key.Run.UUID] = c.key, c, c
	}
	find := func(tenant, run uuid.UUID) *check {
		return byKey[store.RunKey{Tenant: id.Of[id.Tenant](tenant), Run: id.Of[id.Run](run)}]
	}
	err := tx.EachEvent(ctx, keys, func(row store.EventRow) error {
		v.report.Events++
		find(row.TenantID, row.RunID).apply(row, v.codec)
		return nil
	})
	if err != nil {
		return err
	}
	for _, c := range checks {
		c.finish()
		v.report.Tasks += len(c.order)
	}
	if err := tx.EachTask(ctx, keys, func(row store.TaskRow) error { find(row.TenantID, row.RunID).taskRow(row); return nil }); err != nil {
		return err
	}
	if err := tx.EachMaterialization(ctx, keys, func(row store.MaterializationRow) error { find(row.TenantID, *row.RunID).outputRow(row); return nil }); err != nil {
		return err
	}
	if err := tx.EachEdge(ctx, keys, func(row store.EdgeRow) error { find(row.TenantID, row.RunID).edgeRow(row); return nil }); err != nil {
		return err
	}
	// queue rows are found by their run alone: the tenant is compared
	of := func(tenant, run uuid.UUID) *check { return cmp.Or(find(tenant, run), byRun[run]) }
	err = tx.EachQueueRow(ctx, keys, store.QueueRows{
		Waiting: func(row store.WaitingRow) error { of(row.TenantID, row.RunID).waitingRow(row); return nil },
		Ready:   func(row store.ReadyRow) error { of(row.TenantID, row.RunID).readyRow(row); return nil },
		Queued:  func(row store.QueuedRow) error { of(row.TenantID, row.RunID).poolRow(row); return nil },
		Lease:   func(row store.LeaseRow) error { of(row.TenantID, row.RunID).leaseRow(row); return nil },
		Retry:   func(row store.RetryRow) error { of(row.TenantID, row.RunID).retryRow(row); return nil },
		Cone:    func(row store.ConeRow) error { of(row.TenantID, row.RunID).coneRow(row); return nil },
		Live:    func(row store.LiveRunRow) error { find(row.TenantID, row.RunID).liveRow(row); return nil },
	})
	if err != nil {
		return err
	}
	for _, c := range checks {
		c.conclude()
	}
	return nil
}
