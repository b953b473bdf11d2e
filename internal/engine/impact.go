package engine

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/store"
)

// ImpactKind is how a release breaks a config.
type ImpactKind string

// The kinds of impact.
const (
	PipelineMissing    ImpactKind = "PIPELINE_MISSING"
	ParametersRefused  ImpactKind = "PARAMETERS"
	PartitionsChanged  ImpactKind = "PARTITIONS"
	PoolRefused        ImpactKind = "POOL_ACCESS"
	PoolWithoutWorkers ImpactKind = "POOL_WITHOUT_WORKERS"
)

// BrokenConfig is a config that a release would break.
type BrokenConfig struct {
	Tenant    string
	Workspace string
	Config    string
	Pipeline  string
	Kind      ImpactKind
	Message   string
}

// MaxBroken bounds the configs that an impact lists.
const MaxBroken = 1000

// Impact is what a release would change for the configs of a channel.
type Impact struct {
	Configs int // that were checked
	Tenants int // with configs that would break
	Total   int // of these configs
	Broken  []BrokenConfig

	tenants map[id.Tenant]bool
}

func (i Impact) refusal(r RollChannel) error {
	named := make([]string, 0, 3)
	for _, b := range i.Broken[:min(len(i.Broken), 3)] {
		named = append(named, fmt.Sprintf("%s/%s/%s: %s", b.Tenant, b.Workspace, b.Config, b.Message))
	}
	return fault.New(fault.Conflict, fmt.Sprintf("release %s would break %d configs of %d tenants: %s", r.Release, i.Total, i.Tenants, strings.Join(named, "; ")),
		fault.Field("release"), fault.Remedy(fmt.Sprintf("list them with servo releases check %s --channel %s; fix them, or skip their tenants with --allow-broken", r.Release, r.Channel)),
		fault.Value("configs", i.Total), fault.Value("tenants", i.Tenants))
}

// CheckRelease lists the active configs of all workspaces that follow a channel and that a release would
// break: configs that the current release can run, and this one cannot.
func (e *Engine) CheckRelease(ctx context.Context, releaseName, channel string) (Impact, error) {
	next, err := e.store.ReleaseNamed(ctx, releaseName)
	if err != nil {
		return Impact{}, err
	}
	channels, err := e.store.ReleaseChannels(ctx)
	if err != nil {
		return Impact{}, err
	}
	var current *id.Release
	known := false
	for _, c := range channels {
		if c.Name == channel {
			known = true
			if c.Current != (id.Release{}) {
				current = &c.Current
			}
		}
	}
	if !known {
		return Impact{}, fault.New(fault.NotFound, "no channel "+channel, fault.Field("channel"), fault.Remedy("list the channels: servo channels list"))
	}
	after, err := e.newChecker(ctx, next.ID)
	if err != nil {
		return Impact{}, err
	}
	var before *checker
	if current != nil {
		if before, err = e.newChecker(ctx, *current); err != nil {
			return Impact{}, err
		}
		after.comparePartitions(before)
	}
	impact := Impact{tenants: map[id.Tenant]bool{}}
	err = e.store.FollowingConfigs(ctx, channel, func(c store.FollowingConfig) error {
		impact.add(c, before, after)
		return nil
	})
	impact.Tenants = len(impact.tenants)
	return impact, err
}

// add checks one config.
func (i *Impact) add(c store.FollowingConfig, before, after *checker) {
	i.Configs++
	kind, message := after.check(c)
	if kind == "" {
		return
	}
	if before != nil {
		if was, _ := before.check(c); was == kind { // it is broken already
			return
		}
	}
	i.Total++
	i.tenants[c.Tenant] = true
	if len(i.Broken) < MaxBroken {
		i.Broken = append(i.Broken, BrokenConfig{Tenant: c.TenantName, Workspace: c.Workspace, Config: c.Name, Pipeline: c.Spec.Pipeline, Kind: kind, Message: message})
	}
}

// checker checks configs against one manifest. Results are kept by pipeline and parameters: most tenants
// have the same ones.
type checker struct {
	manifest *asset.Manifest
	planner  *plan.Planner
	access   map[string]store.PoolAccess // of pools that do not accept every tenant
	unserved map[string]string           // why no live worker can run an asset
	verdicts map[string]verdict
	pools    map[string][]string // by pipeline
	workers  map[string]string   // by pipeline: why no live worker can run it
	schemes  map[string]string   // by pipeline: which asset has other partitions than before
}

type verdict struct {
	kind    ImpactKind
	message string
}

func (e *Engine) newChecker(ctx context.Context, of id.Release) (*checker, error) {
	manifest, planner, err := e.Code(ctx, store.DeploymentKey{Deployment: id.Of[id.Deployment](of.UUID)})
	if err != nil {
		return nil, err
	}
	warnings, err := e.WorkerWarnings(ctx, manifest)
	if err != nil {
		return nil, err
	}
	c := &checker{manifest: manifest, planner: planner, schemes: map[string]string{}, unserved: map[string]string{}, verdicts: map[string]verdict{}, pools: map[string][]string{}, workers: map[string]string{}}
	for _, w := range warnings {
		for _, key := range w.Assets {
			c.unserved[key] = w.Message
		}
	}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		c.access, err = tx.PoolAccess(ctx, poolNames(manifestPools(manifest)))
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, c.readPipelines(manifest)
}

// readPipelines finds the pools of each pipeline, and whether live workers can run it.
func (c *checker) readPipelines(m *asset.Manifest) error {
	for _, p := range m.Pipelines {
		keys, err := c.planner.Assets(p.Name)
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, key := range keys {
			a, _ := m.Asset(key)
			if _, restricted := c.access[a.Pool]; restricted && !seen[a.Pool] {
				seen[a.Pool] = true
				c.pools[p.Name] = append(c.pools[p.Name], a.Pool)
			}
			if message := c.unserved[key]; message != "" && c.workers[p.Name] == "" {
				c.workers[p.Name] = message
			}
		}
	}
	return nil
}

// comparePartitions finds the pipelines with an asset whose partitions differ from those of the release before:
// the status of its partitions, and slots that cover them, would no longer fit.
func (c *checker) comparePartitions(before *checker) {
	for _, p := range c.manifest.Pipelines {
		keys, err := c.planner.Assets(p.Name)
		if err != nil {
			continue // readPipelines has read them
		}
		for _, key := range keys {
			a, _ := c.manifest.Asset(key)
			was, known := before.manifest.Asset(key)
			if known && !reflect.DeepEqual(a.Partitions, was.Partitions) {
				c.schemes[p.Name] = "asset " + key + " has other partitions"
				break
			}
		}
	}
}

func (c *checker) check(of store.FollowingConfig) (ImpactKind, string) {
	key := of.Spec.Pipeline + "\x00" + string(of.Spec.Parameters)
	found, known := c.verdicts[key]
	if !known {
		found.kind, found.message = c.checkSpec(of)
		c.verdicts[key] = found
	}
	if found.kind != "" {
		return found.kind, found.message
	}
	if message := c.schemes[of.Spec.Pipeline]; message != "" {
		return PartitionsChanged, message
	}
	for _, pool := range c.pools[of.Spec.Pipeline] {
		if access := c.access[pool]; !access.Accepts(of.Tenant) {
			return PoolRefused, fmt.Sprintf("pool %q does not accept tasks of the tenant", pool)
		}
	}
	if message := c.workers[of.Spec.Pipeline]; message != "" {
		return PoolWithoutWorkers, message
	}
	return "", ""
}

func (c *checker) checkSpec(of store.FollowingConfig) (ImpactKind, string) {
	parameters, err := of.Spec.Example()
	if err == nil {
		err = c.planner.Check(plan.Request{Pipeline: of.Spec.Pipeline, Parameters: parameters})
	}
	if err == nil {
		return "", ""
	}
	if f, ok := fault.As(err); ok && f.Field == "pipeline" {
		return PipelineMissing, "pipeline " + of.Spec.Pipeline + " is not in the release"
	} else if ok {
		return ParametersRefused, f.Field + ": " + f.Message
	}
	return ParametersRefused, err.Error()
}
