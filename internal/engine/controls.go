package engine

import (
	"context"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// Controls of operators. They are rare, so each is a transaction of its own, outside of the lanes.

// ForceCancel requests the end of a task whose worker does not respond.
type ForceCancel struct {
	store.TaskKey

	Reason string
	Meta   event.Meta
}

// ForceCancelTask ends a task of a run that is being cancelled, if its worker has been silent for
// ForceCancelAfter. The worker's token is invalid afterwards. Repeating it for a cancelled task gets the
// same answer.
func (e *Engine) ForceCancelTask(ctx context.Context, c ForceCancel) (Cancelled, error) {
	var answer Cancelled
	held := false
	var done *working
	err := e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		var err error
		done = w
		held, err = e.forceCancel(ctx, tx, w, c)
		return err
	})
	if err == nil && held {
		answer.State = done.runs[c.Run].run.State
	}
	if err != nil || held {
		return answer, err
	}
	// No worker holds it: it has ended, or its state permits no forced cancel.
	task, err := e.store.GetTask(ctx, c.TaskKey)
	if err != nil {
		return Cancelled{}, err
	}
	if task.State == run.Cancelled {
		of, err := e.store.GetRun(ctx, store.RunKey{Tenant: c.Tenant, Run: c.Run})
		return Cancelled{State: of.State, Repeat: true}, err
	}
	_, err = run.Task{State: task.State}.Decide(run.ForceCancel{}, run.Facts{})
	return Cancelled{}, err
}

// forceCancel reports whether a worker held the task.
func (e *Engine) forceCancel(ctx context.Context, tx *store.Tx, w *working, c ForceCancel) (held bool, err error) {
	key := []store.TaskKey{c.TaskKey}
	runs, err := tx.LockRuns(ctx, store.LockForCount, runKeys(key))
	if err != nil {
		return false, err
	}
	leases, err := tx.LockLeases(ctx, key)
	if err != nil || len(leases) == 0 {
		return false, err
	}
	seen, err := tx.HeartbeatSeen(ctx, key)
	if err != nil {
		return false, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return false, err
	}
	w.at(now)
	w.addRuns(runs)
	w.addTasks(leases)
	seenAt := seen[store.PulseKey{TaskKey: c.TaskKey, Token: leases[0].Token}]
	cmd := run.ForceCancel{SeenAt: seenAt, Silence: e.config.ForceCancelAfter, Reason: c.Reason}
	return true, w.decide(w.tasks[c.Task], cmd, c.Meta)
}

// Turn requests that dispatch is paused or resumed. By is for people.
type Turn struct {
	Reason string
	By     string
	Meta   event.Meta
}

// PauseDispatch stops leasing tasks to workers, for all tenants and pools. No lease begins after it has
// returned; leased tasks continue.
func (e *Engine) PauseDispatch(ctx context.Context, t Turn) (store.Switch, error) {
	return e.turnDispatch(ctx, true, t)
}

// ResumeDispatch leases tasks to workers again.
func (e *Engine) ResumeDispatch(ctx context.Context, t Turn) (store.Switch, error) {
	return e.turnDispatch(ctx, false, t)
}

func (e *Engine) turnDispatch(ctx context.Context, off bool, t Turn) (store.Switch, error) {
	var dispatch store.Switch
	err := e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := tx.LockSwitch(ctx, platform.Dispatch); err != nil {
			return err
		}
		var err error
		if dispatch, err = tx.Switch(ctx, platform.Dispatch); err != nil {
			return err
		}
		body, err := dispatch.Turn(off, t.Reason, t.By)
		if err != nil || body == nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		turned := platform.Event{
			Subject: platform.SubjectOf(platform.KindSwitch, platform.Dispatch), Version: dispatch.Version + 1, At: now, Meta: t.Meta, Body: body,
		}
		before := platform.Entity{Kind: platform.KindSwitch, Name: platform.Dispatch, Version: dispatch.Version, Switch: dispatch.Switch}
		after, err := before.Evolve(turned)
		if err != nil {
			return err
		}
		dispatch.Switch, dispatch.Version = after.Switch, after.Version
		if err := tx.WriteSwitch(ctx, dispatch); err != nil {
			return err
		}
		return tx.AppendPlatformEvents(ctx, turned)
	})
	if err == nil && !off {
		store.AfterCommit(ctx, e.signals.All) // every pool may have tasks for claims
	}
	return dispatch, err
}

// AssetPause requests that new tasks of an asset wait, or continue. By is for people.
type AssetPause struct {
	Tenant    id.Tenant
	Workspace string // "" is the default one
	Asset     string
	Reason    string
	By        string
	Meta      event.Meta
}

// check sets the default workspace and refuses values that cannot be stored.
func (p *AssetPause) check() error {
	if p.Workspace == "" {
		p.Workspace = tenant.DefaultWorkspace
	}
	if err := tenant.ValidateName("workspace", p.Workspace); err != nil {
		return err
	}
	if err := checkText("asset", p.Asset, maxAssetLength); err != nil {
		return err
	}
	if err := platform.CheckNote("reason", p.Reason, platform.MaxReasonLength); err != nil {
		return err
	}
	return platform.CheckNote("by", p.By, platform.MaxByLength)
}

// maxAssetLength bounds the key of an asset in a request.
const maxAssetLength = 201

// by is who pauses, for people.
func (p *AssetPause) by() string {
	if p.By != "" {
		return p.By
	}
	return p.Meta.Actor
}

// PauseAsset makes new tasks of an asset wait in READY, in every run of the workspace; queued and running
// tasks continue. It reports whether the asset was not paused before.
func (e *Engine) PauseAsset(ctx context.Context, p AssetPause) (changed bool, err error) {
	if err := p.check(); err != nil {
		return false, err
	}
	err = e.changeWorkspace(ctx, p, func(ctx context.Context, tx *store.Tx, w store.Workspace, now time.Time) (event.Body, error) {
		if err := e.hasAsset(ctx, tx, w, p.Asset); err != nil {
			return nil, err
		}
		changed, err = tx.PauseAsset(ctx, w, store.AssetPause{Asset: p.Asset, PausedAt: now, PausedBy: p.by(), Reason: p.Reason})
		if err != nil || !changed {
			return nil, err
		}
		return tenant.AssetPaused{Asset: p.Asset, Reason: p.Reason, By: p.by()}, nil
	})
	return changed, err
}

// ResumeAsset lets an asset's tasks continue, even if it is not deployed any more. It reports whether the
// asset was paused.
func (e *Engine) ResumeAsset(ctx context.Context, p AssetPause) (changed bool, err error) {
	if err := p.check(); err != nil {
		return false, err
	}
	err = e.changeWorkspace(ctx, p, func(ctx context.Context, tx *store.Tx, w store.Workspace, _ time.Time) (event.Body, error) {
		changed, err = tx.ResumeAsset(ctx, w, p.Asset)
		if err != nil || !changed {
			return nil, err
		}
		// A statement of its own: its snapshot is taken after the wait for admission.
		if _, err := tx.ReleaseHeld(ctx, w, p.Asset); err != nil {
			return nil, err
		}
		return tenant.AssetResumed{Asset: p.Asset, Reason: p.Reason, By: p.by()}, nil
	})
	if err == nil && changed {
		store.AfterCommit(ctx, func() { e.signals.Wake(signal.Ready) })
	}
	return changed, err
}

// changeWorkspace locks a workspace and records the event that fn returns, if any.
func (e *Engine) changeWorkspace(ctx context.Context, p AssetPause,
	fn func(ctx context.Context, tx *store.Tx, w store.Workspace, now time.Time) (event.Body, error),
) error {
	return e.engineWithCode(ctx, func(ctx context.Context, tx *store.Tx) error {
		w, err := tx.LockWorkspace(ctx, p.Tenant, p.Workspace)
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		body, err := fn(ctx, tx, w, now)
		if err != nil || body == nil {
			return err
		}
		w.Version++
		if err := tx.WriteWorkspaceVersion(ctx, w); err != nil {
			return err
		}
		return tx.AppendEntityEvents(ctx, event.Event{
			Tenant: w.Tenant, Subject: w.ID.UUID, Version: w.Version, At: now, Meta: p.Meta, Body: body,
		})
	})
}

// hasAsset refuses an asset that the active deployment does not have: a misspelt key would pause nothing
// without an error.
func (e *Engine) hasAsset(ctx context.Context, tx *store.Tx, w store.Workspace, key string) error {
	if w.Channel != "" {
		found, err := tx.Workspaces(ctx, []store.WorkspaceName{{Tenant: w.Tenant, Name: w.Name}})
		if err != nil || len(found) == 0 {
			return err
		}
		w = found[0]
	}
	if w.Active == nil {
		return noCode(w)
	}
	found, err := e.deploymentsOf(ctx, []store.DeploymentKey{{Tenant: w.Tenant, Deployment: *w.Active}})
	if err != nil {
		return err
	}
	d := found[*w.Active]
	if d == nil {
		return nil // it cannot be read, possibly because of the asset to pause
	}
	if _, ok := d.Asset(key); ok {
		return nil
	}
	return noAsset(d, key)
}

func noAsset(d *deployment, key string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("no asset %.201q", key)+suggest.DidYouMean(key, d.keys()), fault.Field("asset"),
		fault.Remedy("name an asset of the active deployment"))
}
