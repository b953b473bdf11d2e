package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

const listeningText = `
version: 1
assets:
  - {key: p/one, exec: {command: [run]}}
  - {key: s/one, exec: {command: [run]}}
pipelines:
  - {name: plain, select: [s/one]}
  - {name: single, select: [s/one]}
  - {name: priced, select: [p/one], parameters: [{name: region, type: string, default: eu}, {name: day, type: string, default: "1"}]}
`

func listening(pipeline, event string, overlap config.Overlap) config.Spec {
	return config.Spec{Pipeline: pipeline, Trigger: config.Trigger{Event: &config.Event{Name: event}}, Overlap: overlap}
}

func newListening(t testing.TB) *clockwork {
	t.Helper()
	w := newClockwork(t)
	w.deploy(t, listeningText)
	return w
}

func (w *clockwork) event(name, key, parameters string) engine.SendEvent {
	return engine.SendEvent{Tenant: w.tenant, Name: name, Key: key, Parameters: json.RawMessage(parameters), Reason: "as agreed", Meta: engineMeta}
}

func (w *clockwork) send(t testing.TB, name, key, parameters string) engine.SentEvent {
	t.Helper()
	sent, err := w.SendEvent(t.Context(), w.event(name, key, parameters))
	require.NoError(t, err)
	return sent
}

// handle makes the runs of all events that wait, of most configs at a time.
func (w *clockwork) handle(t testing.TB, most int) (transactions int) {
	t.Helper()
	for more := true; more; transactions++ {
		handled, err := w.HandleEvents(t.Context(), most)
		require.NoError(t, err)
		more = handled.More
	}
	return transactions
}

func (w *clockwork) eventOf(t testing.TB, of id.Event) store.EventView {
	t.Helper()
	found, err := w.db.GetEvent(t.Context(), w.tenant, of)
	require.NoError(t, err)
	return found
}

func (w *clockwork) eventsWait(t testing.TB) bool {
	t.Helper()
	due, err := w.db.NextDue(t.Context())
	require.NoError(t, err)
	return due.Events
}

func (w *clockwork) runsOf(t testing.TB, name string) int {
	t.Helper()
	return w.db.Count(t, `SELECT count(*) FROM servo.runs r JOIN servo.configs c ON c.tenant_id = r.tenant_id AND c.id = r.config_id WHERE c.name = $1`, name)
}

func TestEvents(t *testing.T) {
	t.Parallel()

	t.Run("each config that listens gets one run, with the event's parameters over its own", func(t *testing.T) {
		t.Parallel()
		w := newListening(t)
		spec := listening("priced", "prices", config.OverlapSkip)
		spec.Parameters, spec.Priority = json.RawMessage(`{"region": "us", "day": "2"}`), 9
		w.save(t, "priced", spec)
		w.save(t, "plain", listening("single", "orders", config.OverlapSkip))
		paused := w.save(t, "paused", listening("priced", "prices", config.OverlapSkip))
		_, err := w.PauseConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: paused.ID, Meta: engineMeta})
		require.NoError(t, err)

		sent := w.send(t, "prices", "k1", `{"day": "3"}`)
		require.False(t, sent.Duplicate)
		require.EqualValues(t, 1, sent.Listeners)
		require.Equal(t, midnight, sent.ReceivedAt)
		require.Zero(t, w.eventOf(t, sent.ID).DoneAt)
		require.Zero(t, w.runsOf(t, "priced"), "the call itself makes none")
		w.handle(t, 1000)
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.runs`))
		done := w.eventOf(t, sent.ID)
		require.Equal(t, midnight, done.DoneAt)
		require.EqualValues(t, 1, done.Runs)
		require.Empty(t, done.Skipped)
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.runs WHERE parameters = '{"region": "us", "day": "3"}' AND priority = 9
			AND triggered_by = 'event/prices' AND trigger_type = 'event' AND slot_at IS NULL`))
		require.Equal(t, 1, w.handle(t, 1000))
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.runs`), "once")
		verifytest.Clean(t, w.db)
	})

	t.Run("an event without listeners is accepted, and done", func(t *testing.T) {
		t.Parallel()
		w := newListening(t)
		sent := w.send(t, "prices", "k", ``)
		require.Zero(t, sent.Listeners)
		w.handle(t, 1000)
		require.NotZero(t, w.eventOf(t, sent.ID).DoneAt)
		require.False(t, w.eventsWait(t))
	})

	t.Run("the same key is the same event, and with other parameters a conflict", func(t *testing.T) {
		t.Parallel()
		w := newListening(t)
		w.save(t, "priced", listening("priced", "prices", config.OverlapAllow))
		first := w.send(t, "prices", "k", `{"day": "1", "region": "us"}`)
		w.handle(t, 1000)
		w.forward(t, time.Hour)
		again := w.send(t, "prices", "k", `{"region":"us","day":"1"}`)
		require.True(t, again.Duplicate)
		require.Equal(t, first.ID, again.ID)
		require.Equal(t, first.ReceivedAt, again.ReceivedAt)
		require.EqualValues(t, 1, again.Runs)
		_, err := w.SendEvent(t.Context(), w.event("prices", "k", `{"day": "2"}`))
		require.True(t, fault.Is(err, fault.Conflict), "%v", err)
		f, _ := fault.As(err)
		require.Equal(t, "dedupe_key", f.Violation.Field)
		require.Equal(t, first.ID.String(), f.Values["event"])
		require.False(t, w.send(t, "orders", "k", ``).Duplicate, "a key is that of a name")
		w.handle(t, 1000)
		require.Equal(t, 1, w.runsOf(t, "priced"))
	})

	t.Run("a mistake in an event is reported with its field", func(t *testing.T) {
		t.Parallel()
		w := newListening(t)
		w.save(t, "priced", listening("priced", "prices", config.OverlapAllow))
		for field, e := range map[string]engine.SendEvent{
			"name":            w.event("", "k", ``),
			"dedupe_key":      w.event("prices", "", ``),
			"parameters":      w.event("prices", "k", `[1]`),
			"parameters.zone": w.event("prices", "k", `{"zone": "x"}`),
			"parameters.day":  w.event("prices", "k", `{"day": 7}`),
			"workspace":       {Tenant: w.tenant, Workspace: "staging", Name: "prices", Key: "k"},
			"reason":          {Tenant: w.tenant, Name: "prices", Key: "k", Reason: strings.Repeat("x", 1001)},
		} {
			_, err := w.SendEvent(t.Context(), e)
			f, ok := fault.As(err)
			require.True(t, ok, "%s: %v", field, err)
			require.Equal(t, field, f.Violation.Field, "%v", err)
			require.NotEmpty(t, f.Violation.Remedy)
		}
		_, err := w.SendEvent(t.Context(), w.event("prices", strings.Repeat("k", 201), ``))
		require.ErrorContains(t, err, "200 bytes")
		_, err = w.SendEvent(t.Context(), w.event("prices", "k", `{"zone": "x"}`))
		require.ErrorContains(t, err, "pipeline of config priced")
		require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.event_inbox`), "nothing is stored")
	})

	t.Run("a config that cannot run with the parameters holds up none that can", func(t *testing.T) {
		t.Parallel()
		w := newListening(t)
		w.save(t, "plain", listening("single", "prices", config.OverlapAllow))
		w.save(t, "priced", listening("priced", "prices", config.OverlapAllow))
		sent := w.send(t, "prices", "k", `{"day": "3"}`)
		w.handle(t, 1000)
		done := w.eventOf(t, sent.ID)
		require.EqualValues(t, 1, done.Runs)
		require.Equal(t, map[string]int32{"ERROR": 1}, done.Skipped)
		require.Zero(t, w.runsOf(t, "plain"))
		verifytest.Clean(t, w.db)
	})

	t.Run("overlap, the number at once and quotas bind as for other runs, and are counted", func(t *testing.T) {
		t.Parallel()
		w := newListening(t)
		w.save(t, "skip", listening("single", "e", config.OverlapSkip))
		w.save(t, "buffer", listening("single", "e", config.OverlapBufferAll))
		two := listening("single", "e", config.OverlapAllow)
		two.MaxOverlap = 2
		w.save(t, "two", two)
		var last engine.SentEvent
		for i := range 3 {
			w.forward(t, time.Second)
			last = w.send(t, "e", fmt.Sprint(i), ``)
		}
		w.handle(t, 1000)
		require.Equal(t, []int{1, 3, 2}, []int{w.runsOf(t, "skip"), w.runsOf(t, "buffer"), w.runsOf(t, "two")})
		done := w.eventOf(t, last.ID)
		require.EqualValues(t, 1, done.Runs)
		require.Equal(t, map[string]int32{"SKIPPED_OVERLAP": 2}, done.Skipped)

		limits := tenant.NoLimits()
		limits.MaxDailyRuns = 6
		version := w.db.Count(t, `SELECT version FROM servo.tenants`)
		_, err := w.SetQuotas(t.Context(), w.tenant, limits, int32(version), engineMeta)
		require.NoError(t, err)
		over := w.send(t, "e", "over", ``)
		w.handle(t, 1000)
		require.EqualValues(t, 1, w.eventOf(t, over.ID).Skipped["SKIPPED_QUOTA"])
		verifytest.Clean(t, w.db)
	})

	t.Run("listeners that are too many for one transaction get their runs in several, once each", func(t *testing.T) {
		t.Parallel()
		w := newListening(t)
		for i := range 25 {
			w.save(t, fmt.Sprintf("c%d", i), listening("single", "e", config.OverlapAllow))
		}
		first := w.send(t, "e", "1", ``)
		w.forward(t, time.Second)
		second := w.send(t, "e", "2", ``)
		handled, err := w.HandleEvents(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, engine.Handled{Runs: 10, More: true}, handled)
		require.EqualValues(t, 10, w.eventOf(t, first.ID).Runs)
		verifytest.Clean(t, w.db)
		require.Equal(t, 6, 1+w.handle(t, 10))
		for _, of := range []id.Event{first.ID, second.ID} {
			require.EqualValues(t, 25, w.eventOf(t, of).Runs)
		}
		for i := range 25 {
			require.Equal(t, 2, w.runsOf(t, fmt.Sprintf("c%d", i)))
		}
		verifytest.Clean(t, w.db)
	})

	t.Run("a key is remembered for seven days, and longer while its event is not done", func(t *testing.T) {
		t.Parallel()
		w := newListening(t)
		first := w.send(t, "e", "k", ``)
		forget := func() int64 {
			n, err := w.db.ForgetEvents(t.Context(), config.KeepEvents, 100)
			require.NoError(t, err)
			return n
		}
		w.db.Exec(t, `UPDATE servo.event_inbox SET received_at = received_at - interval '8 days'`)
		require.Zero(t, forget(), "it is not done")
		w.db.Exec(t, `UPDATE servo.event_inbox SET received_at = received_at + interval '25 hours'`)
		w.handle(t, 1000)
		require.Zero(t, forget())
		require.True(t, w.send(t, "e", "k", ``).Duplicate)
		w.db.Exec(t, `UPDATE servo.event_inbox SET received_at = received_at - interval '1 day';
			UPDATE servo.entity_events SET recorded_at = recorded_at - interval '8 days' WHERE type = 'event.received'`)
		require.EqualValues(t, 1, forget())
		verifytest.Clean(t, w.db)
		next := w.send(t, "e", "k", ``)
		require.False(t, next.Duplicate)
		require.NotEqual(t, first.ID, next.ID)
	})
}

func TestEventsAreHandledOnce(t *testing.T) {
	t.Parallel()

	t.Run("twenty who send the same key to three servers that fall over make one run for each listener", func(t *testing.T) {
		t.Parallel()
		w := newListening(t)
		engines := []*engine.Engine{w.Engine}
		for range 2 {
			e := engine.New(w.db.Store, engine.Config{}, nil)
			t.Cleanup(e.Stop)
			engines = append(engines, e)
		}
		const listeners = 30
		for i := range listeners {
			w.save(t, fmt.Sprintf("c%d", i), listening("single", "e", config.OverlapAllow))
		}
		for round := range 5 {
			group, ctx := errgroup.WithContext(t.Context())
			answers := make([]engine.SentEvent, 20)
			for i := range answers {
				group.Go(func() (err error) {
					answers[i], err = engines[i%3].SendEvent(ctx, w.event("e", fmt.Sprintf("k%d", round), `{}`))
					return err
				})
			}
			for _, e := range engines { // each falls over, again and again, in the middle of its work
				group.Go(func() error {
					for n := range 10 {
						call, cancel := context.WithTimeout(ctx, time.Duration(1+n)*time.Millisecond)
						_, _ = e.HandleEvents(call, 7)
						cancel()
					}
					return nil
				})
			}
			require.NoError(t, group.Wait())
			first := 0
			for _, a := range answers {
				require.Equal(t, answers[0].ID, a.ID)
				if !a.Duplicate {
					first++
				}
			}
			require.Equal(t, 1, first, "one of them was the first")
		}
		group, ctx := errgroup.WithContext(t.Context())
		for _, e := range engines {
			group.Go(func() error {
				for {
					handled, err := e.HandleEvents(ctx, 7)
					if err != nil || !handled.More {
						return err
					}
				}
			})
		}
		require.NoError(t, group.Wait())
		for w.eventsWait(t) { // the database may take a moment to let go of what the fallen held
			w.handle(t, 1000)
		}
		for i := range listeners {
			require.Equal(t, 5, w.runsOf(t, fmt.Sprintf("c%d", i)))
		}
		require.Equal(t, 5, w.db.Count(t, `SELECT count(*) FROM servo.event_inbox WHERE done_at IS NOT NULL AND runs = $1`, listeners))
		verifytest.Clean(t, w.db)
	})

	t.Run("an event whose server falls over before it has made a run is not lost", func(t *testing.T) {
		t.Parallel()
		w := newListening(t)
		w.save(t, "c", listening("single", "e", config.OverlapAllow))
		sender := engine.New(w.db.Store, engine.Config{}, nil)
		_, err := sender.SendEvent(t.Context(), w.event("e", "k", ``))
		require.NoError(t, err)
		sender.Stop()
		require.True(t, w.eventsWait(t), "every reader sees it")
		w.handle(t, 1000)
		require.Equal(t, 1, w.runsOf(t, "c"))
	})

	t.Run("a tenant sees nothing of another's events, and their keys do not meet", func(t *testing.T) {
		t.Parallel()
		w := newListening(t)
		w.save(t, "c", listening("single", "e", config.OverlapAllow))
		other, err := w.CreateTenant(t.Context(), "brick", engineMeta)
		require.NoError(t, err)
		mine := w.send(t, "e", "k", ``)
		theirs, err := w.SendEvent(t.Context(), engine.SendEvent{Tenant: other, Name: "e", Key: "k", Parameters: json.RawMessage(`{"x": 1}`), Meta: engineMeta})
		require.NoError(t, err)
		require.False(t, theirs.Duplicate)
		require.Zero(t, theirs.Listeners)
		w.handle(t, 1000)
		require.Equal(t, 1, w.runsOf(t, "c"))
		_, err = w.db.GetEvent(t.Context(), other, mine.ID)
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
	})
}
