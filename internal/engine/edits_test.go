package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

const (
	editedConfigs = 1000
	editors       = 6
	editsInRound  = 40 // of each editor
	editedPeriod  = 10 * time.Second
)

// crowd is servers that fire and people who change configs at the same time, each with a pool of
// connections of its own.
type crowd struct {
	*clockwork

	servers []*engine.Engine
	wake    []chan struct{} // one for each server: the clock has moved
	edited  chan struct{}   // a change was made or refused

	mu   sync.Mutex
	keys map[string]store.ConfigKey // the configs that have the names now, or had them last
	all  []store.ConfigKey          // and every one that there was
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{clockwork: newClockwork(t), edited: make(chan struct{}, editors), keys: map[string]store.ConfigKey{}}
	for i := range 5 {
		db, err := store.Open(t.Context(), store.Options{URL: c.db.URL, MaxConns: 3})
		require.NoError(t, err)
		t.Cleanup(db.Close)
		e := engine.New(db, engine.Config{Quotas: tenant.NoLimits(), Server: fmt.Sprintf("server-%d", i+1)}, nil)
		t.Cleanup(e.Stop)
		c.servers, c.wake = append(c.servers, e), append(c.wake, make(chan struct{}, 1))
	}
	return c
}

// turn moves the clock while others read it.
func (c *crowd) turn(t *testing.T, to time.Time) {
	t.Helper()
	c.now = to
	c.db.Exec(t, `UPDATE servo.test_clock SET now = '`+to.Format(time.RFC3339Nano)+`'`)
	for _, wake := range c.wake {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// spec is a config that is due at the same second as all others, or nearly.
func (c *crowd) spec(r *rand.Rand) config.Spec {
	anchor := midnight
	triggers := []config.Trigger{
		{Cron: "*/10 * * * * *"}, {Cron: "*/5 * * * * *"}, {Interval: asset.Duration(editedPeriod), Anchor: &anchor}, {Cron: "5/10 * * * * *"},
	}
	spec := config.Spec{
		Pipeline: "single", Trigger: triggers[r.IntN(len(triggers))], Priority: int16(1 + r.IntN(10)), //nolint:gosec // 1 to 10
		Overlap: []config.Overlap{config.OverlapAllow, config.OverlapAllow, config.OverlapSkip, config.OverlapBufferOne}[r.IntN(4)],
		Catchup: []config.Catchup{{}, {Policy: config.CatchupAll, MaxSlots: 3}, {Policy: config.CatchupNone}}[r.IntN(3)],
	}
	if r.IntN(4) == 0 {
		spec.Jitter = asset.Duration(2 * time.Second)
	}
	return spec
}

// save creates or changes configs and remembers which are there.
func (c *crowd) save(ctx context.Context, e *engine.Engine, configs []engine.SaveConfig) error {
	saved, err := e.SaveConfigs(ctx, engine.SaveConfigs{Tenant: c.tenant, Configs: configs, Meta: engineMeta})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range saved {
		if s.Before == nil {
			c.keys[s.After.Name] = s.After.Key()
			c.all = append(c.all, s.After.Key())
		}
	}
	return err
}

// edit does one thing to one config, or changes a few at once. It may be refused: another was
// faster, or the config is gone.
func (c *crowd) edit(ctx context.Context, e *engine.Engine, r *rand.Rand, now time.Time) error {
	name := fmt.Sprintf("c%d", r.IntN(editedConfigs))
	c.mu.Lock()
	key := c.keys[name]
	c.mu.Unlock()
	change := engine.ChangeConfig{Tenant: c.tenant, Config: key.Config, Reason: "a change", Meta: engineMeta}
	var err error
	switch r.IntN(8) {
	case 0:
		_, err = e.PauseConfig(ctx, change)
	case 1:
		_, err = e.ResumeConfig(ctx, change)
	case 2:
		_, err = e.MoveSlot(ctx, change, now.Add(time.Duration(r.IntN(4000))*time.Millisecond))
	case 3:
		_, err = e.DeleteConfig(ctx, change)
	case 4: // gone and there again at once
		if _, err = e.DeleteConfig(ctx, change); err == nil {
			err = c.save(ctx, e, []engine.SaveConfig{{Name: name, Spec: c.spec(r)}})
		}
	default: // changes, and creates again what was deleted
		var configs []engine.SaveConfig
		first, on := r.IntN(editedConfigs), r.IntN(8) > 0
		for i := range 1 + r.IntN(25) {
			configs = append(configs, engine.SaveConfig{Name: fmt.Sprintf("c%d", (first+i)%editedConfigs), Spec: c.spec(r), Enabled: &on})
		}
		err = c.save(ctx, e, configs)
	}
	if refusal := (*fault.Fault)(nil); errors.As(err, &refusal) && refusal.Code != fault.Internal {
		return nil
	}
	return err
}

// round runs editors and schedulers in the seconds around an instant at which all configs are due.
func (c *crowd) round(t *testing.T, seed uint64, due time.Time) {
	t.Helper()
	const window = 4 * time.Second
	begin := due.Add(-window / 2)
	c.turn(t, begin)
	firing, ctx := errgroup.WithContext(t.Context())
	over := make(chan struct{})
	for i, e := range c.servers {
		firing.Go(func() error {
			r := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // a test
			for {
				select {
				case <-c.wake[i]:
				case <-over:
					return nil
				}
				for more := true; more; {
					fired, err := e.FireDue(ctx, 10+r.IntN(200))
					if err != nil {
						return err
					}
					more = fired.Configs > 0
				}
			}
		})
	}
	editing, busy := errgroup.WithContext(t.Context())
	for i := range editors {
		editing.Go(func() error {
			r := rand.New(rand.NewPCG(seed, uint64(100+i))) //nolint:gosec // a test
			for range editsInRound {
				if err := c.edit(busy, c.servers[i%len(c.servers)], r, due); err != nil {
					return err
				}
				c.edited <- struct{}{}
			}
			return nil
		})
	}
	for n := 1; n <= editors*editsInRound && busy.Err() == nil; n++ { // the clock advances with the edits
		select {
		case <-c.edited:
		case <-busy.Done():
		}
		if n%3 == 0 {
			c.turn(t, begin.Add(window*time.Duration(n)/(editors*editsInRound)))
		}
	}
	require.NoError(t, editing.Wait())
	close(over)
	require.NoError(t, firing.Wait())
	for left := true; left; {
		left = c.fire(t).Configs > 0
	}
}

// requireInOrder requires that each config's next slot follows from its schedule and the ledger.
func (c *crowd) requireInOrder(t *testing.T) {
	t.Helper()
	var after id.Config
	for {
		page, err := c.db.ListConfigs(t.Context(), c.tenant, store.ConfigFilter{}, after, 500)
		require.NoError(t, err)
		if len(page) == 0 {
			return
		}
		for _, found := range page {
			after = found.ID
			sched, err := found.Spec.Schedule()
			require.NoError(t, err)
			next, delay := found.MovedTo, time.Duration(0)
			if next.IsZero() {
				next, _ = sched.Next(found.DecidedUntil)
				delay = found.Delay()
			}
			require.Equal(t, next, found.NextSlot, "%s: the first slot after %s", found.Name, found.DecidedUntil)
			require.True(t, next.After(found.DecidedUntil))
			if found.Fires() {
				require.Equal(t, next.Add(delay), found.DueAt, found.Name)
				require.True(t, found.DueAt.After(c.now), "%s: nothing that is due is left", found.Name)
			} else {
				require.Zero(t, found.DueAt, found.Name)
			}
		}
	}
}

// everyConfig reads all configs that there were, also those that are gone.
func (c *crowd) everyConfig(t *testing.T) (found []store.ConfigState) {
	t.Helper()
	require.NoError(t, c.db.Engine(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		found, err = tx.LockConfigs(ctx, c.all)
		return err
	}))
	require.Len(t, found, len(c.all))
	return found
}

// TestEditsAroundTheDueSecond: a thousand configs are changed, paused, resumed, moved, deleted and
// created again in the very seconds in which they are due, while five servers fire them.
func TestEditsAroundTheDueSecond(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	configs := make([]engine.SaveConfig, editedConfigs)
	for i := range configs {
		configs[i] = engine.SaveConfig{Name: fmt.Sprintf("c%d", i), Spec: c.spec(r)}
	}
	require.NoError(t, c.save(t.Context(), c.Engine, configs))
	for round := range uint64(3) {
		c.round(t, round, midnight.Add(time.Duration(round+1)*editedPeriod))
		c.requireInOrder(t)
	}

	require.Greater(t, c.db.Count(t, `SELECT count(*) FROM servo.slots`), editedConfigs)
	require.Zero(t, c.db.Count(t, `SELECT count(*) FROM servo.slots s LEFT JOIN servo.runs r
		ON r.tenant_id = s.tenant_id AND r.id = s.run_id AND r.config_id = s.config_id AND r.slot_at = s.slot_at WHERE r.id IS NULL`), "each slot that fired has its run")
	require.Equal(t, c.db.Count(t, `SELECT count(*) FROM servo.slots`), c.db.Count(t, `SELECT count(*) FROM servo.runs`), "and no run is without its slot")
	deleted := `FROM servo.entity_events e JOIN servo.runs r ON r.tenant_id = e.tenant_id AND r.config_id = e.subject_id WHERE e.type = 'config.deleted'`
	require.Positive(t, c.db.Count(t, `SELECT count(*) `+deleted))
	require.Zero(t, c.db.Count(t, `SELECT count(*) `+deleted+` AND (r.created_at > e.recorded_at OR r.slot_at > e.recorded_at)`), "nothing fires after its config was deleted")
	for _, found := range c.everyConfig(t) {
		c.requireNoHoles(t, found.Key(), found.DecidedUntil)
	}
	verifytest.Clean(t, c.db)
	t.Logf("%d configs, %d slots fired, %d ranges did not", len(c.all), c.db.Count(t, `SELECT count(*) FROM servo.slots`), c.db.Count(t, `SELECT count(*) FROM servo.slot_ranges`))
}
