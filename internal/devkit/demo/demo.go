// Package demo is an example of a platform team's own program: it fills an installation through the
// API. It creates tenants with quotas and shares, deploys the other examples for them, applies their
// configs, and triggers runs until it is stopped, so that the pages have content: a queue that three tenants share, tasks that are tried again, a config that fails until it is
// disabled. `servo dev` runs it. It may be run repeatedly: existing objects are kept.
package demo

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.arco.dev/servo/client"
	"go.arco.dev/servo/examples/cloudcost"
	"go.arco.dev/servo/examples/hello"
	"go.arco.dev/servo/examples/shards"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// Tenant and Pipeline are what people look at first: the example hello.
const (
	Tenant   = "demo"
	Pipeline = "hello"
)

// The config that always fails, of a tenant whose key has expired.
const (
	failingTenant = "globex"
	failingConfig = "globex-aws-expired"
	failingFirst  = 3  // failures at the start, which raise an alert
	failingRounds = 24 // in which that is tried
)

// pace is the default time between two rounds.
const pace = 5 * time.Second

// patience bounds one round: a server that does not answer is called again in the next.
const patience = time.Minute

// Options are the options of the demo.
type Options struct {
	// Client is a connection to the installation, with a platform key if it asks for keys.
	Client *client.Client
	// By is who triggers runs and changes configs (default "seed").
	By string
	// Every is the time between two rounds (default 5 s).
	Every time.Duration
	// Logger receives failed rounds; nil is silent.
	Logger *slog.Logger
}

// Demo fills an installation.
type Demo struct {
	options Options
	streams []stream
}

// New makes a seed. Nothing is done before Fill.
func New(o Options) *Demo {
	if o.By == "" {
		o.By = "seed"
	}
	if o.Every == 0 {
		o.Every = pace
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Demo{options: o, streams: streams()}
}

// customer is a tenant of the platform: what it may use, beside what every tenant may.
type customer struct {
	name   string
	quotas *servov1.Quotas
}

// customers are the tenants that share the pools of cloudcost and shards. Of two that wait, the
// one with twice the weight gets twice the time of workers.
func customers() []customer {
	quotas := func(weight float64, tasks, runs, daily int32, zone string) *servov1.Quotas {
		return &servov1.Quotas{
			FairnessWeight: &weight, MaxConcurrentTasks: &tasks, MaxConcurrentRuns: &runs, MaxDailyRuns: &daily, Zone: &zone,
		}
	}
	return []customer{
		{"acme", quotas(4, 40, 20, 10_000, "Europe/Berlin")},
		{"globex", quotas(2, 20, 12, 6_000, "Australia/Lord_Howe")},
		{"initech", quotas(1, 10, 8, 6_000, "America/Sao_Paulo")},
	}
}

// Fill creates tenants, deployments and configs, and triggers the first runs. Existing objects are
// updated, except quotas that were changed.
func (s *Demo) Fill(ctx context.Context) error {
	first, err := hello.Manifest()
	if err != nil {
		return err
	}
	if err := s.tenant(ctx, Tenant, first); err != nil {
		return err
	}
	pieces, err := shards.Manifest()
	if err != nil {
		return err
	}
	for _, c := range customers() {
		if err := s.tenant(ctx, c.name, cloudcost.Manifest, pieces); err != nil {
			return err
		}
		if err := s.quotas(ctx, c); err != nil {
			return err
		}
		if err := s.configs(ctx, c.name); err != nil {
			return err
		}
	}
	return s.round(ctx, 0)
}

// tenant makes a tenant and deploys for it.
func (s *Demo) tenant(ctx context.Context, name string, manifests ...[]byte) error {
	_, err := s.options.Client.Tenants().CreateTenant(ctx, &servov1.CreateTenantRequest{Name: name})
	if err != nil && !client.Is(err, client.AlreadyExists) {
		return err
	}
	manifest, err := readManifests(manifests...)
	if err != nil {
		return err
	}
	_, err = s.options.Client.Deployments().Deploy(ctx, &servov1.DeployRequest{Tenant: name, Manifest: manifest})
	return err
}

// quotas sets the quotas of a tenant, unless their version shows that they were set before. The
// version is part of the request, so that concurrent changes are not overwritten.
func (s *Demo) quotas(ctx context.Context, c customer) error {
	tenants := s.options.Client.Tenants()
	now, err := tenants.GetQuotas(ctx, &servov1.GetQuotasRequest{Tenant: c.name})
	if err != nil || now.GetVersion() > 1 {
		return err
	}
	_, err = tenants.SetQuotas(ctx, &servov1.SetQuotasRequest{Tenant: c.name, Quotas: c.quotas, Version: now.GetVersion()})
	if client.Is(err, client.Conflict) {
		return nil
	}
	return err
}

// configs applies the files of cloudcost to a tenant, all or none.
func (s *Demo) configs(ctx context.Context, tenant string) error {
	requests, err := readConfigs(cloudcost.Configs, "configs/"+tenant)
	if err != nil {
		return err
	}
	for _, r := range requests {
		r.Tenant, r.Reason = tenant, s.options.By
		if _, err := s.options.Client.Configs().ApplyConfigs(ctx, r); err != nil {
			return fmt.Errorf("configs of %s: %w", tenant, err)
		}
	}
	return nil
}

// Run triggers runs until the context is done: many in the first minutes, then a few, so that an idle
// demo costs little.
func (s *Demo) Run(ctx context.Context) {
	ticker := time.NewTicker(s.options.Every)
	defer ticker.Stop()
	for round := 1; ; round++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := s.patiently(ctx, round); err != nil && ctx.Err() == nil {
			s.options.Logger.Warn("a round has failed, the next one tries again", "round", round, "error", err)
		}
	}
}

func (s *Demo) patiently(ctx context.Context, round int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.round(ctx, round)
}

// round triggers what is due.
func (s *Demo) round(ctx context.Context, round int) error {
	for _, st := range s.streams {
		if !st.due(round) {
			continue
		}
		if err := s.trigger(ctx, st, round); err != nil {
			return fmt.Errorf("%s of %s: %w", st.pipeline, st.tenant, err)
		}
	}
	if round > failingRounds {
		return nil
	}
	return s.fail(ctx)
}

// trigger creates a run, unless enough runs are live. It waits while the tenant's quotas are
// exhausted.
func (s *Demo) trigger(ctx context.Context, st stream, round int) error {
	runs := s.options.Client.Runs()
	going, err := runs.ListRuns(ctx, &servov1.ListRunsRequest{
		Tenant: st.tenant, Pipeline: st.pipeline, PageSize: st.atOnce,
		State: []servov1.Run_State{servov1.Run_PENDING, servov1.Run_RUNNING, servov1.Run_CANCELLING},
	})
	if err != nil || len(going.GetRuns()) >= int(st.atOnce) {
		return err
	}
	parameters, err := st.parameters(round)
	if err != nil {
		return err
	}
	_, err = runs.TriggerRun(ctx, &servov1.TriggerRunRequest{
		Tenant: st.tenant, Pipeline: st.pipeline, Parameters: parameters, Note: s.options.By, WaitForQuota: true,
	})
	return err
}

// fail triggers the config that always fails, until it has done so often enough for an alert. Its
// schedule does the rest: after five failures it is disabled. After that it is not triggered.
func (s *Demo) fail(ctx context.Context) error {
	configs := s.options.Client.Configs()
	c, err := configs.GetConfig(ctx, &servov1.GetConfigRequest{Tenant: failingTenant, Config: failingConfig})
	if client.Is(err, client.NotFound) { // it was deleted
		return nil
	}
	if err != nil || c.GetState() != servov1.Config_ACTIVE || c.GetConsecutiveFailures() >= failingFirst {
		return err
	}
	_, err = configs.TriggerConfig(ctx, &servov1.TriggerConfigRequest{
		Tenant: failingTenant, Config: failingConfig, Note: s.options.By, WaitForQuota: true,
	})
	return err
}
