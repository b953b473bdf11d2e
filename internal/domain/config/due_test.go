package config_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/schedule"
)

var noon = time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)

// journal plays a config by its events and keeps its ledger, as the engine does, without a
// database.
type journal struct {
	config.Config

	schedule *schedule.Schedule
	events   []event.Event
	fired    []config.Slot
	ranges   []config.Range
	decided  time.Time
}

func (j *journal) record(t require.TestingT, at time.Time, body event.Body) {
	e := event.Event{Tenant: j.Tenant, Subject: uuid.UUID{1}, Version: j.Version + 1, At: at, Body: body}
	next, err := j.Evolve(e)
	require.NoError(t, err)
	j.Config, j.events = next, append(j.events, e)
	j.schedule, err = j.Spec.Schedule()
	require.NoError(t, err)
}

func newJournal(t require.TestingT, spec config.Spec) *journal {
	j := &journal{decided: noon}
	j.record(t, noon, config.Created{Name: "c", Spec: spec.Filled(noon)})
	return j
}

// look decides what is due, and fires all that may fire.
func (j *journal) look(now time.Time) config.Decision {
	d := j.Due(j.schedule, j.decided, now)
	j.ranges = append(j.ranges, d.Skipped...)
	for _, at := range d.Fire {
		j.fired = append(j.fired, config.Slot{At: at, Run: id.Of[id.Run](uuid.New())})
	}
	j.decided = d.Until
	if !j.MovedTo.After(j.decided) {
		j.MovedTo = time.Time{}
	}
	return d
}

func specs() *rapid.Generator[config.Spec] {
	return rapid.Custom(func(t *rapid.T) config.Spec {
		return config.Spec{
			Pipeline: "p",
			Trigger: rapid.SampledFrom([]config.Trigger{
				{Cron: "* * * * *"},
				{Cron: "*/7 * * * *"},
				{Cron: "30 2 * * *"},
				{Cron: "15 */2 * * *"},
				{Template: "hourly"},
				{Interval: asset.Duration(11 * time.Minute)},
				{Cron: "@every 13m"},
				{Cron: "*/20 * * * * *"},
			}).Draw(t, "trigger"),
			Timezone: rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "Australia/Lord_Howe"}).Draw(t, "zone"),
			Jitter:   asset.Duration(time.Duration(rapid.IntRange(0, 20).Draw(t, "jitter")) * time.Minute),
			Catchup: rapid.SampledFrom([]config.Catchup{
				{},
				{Policy: config.CatchupNone},
				{Policy: config.CatchupAll, MaxSlots: 1},
				{Policy: config.CatchupAll, MaxSlots: 5},
				{Policy: config.CatchupAll, MaxSlots: 50, Window: asset.Duration(time.Hour)},
				{Window: asset.Duration(10 * time.Minute)},
			}).Draw(t, "catchup"),
		}
	})
}

// TestDue: however far apart the looks are, each slot is decided once, in its order, and no more
// of them fire than the policy allows. The clocks change in these days.
func TestDue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := specs().Draw(t, "spec")
		j := newJournal(t, spec)
		now := noon
		for range rapid.IntRange(1, 25).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 5*3600).Draw(t, "pause")) * time.Second)
			before := j.decided
			d := j.look(now)
			most := 1
			if j.Spec.Catchup.Policy == config.CatchupAll {
				most = j.Spec.Catchup.MaxSlots
			}
			require.LessOrEqual(t, len(d.Fire), max(most, 1))
			for i, at := range d.Fire {
				require.True(t, at.After(before))
				require.False(t, at.After(now), "never before its time")
				require.True(t, i == 0 || at.After(d.Fire[i-1]))
				if window := j.Spec.Catchup.Window.Std(); window > 0 && j.MovedTo.IsZero() {
					require.LessOrEqual(t, now.Sub(at), window+5*time.Hour)
				}
			}
			again := j.Due(j.schedule, j.decided, now)
			require.Empty(t, again.Fire, "a second look finds nothing")
			require.Empty(t, again.Skipped)
			if rapid.IntRange(0, 5).Draw(t, "move") == 0 {
				j.record(t, now, config.Moved{To: now.Add(time.Duration(rapid.IntRange(1, 7200).Draw(t, "ahead")) * time.Second)})
			}
		}
		holes, err := config.Holes(j.events, j.fired, j.ranges, j.decided)
		require.NoError(t, err)
		require.Empty(t, holes)
	})
}

// TestHoles: whatever is deleted from a ledger without holes, duplicated or added to it is found.
func TestHoles(t *testing.T) {
	t.Parallel()
	full := func(t require.TestingT) *journal {
		j := newJournal(t, config.Spec{Pipeline: "p", Trigger: config.Trigger{Cron: "*/10 * * * *"}, Catchup: config.Catchup{Policy: config.CatchupAll, MaxSlots: 2}})
		for hour := range 6 {
			j.look(noon.Add(time.Duration(hour+1) * time.Hour))
		}
		return j
	}
	problems := func(t *testing.T, j *journal) (found []string) {
		t.Helper()
		holes, err := config.Holes(j.events, j.fired, j.ranges, j.decided)
		require.NoError(t, err)
		for _, h := range holes {
			found = append(found, h.Problem)
		}
		return found
	}
	require.Empty(t, problems(t, full(t)))
	for name, c := range map[string]struct {
		spoil func(j *journal)
		want  string
	}{
		"a slot that fired is missing":   {func(j *journal) { j.fired = j.fired[1:] }, config.Undecided},
		"the last slot is missing":       {func(j *journal) { j.fired = j.fired[:len(j.fired)-1] }, config.Undecided},
		"a range is missing":             {func(j *journal) { j.ranges = j.ranges[1:] }, config.Undecided},
		"a slot fired twice":             {func(j *journal) { j.fired = append(j.fired, j.fired[0]) }, config.DecidedTwice},
		"a slot fired inside of a range": {func(j *journal) { j.fired = append(j.fired, config.Slot{At: j.ranges[0].To}) }, config.DecidedTwice},
		"something fired that is no slot": {func(j *journal) {
			j.fired = append(j.fired, config.Slot{At: j.fired[0].At.Add(time.Minute)})
		}, config.NoSlot},
		"a range counts too few":   {func(j *journal) { j.ranges[0].Slots-- }, config.Miscounted},
		"a range counts too many":  {func(j *journal) { j.ranges[0].Slots++ }, config.Miscounted},
		"a range is cut off early": {func(j *journal) { j.ranges[0].To = j.ranges[0].From }, config.Miscounted},
		"an outcome after the end": {func(j *journal) { j.fired = append(j.fired, config.Slot{At: j.decided.Add(time.Hour)}) }, config.NoSlot},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := full(t)
			c.spoil(j)
			require.Contains(t, problems(t, j), c.want)
		})
	}

	t.Run("an edit begins another chapter, and one that leaves the schedule does not", func(t *testing.T) {
		t.Parallel()
		j := full(t)
		edited := j.Spec
		edited.Priority = 9
		j.record(t, j.decided.Add(90*time.Second), config.Changed{Spec: edited})
		j.look(noon.Add(7 * time.Hour))
		require.Empty(t, problems(t, j))
		edited.Trigger = config.Trigger{Cron: "*/3 * * * *"}
		at := j.decided.Add(15 * time.Minute)
		gap, some := j.Gap(j.schedule, j.decided, at, config.SkippedEdited, "")
		require.True(t, some)
		j.ranges, j.decided = append(j.ranges, gap), at
		j.record(t, at, config.Changed{Spec: edited})
		j.look(noon.Add(8 * time.Hour))
		require.Empty(t, problems(t, j))
		j.ranges = j.ranges[:len(j.ranges)-1]
		require.Contains(t, problems(t, j), config.Undecided)
	})
}
