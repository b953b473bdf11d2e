package engine

import (
	"context"
	"fmt"

	"go.arco.dev/servo/internal/event"
	"go.arco.dev/servo/internal/fault"
	"go.arco.dev/servo/internal/id"
	"go.arco.dev/servo/internal/run"
	"go.arco.dev/servo/internal/store"
	"go.arco.dev/servo/internal/tenant"
)

// live takes note of what a run's row among the live runs has to say: it goes when the run
// ends, and changes when the run starts or is being cancelled.
func (w *working) live(r *liveRun) {
	switch {
	case r.isNew && (r.run.Lock == "" || r.run.State == run.RunRunning): // written as it is
	case r.run.State.Terminal():
		w.changes.EndedRuns = append(w.changes.EndedRuns, store.RunKey{Tenant: r.run.Tenant, Run: r.run.ID})
	case r.isNew, r.run.State != r.from:
		w.changes.LiveRuns = append(w.changes.LiveRuns, r.run)
	}
}

// SetQuotas changes what a tenant may use, and says the new version. It is refused if the
// tenant has changed since the version that the caller has seen.
func (e *Engine) SetQuotas(ctx context.Context, owner id.Tenant, quotas tenant.Quotas, expectedVersion int32, meta event.Meta) (version int32, err error) {
	if err := quotas.Validate(); err != nil {
		return 0, err
	}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		before, current, err := tx.LockQuotas(ctx, owner)
		if err != nil {
			return err
		}
		if current != expectedVersion {
			return fault.New(fault.Conflict, fmt.Sprintf("the tenant has version %d by now, not %d", current, expectedVersion),
				fault.Field("version"), fault.Remedy("read the quotas again and change what is there now"),
				fault.Value("version", current))
		}
		if version = current; quotas == before {
			return nil
		}
		version++
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		if err := tx.SetQuotas(ctx, owner, version, quotas); err != nil {
			return err
		}
		return tx.AppendEntityEvents(ctx, event.Event{
			Tenant: owner, Subject: owner.UUID, Version: version, At: now, Meta: meta, Body: tenant.QuotasSet{Quotas: quotas},
		})
	})
	if err != nil {
		return 0, err
	}
	return version, nil
}
