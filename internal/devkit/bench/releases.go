package bench

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/engine"
)

// ReleasesOptions select the sizes.
type ReleasesOptions struct {
	Database string // a PostgreSQL to use; "" starts a private one with fsync on
	Tenants  int    // that follow one channel
	Configs  int    // of each of them
	Due      int    // configs that fire in one round
	Firing   int    // tenants of these, in each of the two groups
	Rounds   int    // for each group, by turns
	Logger   *slog.Logger
	// Progress is called with each figure.
	Progress func(Figure) error
}

// RunReleases measures releases that many tenants follow: the check of all their configs, the rows that a wave
// writes, the storage of manifests, and how fast their configs fire beside those of tenants with deployments of
// their own.
func RunReleases(ctx context.Context, o ReleasesOptions) ([]Figure, error) {
	admin, postmaster, stop, err := cluster(ctx, o.Database, o.Logger)
	if err != nil {
		return nil, err
	}
	defer stop()
	b := &releaseBench{bencher: &bencher{options: Options{Logger: o.Logger}, postmaster: postmaster}, options: o}
	closeAll, err := b.open(ctx, admin)
	defer closeAll()
	if err != nil {
		return nil, err
	}
	for _, measure := range []func(context.Context) error{b.prepare, b.check, b.roll, b.fireByTurns, b.storage} {
		if err := measure(ctx); err != nil {
			return b.figures, err
		}
	}
	return b.figures, nil
}

type releaseBench struct {
	*bencher

	options   ReleasesOptions
	followers []id.Tenant
	owners    []id.Tenant // with deployments of their own
	first     int64       // bytes of manifests before the first tenant followed
	figures   []Figure
}

func (b *releaseBench) add(name string, value float64, unit string) error {
	f := Figure{Name: name, Value: value, Unit: unit}
	b.figures = append(b.figures, f)
	if b.options.Progress == nil {
		return nil
	}
	return b.options.Progress(f)
}

// prepare creates two releases, a channel, the tenants that follow it, and their configs.
func (b *releaseBench) prepare(ctx context.Context) error {
	for name, assets := range map[string]int{"v1": 1, "v2": 2} {
		manifest, err := asset.Parse([]byte(chain(assets)), "servo.yaml")
		if err != nil {
			return err
		}
		if _, _, err := b.engine.CreateRelease(ctx, engine.CreateRelease{Name: name, Manifest: manifest, Meta: benchMeta}); err != nil {
			return err
		}
	}
	var err error
	if b.first, err = b.manifestBytes(ctx); err != nil {
		return err
	}
	if _, err := b.engine.CreateReleaseChannel(ctx, "stable", "v1", true, benchMeta); err != nil {
		return err
	}
	started := time.Now()
	if b.followers, err = b.many(ctx, "follower", b.options.Tenants, b.quietConfigs); err != nil {
		return err
	}
	if err := b.add("tenants created and following", float64(b.options.Tenants)/time.Since(started).Seconds(), "tenants/s"); err != nil {
		return err
	}
	if _, err := b.engine.SetDefaultChannel(ctx, "stable", false, benchMeta); err != nil {
		return err
	}
	manifest, err := asset.Parse([]byte(chain(1)), "servo.yaml")
	if err != nil {
		return err
	}
	b.owners, err = b.many(ctx, "owner", b.options.Firing, func(ctx context.Context, tenant id.Tenant) error {
		_, err := b.engine.Deploy(ctx, tenant, "default", manifest, benchMeta)
		return err
	})
	return err
}

// many creates tenants, some at a time.
func (b *releaseBench) many(ctx context.Context, name string, n int, each func(context.Context, id.Tenant) error) ([]id.Tenant, error) {
	created := make([]id.Tenant, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(12)
	for i := range n {
		group.Go(func() (err error) {
			if created[i], err = b.engine.CreateTenant(ctx, fmt.Sprintf("%s-%d", name, i), benchMeta); err != nil {
				return err
			}
			return each(ctx, created[i])
		})
	}
	return created, group.Wait()
}

// quietConfigs gives a tenant configs that do not fire.
func (b *releaseBench) quietConfigs(ctx context.Context, tenant id.Tenant) error {
	save := make([]engine.SaveConfig, b.options.Configs)
	for i := range save {
		save[i] = engine.SaveConfig{Name: fmt.Sprintf("quiet-%d", i), Spec: config.Spec{Pipeline: "bench", Trigger: config.Trigger{Cron: "0 2 29 2 *"}}}
	}
	_, err := b.engine.SaveConfigs(ctx, engine.SaveConfigs{Tenant: tenant, Configs: save, Meta: benchMeta})
	return err
}

// check measures the check of a release against all configs.
func (b *releaseBench) check(ctx context.Context) error {
	var took []time.Duration
	before, err := b.read(ctx)
	if err != nil {
		return err
	}
	const looks = 3
	for range looks {
		started := time.Now()
		impact, err := b.engine.CheckRelease(ctx, "v2", "stable")
		if err != nil {
			return err
		}
		if impact.Configs != b.options.Tenants*b.options.Configs {
			return fmt.Errorf("%d configs were checked, want %d", impact.Configs, b.options.Tenants*b.options.Configs)
		}
		took = append(took, time.Since(started))
	}
	after, err := b.read(ctx)
	if err != nil {
		return err
	}
	cost := before.until(after, 0)
	slices.Sort(took)
	if err := b.add(fmt.Sprintf("check of %d configs, median", b.options.Tenants*b.options.Configs), took[looks/2].Seconds(), "s"); err != nil {
		return err
	}
	return b.add("check, processor time of PostgreSQL and Go", (cost.PostgresCPU+cost.GoCPU).Seconds()/looks, "s")
}

// roll counts the rows that a rollout writes, and leaves it in the middle.
func (b *releaseBench) roll(ctx context.Context) error {
	rows := func(do func() error) (float64, error) {
		if err := b.settle(ctx); err != nil {
			return 0, err
		}
		before, err := b.rowsOfReleases(ctx)
		if err != nil {
			return 0, err
		}
		if err := do(); err != nil {
			return 0, err
		}
		if err := b.settle(ctx); err != nil {
			return 0, err
		}
		after, err := b.rowsOfReleases(ctx)
		return float64(after - before), err
	}
	written, err := rows(func() error {
		_, err := b.engine.Roll(ctx, engine.RollChannel{Channel: "stable", Release: "v2", Soak: time.Hour, AllowBroken: true, Meta: benchMeta})
		return err
	})
	if err == nil {
		err = b.add("start of a rollout", written, "rows written")
	}
	for wave := 2; wave <= 3 && err == nil; wave++ {
		written, err = rows(func() error {
			_, err := b.engine.AdvanceRollout(ctx, engine.ChangeRollout{Channel: "stable", Meta: benchMeta})
			return err
		})
		if err == nil {
			err = b.add(fmt.Sprintf("wave %d", wave), written, "rows written")
		}
	}
	return err
}

// rowsOfReleases counts the rows that were written to the tables of tenants, workspaces, releases and events.
func (b *releaseBench) rowsOfReleases(ctx context.Context) (n int64, err error) {
	err = b.admin.QueryRow(ctx, `
		SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint FROM pg_stat_all_tables
		WHERE  schemaname = 'servo' AND relname IN ('tenants', 'workspaces', 'configs', 'releases', 'release_channels', 'release_totals', 'deployments', 'manifests', 'platform_events', 'entity_events')`).Scan(&n)
	return n, err
}

// fireByTurns fires due configs of followers and of tenants with deployments of their own, by turns. The
// rollout is in its third wave: half of the followers use the new release.
func (b *releaseBench) fireByTurns(ctx context.Context) error {
	groups := []struct {
		name    string
		tenants []id.Tenant
		elapsed []float64
		cpu     []float64
	}{{name: "own deployments", tenants: b.owners}, {name: "followers", tenants: b.followers[:b.options.Firing]}}
	if err := b.warmGroups(ctx); err != nil {
		return err
	}
	for round := range b.options.Rounds {
		for i := range groups {
			g := &groups[(i+round)%2] // each is first in turn
			if err := b.saveDue(ctx, g.tenants, fmt.Sprintf("round-%d", round), b.options.Due); err != nil {
				return err
			}
			if _, err := b.admin.Exec(ctx, `ANALYZE servo.configs, servo.workspaces`); err != nil {
				return err
			}
			before, err := b.read(ctx)
			if err != nil {
				return err
			}
			if _, _, err := b.fire(ctx, b.options.Due, 1, engine.DefaultFiring); err != nil {
				return err
			}
			after, err := b.read(ctx)
			if err != nil {
				return err
			}
			cost := before.until(after, after.at.Sub(before.at))
			g.elapsed = append(g.elapsed, float64(b.options.Due)/cost.Elapsed.Seconds())
			g.cpu = append(g.cpu, float64((cost.PostgresCPU+cost.GoCPU).Microseconds())/float64(b.options.Due))
		}
	}
	for _, g := range groups {
		if err := b.add(g.name+", median of rounds", median(g.elapsed), "slots/s"); err != nil {
			return err
		}
		if err := b.add(g.name+", processor time", median(g.cpu), "µs per slot"); err != nil {
			return err
		}
	}
	if err := b.add("followers against own deployments, speed", 100*median(groups[1].elapsed)/median(groups[0].elapsed), "%"); err != nil {
		return err
	}
	return b.add("followers against own deployments, processor time", 100*median(groups[1].cpu)/median(groups[0].cpu), "%")
}

// warmGroups lets some configs of both groups fire, so that code and statements are known.
func (b *releaseBench) warmGroups(ctx context.Context) error {
	for _, tenants := range [][]id.Tenant{b.owners, b.followers[:b.options.Firing]} {
		if err := b.saveDue(ctx, tenants, "warm", min(b.options.Due, 1000)); err != nil {
			return err
		}
		if _, _, err := b.fire(ctx, min(b.options.Due, 1000), 1, engine.DefaultFiring); err != nil {
			return err
		}
	}
	return nil
}

// saveDue gives tenants new configs, and returns when all of them are due.
func (b *releaseBench) saveDue(ctx context.Context, tenants []id.Tenant, name string, n int) error {
	anchor := time.Now().UTC().Truncate(time.Second).Add(time.Duration(5+n/250) * time.Second)
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i, tenant := range tenants {
		share := n / len(tenants)
		if i < n%len(tenants) {
			share++
		}
		if share == 0 {
			break
		}
		group.Go(func() error {
			save := make([]engine.SaveConfig, share)
			for j := range save {
				save[j] = engine.SaveConfig{Name: fmt.Sprintf("%s-%d", name, j), Spec: config.Spec{
					Pipeline: "bench", Trigger: config.Trigger{Interval: asset.Duration(24 * time.Hour), Anchor: &anchor}, Overlap: config.OverlapAllow,
				}}
			}
			_, err := b.engine.SaveConfigs(within, engine.SaveConfigs{Tenant: tenant, Configs: save, Meta: benchMeta})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return sleep(ctx, time.Until(anchor))
}

// storage compares the manifests before the first tenant with those after all of them.
func (b *releaseBench) storage(ctx context.Context) error {
	last, err := b.manifestBytes(ctx)
	if err != nil {
		return err
	}
	if err := b.add("manifests before the first tenant", float64(b.first), "bytes"); err != nil {
		return err
	}
	return b.add(fmt.Sprintf("manifests with %d tenants", b.options.Tenants+b.options.Firing), float64(last), "bytes")
}

func (b *releaseBench) manifestBytes(ctx context.Context) (n int64, err error) {
	err = b.admin.QueryRow(ctx, `SELECT coalesce(sum(length(chunk)), 0)::bigint FROM servo.manifests`).Scan(&n)
	return n, err
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}
