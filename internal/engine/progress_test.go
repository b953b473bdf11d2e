package engine_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

// begin is when the clock of these tests begins.
func begin() time.Time { return time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC) }

func TestBadProgress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lease := b.many(t, 1, true)[0]
	withProgress := func(change func(*engine.Progress)) func(*testing.T, *bundle) error {
		return func(t *testing.T, b *bundle) error {
			t.Helper()
			p := engine.Progress{Key: lease.TaskKey, Token: lease.Token}
			change(&p)
			answers, err := b.Progress(t.Context(), []engine.Progress{{Key: lease.TaskKey, Token: lease.Token}, p})
			require.Empty(t, answers)
			return err
		}
	}
	refused(t, b, map[string]bad{
		"extracted below":      {fault.InvalidArgument, "records_extracted", withProgress(func(p *engine.Progress) { p.RecordsExtracted = -1 })},
		"transformed below":    {fault.InvalidArgument, "records_transformed", withProgress(func(p *engine.Progress) { p.RecordsTransformed = -1 })},
		"loaded below":         {fault.InvalidArgument, "records_loaded", withProgress(func(p *engine.Progress) { p.RecordsLoaded = -1 })},
		"bytes below":          {fault.InvalidArgument, "bytes", withProgress(func(p *engine.Progress) { p.Bytes = -1 })},
		"eta out of time":      {fault.InvalidArgument, "eta", withProgress(func(p *engine.Progress) { p.ETA = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) })},
		"fraction below":       {fault.InvalidArgument, "fraction", withProgress(func(p *engine.Progress) { p.Fraction = -0.1 })},
		"fraction above":       {fault.InvalidArgument, "fraction", withProgress(func(p *engine.Progress) { p.Fraction = 1.1 })},
		"fraction NaN":         {fault.InvalidArgument, "fraction", withProgress(func(p *engine.Progress) { p.Fraction = float32(math.NaN()) })},
		"fraction infinite":    {fault.InvalidArgument, "fraction", withProgress(func(p *engine.Progress) { p.Fraction = float32(math.Inf(-1)) })},
		"huge phase":           {fault.LimitExceeded, "phase", withProgress(func(p *engine.Progress) { p.Phase = long(101) })},
		"phase with zero byte": {fault.InvalidArgument, "phase", withProgress(func(p *engine.Progress) { p.Phase = zeroByte })},
		"huge stage":           {fault.LimitExceeded, "stage", withProgress(func(p *engine.Progress) { p.Stage = long(101) })},
		"stage not UTF-8":      {fault.InvalidArgument, "stage", withProgress(func(p *engine.Progress) { p.Stage = notUTF8 })},
		"too many": {fault.LimitExceeded, "progress", func(t *testing.T, b *bundle) error {
			t.Helper()
			_, err := b.Progress(t.Context(), make([]engine.Progress, 10_001))
			return err
		}},
	})
	answers, err := b.Progress(t.Context(), []engine.Progress{{}, {Key: lease.TaskKey}, {Key: lease.TaskKey, Token: -1}})
	require.NoError(t, err)
	require.Equal(t, []engine.Pulse{{}, {}, {}}, answers, "unknown leases are not alive")
	answers, err = b.Progress(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, answers)
}

func TestProgress(t *testing.T) {
	t.Parallel()

	t.Run("the latest of a call counts, and each report has its answer", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		lease := b.many(t, 1, true)[0]
		first := engine.Progress{Key: lease.TaskKey, Token: lease.Token}
		first.Stage = "first"
		foreign, second := first, first
		foreign.Key.Tenant = b.otherTenant(t)
		second.Stage, second.Fraction = "second", 0.5
		answers, err := b.Progress(t.Context(), []engine.Progress{first, foreign, second})
		require.NoError(t, err)
		require.Equal(t, []engine.Pulse{{Alive: true}, {}, {Alive: true}}, answers)
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.attempt_progress WHERE stage = 'second' AND fraction = 0.5`))
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.attempt_stages`))
	})

	t.Run("it is a sign of life", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		start := begin()
		b.db.SetClock(t, start)
		key := b.trigger(t, "diamond")
		lease := b.one(t)
		b.db.SetClock(t, start.Add(4*time.Minute))
		_, err := b.Progress(t.Context(), []engine.Progress{{Key: lease.TaskKey, Token: lease.Token}})
		require.NoError(t, err)
		b.db.SetClock(t, start.Add(9*time.Minute))
		_, err = b.Expire(t.Context(), 100)
		require.NoError(t, err)
		b.requireStates(t, key, run.RunRunning, "d/a=RUNNING")
	})
}

func TestLeaseLength(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ asked, first, renewed time.Duration }{
		"as long as the claim has asked for":     {90 * time.Second, 90 * time.Second, 90 * time.Second},
		"by the server's own time if it has not": {0, 5 * time.Minute, 5*time.Minute + 10*time.Second},
	} {
		t.Run("a heartbeat renews a lease "+name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			start := begin()
			b.db.SetClock(t, start)
			key := b.trigger(t, "diamond")
			b.admit(t)
			leases, err := b.Claim(t.Context(), engine.ClaimRequest{Worker: "w", Claim: id.New[id.Claim](id.NewMinter(start)), Pools: []string{"default"}, Max: 1, Lease: c.asked, Start: true})
			require.NoError(t, err)
			require.Len(t, leases, 1)
			require.Equal(t, start.Add(c.first), leases[0].ExpiresAt)
			b.db.SetClock(t, start.Add(time.Minute))
			_, err = b.Heartbeats(t.Context(), []engine.Heartbeat{{Key: leases[0].TaskKey, Token: leases[0].Token}})
			require.NoError(t, err)

			b.db.SetClock(t, start.Add(time.Minute+c.renewed-time.Millisecond))
			_, err = b.Expire(t.Context(), 100)
			require.NoError(t, err)
			b.requireStates(t, key, run.RunRunning, "d/a=RUNNING")
			b.db.SetClock(t, start.Add(time.Minute+c.renewed))
			_, err = b.Expire(t.Context(), 100)
			require.NoError(t, err)
			b.requireStates(t, key, run.RunRunning, "d/a=READY")
		})
	}
}
