package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/simulate"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// The limits of a simulation over the API; package simulate has its own.
const (
	maxSimulated      = 100_000 // configs
	simulatedPage     = 1000
	defaultSimulation = 30 // days

	// How far is looked back for how long runs take. Each pipeline is a read of its own, so
	// those with most configs come first.
	historyPipelines = 200
	historyRuns      = 20
	historyWindow    = 30 * 24 * time.Hour
)

// simulationService implements servo.v1.SimulationService.
type simulationService struct {
	*Server

	turn chan struct{} // a simulation takes a core for up to half a minute: one at a time
}

func newSimulationService(s *Server) simulationService {
	return simulationService{Server: s, turn: make(chan struct{}, 1)}
}

// Simulate implements servov1.SimulationServiceServer.
func (s simulationService) Simulate(ctx context.Context, req *servov1.SimulateRequest) (*servov1.SimulateResponse, error) {
	owner, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	in := simulate.Input{Days: cmp.Or(int(req.GetDays()), defaultSimulation), Slots: int(req.GetSlots()), Limit: int(req.GetLimit())}
	if in.From, err = timeOf("from", req.GetFrom()); err != nil {
		return nil, err
	}
	now, err := s.clock(ctx, owner)
	if err != nil {
		return nil, err
	}
	if req.GetFrom() == nil {
		in.From = now.Truncate(time.Second)
	}
	extra, err := s.wouldBe(ctx, owner, req)
	if err != nil {
		return nil, err
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closing.Done():
		return nil, intercept.Stopping()
	}
	configs, err := s.withStored(ctx, owner, extra)
	if err != nil {
		return nil, err
	}
	quotas, _, err := s.store.GetQuotas(ctx, owner)
	if err != nil {
		return nil, err
	}
	in.Tenants = []simulate.Tenant{{
		Name: req.GetTenant(), MaxConcurrentRuns: int(quotas.MaxConcurrentRuns), MaxDailyRuns: int(quotas.MaxDailyRuns), Zone: quotas.Zone,
	}}
	answer := &servov1.SimulateResponse{}
	firing := slices.DeleteFunc(configs, func(c wouldBeConfig) bool { return !c.Fires() })
	answer.Idle = int32(len(configs) - len(firing)) //nolint:gosec // up to maxSimulated
	past, err := s.history(ctx, owner, firing, now)
	if err != nil {
		return nil, err
	}
	in.Configs = make([]simulate.Config, len(firing))
	for i, c := range firing {
		known, ok := past[pipelineOf(c)]
		if !ok {
			answer.WithoutHistory++
		}
		if in.Configs[i], err = simulated(req.GetTenant(), c, known, quotas); err != nil {
			return nil, err
		}
	}
	report, err := simulate.Run(in)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(report)
	if err != nil {
		return nil, err
	}
	answer.Report, err = structOf(data)
	return answer, err
}

// clock is the database's: the one that slots fire by.
func (s *Server) clock(ctx context.Context, owner id.Tenant) (now time.Time, err error) {
	err = s.store.Tenant(ctx, owner.String(), func(ctx context.Context, tx *store.Tx) error {
		now, err = tx.Clock(ctx)
		return err
	})
	return now, err
}

// wouldBeConfig is a config as it is, or as it would be.
type wouldBeConfig struct {
	store.ConfigState

	unsaved bool // it has no id yet that would stay
}

// wouldBe returns the configs of a request as they would be saved.
func (s simulationService) wouldBe(ctx context.Context, owner id.Tenant, req *servov1.SimulateRequest) ([]wouldBeConfig, error) {
	if len(req.GetConfigs()) == 0 {
		return nil, nil
	}
	r := engine.SaveConfigs{Tenant: owner, Workspace: req.GetWorkspace(), DryRun: true, Meta: intercept.Meta(ctx)}
	saved, err := s.saveInputs(ctx, r, req.GetConfigs())
	if err != nil {
		return nil, err
	}
	configs := make([]wouldBeConfig, len(saved))
	for i, one := range saved {
		configs[i] = wouldBeConfig{ConfigState: one.After, unsaved: one.Before == nil}
	}
	return configs, nil
}

// withStored adds the tenant's configs to those that would be, except for the ones that these
// replace.
func (s simulationService) withStored(ctx context.Context, owner id.Tenant, configs []wouldBeConfig) ([]wouldBeConfig, error) {
	replaced := make(map[string]bool, len(configs))
	for _, c := range configs {
		replaced[simulatedName(c)] = true
	}
	for after := (id.Config{}); ; {
		page, err := s.store.ListConfigs(ctx, owner, store.ConfigFilter{}, after, simulatedPage)
		if err != nil {
			return nil, err
		}
		for _, view := range page {
			if c := (wouldBeConfig{ConfigState: view.ConfigState}); !replaced[simulatedName(c)] {
				configs = append(configs, c)
			}
		}
		if len(configs) > maxSimulated {
			return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("the tenant has more than %d configs", maxSimulated), fault.Field("tenant"),
				fault.Remedy("delete configs that are not needed any more, or divide the tenant"), fault.Value("limit", maxSimulated))
		}
		if len(page) < simulatedPage {
			return configs, nil
		}
		after = page[len(page)-1].ID
	}
}

// simulatedName returns the name of a config, with its workspace unless that is the default.
func simulatedName(c wouldBeConfig) string {
	if c.WorkspaceName == tenant.DefaultWorkspace {
		return c.Name
	}
	return c.WorkspaceName + "/" + c.Name
}

// pipelineKey is a pipeline of a tenant.
type pipelineKey struct{ workspace, pipeline string }

func pipelineOf(c wouldBeConfig) pipelineKey {
	return pipelineKey{workspace: c.WorkspaceName, pipeline: c.Spec.Pipeline}
}

// pastRuns has figures of a pipeline's past runs.
type pastRuns struct {
	takes time.Duration // on average
	tasks int           // of the last one
}

// history returns the durations of the last runs of the configs' pipelines. It ignores cancelled runs.
func (s simulationService) history(ctx context.Context, owner id.Tenant, configs []wouldBeConfig, now time.Time) (map[pipelineKey]pastRuns, error) {
	users := map[pipelineKey]int{}
	for _, c := range configs {
		users[pipelineOf(c)]++
	}
	pipelines := slices.SortedFunc(maps.Keys(users), func(a, b pipelineKey) int {
		return cmp.Or(cmp.Compare(users[b], users[a]), cmp.Compare(a.workspace, b.workspace), cmp.Compare(a.pipeline, b.pipeline))
	})
	past := map[pipelineKey]pastRuns{}
	for _, p := range pipelines[:min(len(pipelines), historyPipelines)] {
		runs, _, err := s.store.ListRuns(ctx, owner, store.RunFilter{
			Workspace: p.workspace, Pipeline: p.pipeline, States: []run.State{run.RunSucceeded, run.RunFailed, run.RunTimedOut},
			From: now.Add(-historyWindow),
		}, nil, historyRuns)
		if err != nil {
			return nil, err
		}
		if known, ok := summary(runs); ok {
			past[p] = known
		}
	}
	return past, nil
}

// summary returns the mean of started runs, the newest first; false without any.
func summary(runs []store.RunView) (past pastRuns, ok bool) {
	var sum time.Duration
	n := 0
	for _, r := range runs {
		if r.StartedAt.IsZero() || r.FinishedAt.Before(r.StartedAt) {
			continue
		}
		if n == 0 {
			past.tasks = int(r.Total)
		}
		sum += r.FinishedAt.Sub(r.StartedAt)
		n++
	}
	if n == 0 {
		return pastRuns{}, false
	}
	// At least a millisecond, because 0 means unknown.
	past.takes = min(max(sum/time.Duration(n), time.Millisecond), simulate.MaxDuration)
	return past, true
}

// simulated is a config as the simulator knows it.
func simulated(owner string, c wouldBeConfig, past pastRuns, quotas tenant.Quotas) (simulate.Config, error) {
	sched, err := c.Spec.Schedule()
	if err != nil {
		return simulate.Config{}, err
	}
	out := simulate.Config{
		Tenant: owner, Name: simulatedName(c), Pipeline: c.Spec.Pipeline, Schedule: sched,
		JitterWindow: c.Spec.Jitter.Std(), Duration: past.takes, Tasks: past.tasks,
		MaxExecution: min(c.Spec.MaxExecution.Std(), quotas.MaxRunDuration), SLAStartDelay: c.Spec.SLAStartDelay.Std(),
		Overlap: string(c.Spec.Overlap), MaxOverlap: c.Spec.MaxOverlap,
	}
	if !c.unsaved {
		out.ID = c.ID.UUID
	}
	out.Jitter = out.Offset(out.JitterWindow)
	return out, nil
}
