package bench

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
)

// TaskOptions select the measurements over the network.
type TaskOptions struct {
	Executable string   // this binary: server and worker are processes of it
	Scenarios  []string // names; none is all
	Tasks      int      // of the throughput scenarios; 0 is their own number
	Logger     *slog.Logger
	// Progress is called after each scenario.
	Progress func(TaskResult) error
}

// TaskResult is what one scenario showed.
type TaskResult struct {
	Scenario string   `json:"scenario"`
	Figures  []Figure `json:"figures"`
}

// Figure is one measured value.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

type taskScenario struct {
	name    string
	measure func(ctx context.Context, f *fleet, o TaskOptions) ([]Figure, error)
}

func taskScenarios() []taskScenario {
	return []taskScenario{
		{"idle", measureIdle},
		{"latency", measureLatency},
		{"chain", measureChain},
		{"fanout", measureFanOut},
		{"slots-200", measureThroughput(200)},
		{"slots-1000", measureThroughput(1000)},
		{"heartbeats", measureHeartbeats},
	}
}

// TaskScenarioNames are the names that TaskOptions.Scenarios may hold.
func TaskScenarioNames() []string {
	var names []string
	for _, s := range taskScenarios() {
		names = append(names, s.name)
	}
	return names
}

// Tasks measures a whole installation: PostgreSQL, server and worker as processes of their
// own, talking over the network.
func Tasks(ctx context.Context, o TaskOptions) ([]TaskResult, error) {
	for _, name := range o.Scenarios {
		if !slices.Contains(TaskScenarioNames(), name) {
			return nil, fault.New(fault.InvalidArgument, "unknown scenario "+name, fault.Field("scenario"),
				fault.Remedy(fmt.Sprintf("use one of %v", TaskScenarioNames())))
		}
	}
	f, err := startFleet(ctx, o)
	defer f.close()
	if err != nil {
		return nil, err
	}
	var results []TaskResult
	for _, s := range taskScenarios() {
		if len(o.Scenarios) > 0 && !slices.Contains(o.Scenarios, s.name) {
			continue
		}
		if err := f.deploy(ctx, s.name); err != nil {
			return results, fmt.Errorf("%s: %w", s.name, err)
		}
		figures, err := s.measure(ctx, f, o)
		if err != nil {
			return results, fmt.Errorf("%s: %w", s.name, err)
		}
		result := TaskResult{Scenario: s.name, Figures: figures}
		results = append(results, result)
		if o.Progress == nil {
			continue
		}
		if err := o.Progress(result); err != nil {
			return results, err
		}
	}
	return results, nil
}

// deploy gives a scenario a tenant of its own, without limits and with every pipeline.
func (f *fleet) deploy(ctx context.Context, tenant string) error {
	if _, err := f.client.Tenants().CreateTenant(ctx, &servov1.CreateTenantRequest{Name: tenant}); err != nil {
		return err
	}
	unlimited := new(int32(-1))
	_, err := f.client.Tenants().SetQuotas(ctx, &servov1.SetQuotasRequest{Tenant: tenant, Quotas: &servov1.Quotas{
		MaxConcurrentTasks: unlimited, MaxQueuedTasks: unlimited, MaxConcurrentRuns: unlimited,
	}})
	if err != nil {
		return err
	}
	manifest, err := asset.Parse([]byte(fleetManifest()), "servo.yaml")
	if err != nil {
		return err
	}
	text, err := canon.Marshal(manifest)
	if err != nil {
		return err
	}
	body := &structpb.Struct{}
	if err := protojson.Unmarshal(text, body); err != nil {
		return err
	}
	_, err = f.client.Deployments().Deploy(ctx, &servov1.DeployRequest{Tenant: tenant, Manifest: body})
	return err
}

// trigger makes n runs of a pipeline, many at a time.
func (f *fleet) trigger(ctx context.Context, tenant, pipeline string, n int) error {
	const callers = 64
	group, ctx := errgroup.WithContext(ctx)
	for caller := range callers {
		group.Go(func() error {
			for i := caller; i < n; i += callers {
				if _, err := f.client.Runs().TriggerRun(ctx, &servov1.TriggerRunRequest{Tenant: tenant, Pipeline: pipeline}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// drained waits until every run has ended.
func (f *fleet) drained(ctx context.Context, worker *process) error {
	for {
		var open int
		if err := f.admin.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM servo.runs WHERE finished_at IS NULL LIMIT 1) AS r`).Scan(&open); err != nil {
			return err
		}
		if open == 0 {
			return nil
		}
		for _, p := range []*process{f.server, worker} {
			if err := p.alive(); err != nil {
				return err
			}
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
