package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// requireNoHoles holds the ledger of a config, deleted or not, against its history.
func (w *clockwork) requireNoHoles(t testing.TB, key store.ConfigKey, until time.Time) {
	t.Helper()
	events, err := w.db.ConfigEvents(t.Context(), key, 0, 100_000)
	require.NoError(t, err)
	entries, err := w.db.ListSlots(t.Context(), key, time.Time{}, until.AddDate(1, 0, 0), 1_000_000)
	require.NoError(t, err)
	var (
		fired  []config.Slot
		ranges []config.Range
	)
	for _, e := range entries {
		if e.Outcome == config.Fired {
			fired = append(fired, config.Slot{At: e.From, Run: *e.Run})
		} else {
			ranges = append(ranges, e.Range)
		}
	}
	holes, err := config.Holes(events, fired, ranges, until)
	require.NoError(t, err)
	require.Empty(t, holes, "config %s", key.Config)
}

// meddler does what people and machines do to configs in the course of days.
type meddler struct {
	*clockwork

	rand    *rand.Rand
	engines []*engine.Engine
	keys    []store.ConfigKey
}

var meddlerTriggers = []config.Trigger{
	{Cron: "* * * * *"}, {Cron: "*/7 * * * *"}, {Cron: "30 2 * * *"}, {Cron: "0 */3 * * *"}, {Template: "hourly"}, {Cron: "@every 11m"}, {Manual: true},
}

var meddlerZones = []string{"UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago"}

func (m *meddler) spec() config.Spec {
	spec := config.Spec{
		Pipeline: "single", Trigger: meddlerTriggers[m.rand.IntN(len(meddlerTriggers))], Timezone: meddlerZones[m.rand.IntN(len(meddlerZones))],
		Overlap: []config.Overlap{config.OverlapSkip, config.OverlapAllow, config.OverlapBufferOne, config.OverlapBufferAll}[m.rand.IntN(4)],
		Catchup: []config.Catchup{{}, {Policy: config.CatchupNone}, {Policy: config.CatchupAll, MaxSlots: 3}, {Policy: config.CatchupAll, MaxSlots: 5, Window: minutes(30)}}[m.rand.IntN(4)],
	}
	if m.rand.IntN(3) == 0 {
		spec.Jitter = minutes(1 + m.rand.IntN(20))
	}
	return spec
}

// meddle does one thing to one config. That it is refused, because another was faster or the
// config is gone, is as good.
func (m *meddler) meddle(ctx context.Context, n int) error {
	key := m.keys[n%len(m.keys)]
	e := m.engines[m.rand.IntN(len(m.engines))]
	change := engine.ChangeConfig{Tenant: m.tenant, Config: key.Config, Reason: "meddling", Meta: engineMeta}
	var err error
	switch m.rand.IntN(7) {
	case 0:
		_, err = e.PauseConfig(ctx, change)
	case 1, 2:
		_, err = e.ResumeConfig(ctx, change)
	case 3:
		_, err = e.MoveSlot(ctx, change, m.now.Add(time.Duration(1+m.rand.IntN(180))*time.Minute))
	case 4:
		on := m.rand.IntN(2) == 0
		_, err = e.SaveConfigs(ctx, engine.SaveConfigs{
			Tenant: m.tenant, Configs: []engine.SaveConfig{{Name: fmt.Sprintf("c%d", n%len(m.keys)), Spec: m.spec(), Enabled: &on, Mode: engine.SaveOld}}, Meta: engineMeta,
		})
	case 5:
		_, err = e.SaveConfigs(ctx, engine.SaveConfigs{
			Tenant: m.tenant, Configs: []engine.SaveConfig{{Name: fmt.Sprintf("c%d", n%len(m.keys)), Spec: m.spec(), Mode: engine.SaveOld}}, Meta: engineMeta,
		})
	case 6:
		if n%11 == 0 {
			_, err = e.DeleteConfig(ctx, change)
		}
	}
	return err
}

// fire lets every server look at once. Some of them fall over in the middle.
func (m *meddler) fire(t *testing.T) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	for i, e := range m.engines {
		most := 1 + m.rand.IntN(10)
		crash := m.rand.IntN(4) == 0
		after := time.Duration(m.rand.IntN(4000)) * time.Microsecond
		group.Go(func() error {
			if crash && i > 0 {
				ctx, cancel := context.WithTimeout(ctx, after)
				defer cancel()
				_, _ = e.FireDue(ctx, most)
				return nil
			}
			for {
				fired, err := e.FireDue(ctx, most)
				if err != nil || fired.Configs == 0 {
					return err
				}
			}
		})
	}
	require.NoError(t, group.Wait())
}

// TestLedger drives five servers over days in which configs are edited, paused, moved, disabled
// and deleted, servers fall over, the clock steps, and clocks change to summer time and back.
// Then every slot that the configs should have had must be in the ledger once.
func TestLedger(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newClockwork(t)
			m := &meddler{clockwork: w, rand: rand.New(rand.NewPCG(seed, 7)), engines: []*engine.Engine{w.Engine}} //nolint:gosec // a test
			for i := range 4 {
				e := engine.New(w.db.Store, engine.Config{Quotas: tenant.NoLimits(), QueueWithoutWorkers: 5000, Server: fmt.Sprintf("server-%d", i+2)}, nil)
				t.Cleanup(e.Stop)
				m.engines = append(m.engines, e)
			}
			for i := range 24 {
				m.keys = append(m.keys, w.save(t, fmt.Sprintf("c%d", i), m.spec()).Key())
			}
			for step := range 45 {
				m.forward(t, time.Duration(m.rand.IntN(5400))*time.Second)
				if m.rand.IntN(10) == 0 {
					m.forward(t, -time.Duration(m.rand.IntN(1800))*time.Second) // the database's clock was set back
				}
				for range 3 {
					_ = m.meddle(t.Context(), m.rand.IntN(1000)) // refused because another was faster, or the config is gone
				}
				m.fire(t)
				if step%5 == 0 {
					w.finish(t, engine.Complete{})
				}
			}
			for _, key := range m.keys {
				micros := w.db.Count(t, `SELECT (extract(epoch FROM decided_until) * 1000000)::bigint FROM servo.configs WHERE id = $1`, key.Config.UUID)
				w.requireNoHoles(t, key, time.UnixMicro(int64(micros)).UTC())
			}
			require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.slots s LEFT JOIN servo.runs r ON r.tenant_id = s.tenant_id AND r.id = s.run_id AND r.config_id = s.config_id AND r.slot_at = s.slot_at WHERE r.id IS NULL`))
			require.Equal(t, w.db.Count(t, `SELECT count(*) FROM servo.slots`), w.db.Count(t, `SELECT count(*) FROM servo.runs WHERE slot_at IS NOT NULL`))
		})
	}
}
