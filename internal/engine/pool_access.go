package engine

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// Which tenants may use a pool is a property of the pool (docs/adr/0026-pool-access.md).
// It is checked where tasks are created, so that callers get an error, and enforced where tasks are
// admitted and claimed, since the pool may have changed in between.

// maxPoolRefusals bounds the assets that one refusal names.
const maxPoolRefusals = 20

// poolUses are the assets of a manifest or a plan, each with its pool.
type poolUses = iter.Seq2[string, string]

func manifestPools(m *asset.Manifest) poolUses {
	return func(yield func(string, string) bool) {
		for _, a := range m.Assets {
			if !yield(a.Key, a.Pool) {
				return
			}
		}
	}
}

func planPools(p plan.Plan) poolUses {
	return func(yield func(string, string) bool) {
		for _, t := range p.Tasks {
			if !yield(t.Key, t.Pool) {
				return
			}
		}
	}
}

// poolNames returns the pools of uses, each once.
func poolNames(uses ...poolUses) []string {
	seen := map[string]bool{}
	var names []string
	for _, of := range uses {
		for _, pool := range of {
			if !seen[pool] {
				seen[pool] = true
				names = append(names, pool)
			}
		}
	}
	return names
}

// refusePools refuses assets whose pool does not accept the tenant. The owner of a pool is not
// named: a tenant learns nothing about others.
func refusePools(access map[string]store.PoolAccess, tenant id.Tenant, name string, uses poolUses) error {
	if len(access) == 0 {
		return nil
	}
	var found []fault.Violation
	seen := map[string]bool{}
	for key, pool := range uses {
		of, restricted := access[pool]
		if !restricted || of.Accepts(tenant) || seen[key] {
			continue
		}
		if seen[key] = true; len(found) == maxPoolRefusals {
			break
		}
		found = append(found, poolRefusal(of, pool, name, "assets["+key+"].pool"))
	}
	return fault.FromViolations(found)
}

func poolRefusal(of store.PoolAccess, pool, tenant, field string) fault.Violation {
	whose := "is shared with listed tenants"
	if of.Owned {
		whose = "is owned by another tenant"
	}
	return fault.Violation{
		Code: fault.Forbidden, Field: field,
		Message: fmt.Sprintf("pool %q %s and does not accept tasks of tenant %q", pool, whose, tenant),
		Remedy:  fmt.Sprintf("use a shared pool, or ask the platform team to share %q with %q", pool, tenant),
	}
}

// refuseManifest refuses a manifest with assets whose pool does not accept the tenant.
func refuseManifest(ctx context.Context, tx *store.Tx, w store.WorkspaceName, m *asset.Manifest) error {
	uses := manifestPools(m)
	access, err := tx.PoolAccess(ctx, poolNames(uses))
	if err != nil || len(access) == 0 {
		return err
	}
	workspaces, err := tx.Workspaces(ctx, []store.WorkspaceName{w})
	if err != nil || len(workspaces) == 0 {
		return err
	}
	return refusePools(access, w.Tenant, workspaces[0].TenantName, uses)
}

// CheckManifest refuses what Deploy would refuse because of the pools that the manifest names.
func (e *Engine) CheckManifest(ctx context.Context, owner id.Tenant, workspace string, m *asset.Manifest) error {
	return e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		w, err := tx.LockWorkspace(ctx, owner, workspace)
		if err != nil {
			return err
		}
		if err := followsChannel(w); err != nil {
			return err
		}
		return refuseManifest(ctx, tx, store.WorkspaceName{Tenant: owner, Name: workspace}, m)
	})
}

// CheckPlan refuses what a trigger would refuse because of the pools of the plan's tasks.
func (e *Engine) CheckPlan(ctx context.Context, owner id.Tenant, name string, p plan.Plan) error {
	return e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		access, err := tx.PoolAccess(ctx, poolNames(planPools(p)))
		if err != nil {
			return err
		}
		return refusePools(access, owner, name, planPools(p))
	})
}

// refusePoolsOf refuses the drafts that use a pool which does not accept their tenant, and returns the
// others: one statement for the batch.
func refusePoolsOf(ctx context.Context, tx *store.Tx, drafts []triggerDraft) ([]triggerDraft, error) {
	uses := make([]poolUses, len(drafts))
	for i, d := range drafts {
		uses[i] = planPools(d.plan)
	}
	access, err := tx.PoolAccess(ctx, poolNames(uses...))
	if err != nil || len(access) == 0 {
		return drafts, err
	}
	return slices.DeleteFunc(drafts, func(d triggerDraft) bool {
		d.result.err = refusePools(access, d.Tenant, d.tenantName, planPools(d.plan))
		return d.result.err != nil
	}), nil
}

// withdrawnReason is why a task left its pool's queue.
const withdrawnReason = "the pool does not accept tasks of the tenant any more"

// WithdrawQueued makes up to most queued tasks ready again whose tenant may no longer use their pool, and
// returns how many it examined. Claims skip them; in the queue they would count against the tenant's quota
// and the pool's limit.
func (e *Engine) WithdrawQueued(ctx context.Context, most int) (looked int, err error) {
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		candidates, err := tx.QueuedWithoutAccess(ctx, most)
		looked = len(candidates)
		if err != nil || looked == 0 {
			return err
		}
		return withdraw(ctx, tx, w, candidates, tx.LockQueuedWithoutAccess, withdrawnReason)
	})
	return looked, err
}

// PoolsChanged is signalled when pools were configured.
func (e *Engine) PoolsChanged() <-chan struct{} { return e.signals.Wait(signal.Pools) }
