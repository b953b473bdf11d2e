package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// Trigger asks for a run of a pipeline, or of a selection of assets.
type Trigger struct {
	Tenant      id.Tenant        `json:"-"`
	Workspace   string           `json:"workspace"` // "" is the default one
	Pipeline    string           `json:"pipeline"`
	Select      []string         `json:"select"` // instead of the pipeline's own selection
	Parameters  json.RawMessage  `json:"parameters"`
	Priority    int16            `json:"priority"` // 0 is the pipeline's
	TriggerType string           `json:"trigger_type"`
	TriggeredBy string           `json:"triggered_by"` // the caller, as it was authenticated
	Note        string           `json:"note"`         // of the caller, for people
	Parent      *id.Run          `json:"parent"`
	Retry       *run.RetryPolicy `json:"retry"`
	// IdempotencyKey makes a repeat return the first run.
	IdempotencyKey string `json:"-"`
	// WaitForQuota makes a run that waits for its start where it would be refused because too
	// many run, or too many tasks are ready.
	WaitForQuota bool `json:"-"`
	// Queue makes a run that waits for its lock where another run with other parameters holds it.
	Queue bool `json:"-"`
	// WaitForLock is how long TriggerRun waits for a run that holds the lock.
	WaitForLock time.Duration `json:"-"`
	Meta        event.Meta    `json:"-"`
	// For is what a config and one of its slots add to it.
	For *ForConfig `json:"-"`
}

// ForConfig is the config that a run is made for.
type ForConfig struct {
	Config id.Config
	Name   string
	Slot   time.Time // zero if no slot makes it
	Limit  time.Duration
	// Within is how long after its slot, or now if it has none, and after Delay the run should
	// have begun; 0 promises nothing.
	Within time.Duration
	Delay  time.Duration // of the slot, by the config's jitter
	Labels string        // the config's, as run.Run has them
	// Overlap reports whether it excludes the config's other runs, and waits for them.
	Overlap config.Overlap
	// Window is what the code of the run is told.
	Window *run.Window
}

// Triggered is the answer to a trigger.
type Triggered struct {
	Run    id.Run
	Repeat bool // the run of an earlier trigger with the same idempotency key
	// AlreadyRunning says that Run holds the lock that the trigger asked for: nothing was made.
	AlreadyRunning bool
	// Differs says that this run does something else than was asked for.
	Differs bool
}

// Limits of a trigger.
const (
	maxKeyLength         = 255
	maxTriggeredByLength = 200
	maxTriggerTypeLength = 100
	maxTasksPerEvent     = 1000
	// maxTasksPerBatch bounds a transaction of triggers or cancels: the first that goes
	// beyond it is its last.
	maxTasksPerBatch = 10_000
)

// MaxTasksPerRun bounds a plan; fan-outs may grow a run to MaxFanOut tasks.
const (
	MaxTasksPerRun = 10_000
	MaxFanOut      = 100_000
)

// TriggerRun makes a run of the workspace's active deployment. Its tasks without upstreams
// are ready when it returns, unless it waits for its start. If another run holds its lock it
// makes none, and returns that one.
func (e *Engine) TriggerRun(ctx context.Context, t Trigger) (Triggered, error) {
	return e.withLock(ctx, t.WaitForLock, func() (Triggered, error) {
		cmd := &triggerCommand{Trigger: t}
		if err := e.control.do(ctx, cmd); err != nil {
			return Triggered{}, err
		}
		return cmd.answer, e.replace(ctx, cmd.makeWay)
	})
}

// TriggerRuns makes several runs in one go; each answers on its own.
func (e *Engine) TriggerRuns(ctx context.Context, triggers []Trigger) ([]Triggered, []error) {
	cmds := make([]controlCommand, len(triggers))
	for i, t := range triggers {
		cmds[i] = &triggerCommand{Trigger: t}
	}
	errs := e.control.doAll(ctx, cmds)
	answers := make([]Triggered, len(triggers))
	for i, cmd := range cmds {
		if errs[i] == nil { // else it may still be at work
			answers[i] = cmd.(*triggerCommand).answer //nolint:forcetypeassert // made above
		}
		e.answered(answers[i], errs[i], answers[i].AlreadyRunning, 0)
		if errs[i] == nil {
			errs[i] = answers[i].conflict()
		}
	}
	return answers, errs
}

// controlCommand is a trigger or a cancel: what may be large and must not hold up reports.
type controlCommand interface{ control() }

type triggerCommand struct {
	Trigger

	only []string                 // the assets of a retry: a part of what the pipeline selects
	done map[string]run.Inherited // by asset: what a retry need not do again
	// inputs are, by asset, the upstreams of the plan that are not part of it.
	inputs map[string]run.Inherited
	// from says what a retry that begins with a task does, by the code that it will run.
	from   func(*deployment) ([]string, error)
	run    id.Run // minted at the first try and kept: a repeat finds its own run
	answer Triggered

	workspace  id.Workspace
	tenantName string
	deployment id.Deployment
	code       *deployment
	digest     string
	planned    plan.Plan

	quotas  store.RunQuotas       // as they were when it was planned
	limit   int32                 // seconds that the run may take
	lock    string                // "" takes none
	behind  *call[controlCommand] // a trigger of the same batch that takes the lock
	pending bool                  // the run waits for its start
	refused bool                  // by a quota, after its lock was taken
	waits   bool                  // for its lock
	turn    int64                 // its place among those that wait for the lock
	broken  error                 // why its parameters could not be made
	fired   bool                  // by a slot or an event, not by a call
	makeWay []Cancel              // runs that it replaces
}

func (*triggerCommand) control() {}

// runControl applies the triggers of a batch and then its cancels, apart: a trigger locks no
// run, a cancel locks its own first.
func (e *Engine) runControl(ctx context.Context, batch []*call[controlCommand]) error {
	var triggers, cancels []*call[controlCommand]
	for _, c := range batch {
		switch c.cmd.(type) {
		case *triggerCommand:
			triggers = append(triggers, c)
		case *cancelCommand:
			cancels = append(cancels, c)
		}
	}
	if len(triggers) > 0 {
		if err := e.runTriggers(ctx, triggers); err != nil {
			return err
		}
	}
	if len(cancels) > 0 {
		return e.runCancels(ctx, cancels)
	}
	return nil
}

// runTriggers makes the runs of a batch, in one transaction unless they are large: a batch
// of the largest plans would fit into no memory and no deadline.
func (e *Engine) runTriggers(ctx context.Context, batch []*call[controlCommand]) error {
	for len(batch) > 0 {
		n, err := e.runSomeTriggers(ctx, batch)
		if err != nil {
			return err
		}
		for _, c := range batch[:n] {
			c.cmd.(*triggerCommand).planned = plan.Plan{} //nolint:forcetypeassert // sorted by runControl
		}
		batch = batch[n:]
	}
	return nil
}

// runSomeTriggers says how many of the batch it has done.
func (e *Engine) runSomeTriggers(ctx context.Context, batch []*call[controlCommand]) (n int, err error) {
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		var planned []*call[controlCommand]
		if planned, n, err = e.planTriggers(ctx, tx, batch, maxTasksPerBatch); err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.at(now)
		fresh, err := e.settleRepeats(ctx, tx, w, planned)
		if err != nil {
			return err
		}
		unlocked, err := e.takeLocks(ctx, tx, w, fresh)
		if err != nil {
			return err
		}
		loads, err := loadsOf(ctx, tx, fresh)
		if err != nil {
			return err
		}
		waiting, err := e.queueBehind(ctx, tx, fresh, loads)
		if err != nil {
			return err
		}
		allowed, err := e.underQuotas(ctx, tx, w, append(unlocked, waiting...))
		if err != nil {
			return err
		}
		for _, c := range allowed {
			t := c.cmd.(*triggerCommand) //nolint:forcetypeassert // sorted by runControl
			t.pending = t.pending || t.waits
			if err := w.create(t); err != nil {
				return err
			}
		}
		return settleRefused(ctx, tx, planned, fresh)
	})
	return n, err
}

// planTriggers finds workspaces, deployments and plans, for the first n of the batch, up to the
// one with which they have more tasks than limit. What cannot be planned is answered here and
// left out.
func (e *Engine) planTriggers(ctx context.Context, tx *store.Tx, batch []*call[controlCommand], limit int) (planned []*call[controlCommand], n int, err error) {
	names := map[store.WorkspaceName]*store.Workspace{}
	var wanted []store.WorkspaceName
	for _, c := range batch {
		t := c.cmd.(*triggerCommand) //nolint:forcetypeassert // sorted by runControl
		if t.Workspace == "" {
			t.Workspace = tenant.DefaultWorkspace
		}
		if c.err = tenant.ValidateName("workspace", t.Workspace); c.err != nil {
			continue
		}
		name := store.WorkspaceName{Tenant: t.Tenant, Name: t.Workspace}
		if _, seen := names[name]; !seen {
			names[name] = nil
			wanted = append(wanted, name)
		}
	}
	workspaces, err := tx.Workspaces(ctx, wanted)
	if err != nil {
		return nil, 0, err
	}
	var keys []store.DeploymentKey
	for _, w := range workspaces {
		names[store.WorkspaceName{Tenant: w.Tenant, Name: w.Name}] = &w
		if w.Active != nil {
			keys = append(keys, store.DeploymentKey{Tenant: w.Tenant, Deployment: *w.Active})
		}
	}
	found, err := e.deploymentsOf(ctx, tx, keys)
	if err != nil {
		return nil, 0, err
	}
	tasks := 0
	for _, c := range batch {
		if tasks > limit {
			break
		}
		n++
		if c.err != nil {
			continue
		}
		t := c.cmd.(*triggerCommand) //nolint:forcetypeassert // sorted by runControl
		switch w := names[store.WorkspaceName{Tenant: t.Tenant, Name: t.Workspace}]; {
		case w == nil:
			c.err = fault.New(fault.NotFound, "no workspace "+t.Workspace, fault.Field("workspace"), fault.Remedy("check the name"))
		case w.Active == nil:
			c.err = noDeployment(t.Workspace)
		default:
			t.workspace, t.tenantName, t.deployment, t.code, t.quotas = w.ID, w.TenantName, *w.Active, found[*w.Active], w.Quotas
			if t.code == nil {
				c.err = fmt.Errorf("deployment %s cannot be read", t.deployment)
				continue
			}
			if c.err = t.plan(); c.err == nil {
				planned = append(planned, c)
				tasks += len(t.planned.Tasks)
			}
		}
	}
	if planned, err = refuseTriggers(ctx, tx, planned); err != nil {
		return nil, n, err
	}
	return planned, n, findInputs(ctx, tx, planned)
}

// plan checks the trigger and plans it.
func (t *triggerCommand) plan() error {
	if err := t.validate(); err != nil {
		return err
	}
	if err := t.stillThere(); err != nil {
		return err
	}
	planned, err := t.code.planner.Plan(plan.Request{Pipeline: t.Pipeline, Select: t.Select, Parameters: t.Parameters, Only: t.only})
	if err != nil {
		return err
	}
	if most := min(MaxTasksPerRun, int(t.quotas.MaxTasksPerRun)); len(planned.Tasks) > most {
		return fault.New(fault.LimitExceeded, fmt.Sprintf("the plan has %d tasks, the limit is %d", len(planned.Tasks), most),
			fault.Field("select"), fault.Remedy("select fewer assets"), fault.Value("quota", "max_tasks_per_run"),
			fault.Value("limit", most), fault.Value("current", len(planned.Tasks)))
	}
	t.planned = planned
	if err := t.bound(); err != nil {
		return err
	}
	if t.Priority == 0 {
		t.Priority = asset.DefaultPriority
		if p, ok := t.code.Pipeline(t.Pipeline); ok && p.Priority != 0 {
			t.Priority = int16(p.Priority) //nolint:gosec // 1 to 10
		}
	}
	if t.TriggerType == "" {
		t.TriggerType = "api"
	}
	return nil
}

func (t *triggerCommand) validate() error {
	if t.broken != nil {
		return t.broken
	}
	if t.Priority < 0 || t.Priority > 10 {
		return fault.New(fault.InvalidArgument, fmt.Sprintf("is %d", t.Priority), fault.Field("priority"), fault.Remedy("use 1 (last) to 10 (first)"))
	}
	for _, text := range []struct {
		field, text string
		limit       int
	}{
		{"triggered_by", t.TriggeredBy, maxTriggeredByLength},
		{"note", t.Note, maxTriggeredByLength},
		{"trigger_type", t.TriggerType, maxTriggerTypeLength},
	} {
		if err := checkText(text.field, text.text, text.limit); err != nil {
			return err
		}
	}
	if t.Retry != nil {
		if err := checkRetry(*t.Retry); err != nil {
			return err
		}
	}
	if t.IdempotencyKey == "" || t.digest != "" { // of the request as it came, before defaults were filled in
		return nil
	}
	err := CheckIdempotencyKey(t.IdempotencyKey)
	if err != nil {
		return err
	}
	t.digest, err = canon.Digest(t.Trigger)
	return err
}

// settleRepeats mints run ids, takes the idempotency keys, and answers what is a repeat.
func (e *Engine) settleRepeats(ctx context.Context, tx *store.Tx, w *working, batch []*call[controlCommand]) ([]*call[controlCommand], error) {
	var (
		keys  []store.TriggerKey
		again []store.RunKey
	)
	for _, c := range batch {
		t := c.cmd.(*triggerCommand) //nolint:forcetypeassert // sorted by runControl
		if t.run == (id.Run{}) {
			t.run = id.New[id.Run](w.mint)
		} else if c.tried {
			again = append(again, store.RunKey{Tenant: t.Tenant, Run: t.run})
		}
		if t.IdempotencyKey != "" {
			keys = append(keys, store.TriggerKey{Tenant: t.Tenant, Key: t.IdempotencyKey, Digest: t.digest, Run: t.run})
		}
	}
	holders, err := tx.TakeTriggerKeys(ctx, keys, w.now)
	if err != nil {
		return nil, err
	}
	var existing map[id.Run]bool
	if len(again) > 0 {
		if existing, err = tx.ExistingRuns(ctx, again); err != nil {
			return nil, err
		}
	}
	type owned struct {
		tenant id.Tenant
		key    string
	}
	holder := make(map[owned]store.TriggerKey, len(holders))
	for _, k := range holders {
		holder[owned{k.Tenant, k.Key}] = k
	}
	var fresh []*call[controlCommand]
	for _, c := range batch {
		t := c.cmd.(*triggerCommand) //nolint:forcetypeassert // sorted by runControl
		t.answer, t.behind, t.pending, t.refused, t.waits, t.makeWay = Triggered{Run: t.run}, nil, false, false, false, nil
		k, held := holder[owned{t.Tenant, t.IdempotencyKey}]
		switch {
		case held && k.Run != t.run && k.Digest != t.digest:
			c.err = fault.New(fault.Conflict, "this idempotency key was used for another request", fault.Field("idempotency_key"),
				fault.Remedy("use a new key for a new request"), fault.Value("run", k.Run.String()))
		case held && k.Run != t.run:
			t.answer.Run, t.answer.Repeat = k.Run, true
		case existing[t.run]: // our own commit, whose answer was lost
		default:
			fresh = append(fresh, c)
		}
	}
	return fresh, nil
}

// create puts a new run and its tasks into the working set.
func (w *working) create(t *triggerCommand) error {
	specs, edges := w.specs(t)
	first := specs[:min(len(specs), maxTasksPerEvent)]
	created := &liveRun{run: run.Run{Tenant: t.Tenant, ID: t.run}, isNew: true}
	w.runs[t.run] = created
	startBy, startLimit := t.startBy(w.now)
	err := w.recordRun(created, run.RunCreated{
		Workspace: t.workspace, Deployment: t.deployment, Pipeline: t.Pipeline, Parameters: t.planned.Parameters, Priority: t.Priority,
		TriggerType: t.TriggerType, TriggeredBy: t.TriggeredBy, Note: t.Note, Parent: t.Parent, Fingerprint: t.planned.Fingerprint, Retry: t.Retry,
		Started: !t.pending, Limit: t.limit, Lock: t.lock, Behind: t.waits, Turn: t.turn, Config: t.config(), Slot: t.slot(), Window: t.window(), Tasks: first,
		Labels: t.labels(), StartBy: startBy, StartLimit: startLimit,
	}, t.Meta)
	if err != nil {
		return err
	}
	if err := w.missedStart(created, false, t.Meta); err != nil { // made too late, after an outage
		return err
	}
	if err := w.addToRun(created, run.RunTasksAdded{Tasks: specs[len(first):]}, t.Meta); err != nil {
		return err
	}
	w.insertTasks(created.run, specs)
	w.changes.NewEdges = append(w.changes.NewEdges, edges...)
	return nil
}

func (t *triggerCommand) config() *id.Config {
	if t.For == nil {
		return nil
	}
	return &t.For.Config
}

func (t *triggerCommand) configID() (of id.Config) {
	if t.For != nil {
		of = t.For.Config
	}
	return of
}

func (t *triggerCommand) window() *run.Window {
	if t.For == nil {
		return nil
	}
	return t.For.Window
}

func (t *triggerCommand) slot() *time.Time {
	if t.For == nil || t.For.Slot.IsZero() {
		return nil
	}
	return &t.For.Slot
}
