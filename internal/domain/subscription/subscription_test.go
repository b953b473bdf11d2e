package subscription_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/subscription"
)

var at = time.Date(2026, 11, 15, 9, 30, 0, 0, time.UTC)

func TestEvolve(t *testing.T) {
	t.Parallel()
	subject, acme := uuid.New(), id.Of[id.Tenant](uuid.New())
	eventOf := func(version int32, body event.Body) event.Event {
		return event.Event{Tenant: acme, Subject: subject, Version: version, At: at.Add(time.Duration(version) * time.Minute), Meta: event.Meta{Actor: "ann"}, Body: body}
	}
	created := subscription.Created{Settings: subscription.Settings{Name: "audit", URL: "https://example.com/x", Types: []string{"run.*"}}, From: "1.2.3"}
	s, err := subscription.Subscription{}.Evolve(eventOf(1, created))
	require.NoError(t, err)
	require.Equal(t, subscription.Subscription{
		Tenant: acme, ID: id.Of[id.Subscription](subject), Version: 1, Settings: created.Settings, CreatedBy: "ann", CreatedAt: at.Add(time.Minute),
	}, s)
	_, err = s.Evolve(eventOf(2, created))
	require.ErrorContains(t, err, "unexpected event")
	_, err = s.Evolve(eventOf(2, subscription.Resumed{}))
	require.ErrorContains(t, err, "unexpected event")
	_, err = s.Evolve(eventOf(3, subscription.Deleted{}))
	require.ErrorContains(t, err, "version 3, expected 2")
	_, err = subscription.Subscription{}.Evolve(eventOf(1, subscription.Deleted{}))
	require.ErrorContains(t, err, "unexpected event")

	paused, err := s.Evolve(eventOf(2, subscription.Paused{Reason: "why"}))
	require.NoError(t, err)
	require.Equal(t, "why", paused.PauseReason)
	require.Equal(t, at.Add(2*time.Minute), paused.PausedAt)
	_, err = paused.Evolve(eventOf(3, subscription.Paused{}))
	require.ErrorContains(t, err, "unexpected event")
	resumed, err := paused.Evolve(eventOf(3, subscription.Resumed{}))
	require.NoError(t, err)
	s.Version = 3
	require.Equal(t, s, resumed)
	s, err = s.Evolve(eventOf(4, subscription.Replayed{From: "1.0.0"}))
	require.NoError(t, err)
	s, err = s.Evolve(eventOf(5, subscription.Deleted{}))
	require.NoError(t, err)
	require.Equal(t, at.Add(5*time.Minute), s.DeletedAt)
	_, err = s.Evolve(eventOf(6, subscription.Resumed{}))
	require.ErrorContains(t, err, "unexpected event")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	known := []string{"run.created", "run.ended", "task.claimed"}
	good := subscription.Settings{Name: "audit", URL: "https://example.com/x", Types: []string{"run.*", "task.claimed"}, Pipeline: "daily"}
	require.NoError(t, good.Validate(known))
	for field, changes := range map[string][]func(*subscription.Settings){
		"name": {func(s *subscription.Settings) { s.Name = "" }},
		"url":  {func(s *subscription.Settings) { s.URL = "ftp://x" }},
		"types": {
			func(s *subscription.Settings) { s.Types = []string{"run.creatd"} },
			func(s *subscription.Settings) { s.Types = []string{"*"} },
			func(s *subscription.Settings) { s.Types = []string{"run*"} },
			func(s *subscription.Settings) { s.Types = []string{""} },
			func(s *subscription.Settings) { s.Types = []string{"runs.*"} },
			func(s *subscription.Settings) { s.Types = make([]string, 51) },
		},
		"pipeline": {func(s *subscription.Settings) { s.Pipeline = strings.Repeat("x", 101) }},
	} {
		for _, change := range changes {
			s := good
			change(&s)
			f, ok := fault.As(s.Validate(known))
			require.True(t, ok, field)
			require.Equal(t, field, f.Violation.Field)
			require.NotEmpty(t, f.Violation.Remedy)
		}
	}
}

func TestWants(t *testing.T) {
	t.Parallel()
	acme, globex := id.Of[id.Tenant](uuid.New()), id.Of[id.Tenant](uuid.New())
	ran := subscription.Recorded{Tenant: acme, Run: id.Of[id.Run](uuid.New()), Workspace: "prod", Pipeline: "daily", Type: "run.ended"}
	of := func(s subscription.Settings) subscription.Subscription {
		return subscription.Subscription{Tenant: acme, Settings: s}
	}
	for _, c := range []struct {
		claim string
		of    subscription.Subscription
		event subscription.Recorded
		wants bool
	}{
		{"all", of(subscription.Settings{}), ran, true},
		{"the type", of(subscription.Settings{Types: []string{"x.y", "run.ended"}}), ran, true},
		{"the prefix", of(subscription.Settings{Types: []string{"run.*"}}), ran, true},
		{"another type", of(subscription.Settings{Types: []string{"task.*", "run.ende"}}), ran, false},
		{"another tenant's", subscription.Subscription{Tenant: globex}, ran, false},
		{"the installation's", of(subscription.Settings{}), subscription.Recorded{Type: "pool.created"}, false},
		{"of all tenants, for the installation", subscription.Subscription{}, ran, true},
		{"the pipeline", of(subscription.Settings{Pipeline: "daily", Workspace: "prod"}), ran, true},
		{"another pipeline", of(subscription.Settings{Pipeline: "hourly"}), ran, false},
		{"another workspace", of(subscription.Settings{Workspace: "dev"}), ran, false},
		{"no run at all", of(subscription.Settings{Workspace: "prod"}), subscription.Recorded{Tenant: acme, Type: "config.created"}, false},
	} {
		require.Equal(t, c.wants, c.of.Wants(c.event), c.claim)
	}
}

// TestBatches: whatever the sizes, every event that is asked for is part of one call, in order,
// and the calls cover all that was read.
func TestBatches(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := subscription.Subscription{ID: id.Of[id.Subscription](uuid.New()), Settings: subscription.Settings{Types: []string{"run.*"}}}
		var (
			events []subscription.Recorded
			wanted []string
		)
		for i := range rapid.IntRange(0, 250).Draw(t, "events") {
			e := subscription.Recorded{At: event.Position{Epoch: 1, Tx: int64(i/3) + 1, Position: int64(i)}, Stream: "x", Version: 1, Time: at, Type: "run.ended"}
			size := rapid.SampledFrom([]int{1, 1, 1, 1, 1, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 1000, 20_000, 50_000}).Draw(t, "size")
			e.Data = json.RawMessage(fmt.Sprintf("%q", strings.Repeat("<", size)))
			if rapid.Bool().Draw(t, "other") {
				e.Type = "task.claimed"
			} else {
				wanted = append(wanted, e.At.String())
			}
			events = append(events, e)
		}
		batches, err := s.Batches(events)
		require.NoError(t, err)
		var delivered []string
		seen := map[string]bool{}
		last := event.Position{}
		for i, b := range batches {
			require.Positive(t, b.Upto.Compare(last))
			last = b.Upto
			if b.Events == 0 {
				require.Len(t, batches, 1)
				require.Empty(t, b.Body)
				continue
			}
			var items []struct{ ID, Type, Stream string }
			require.NoError(t, json.Unmarshal(b.Body, &items))
			require.Len(t, items, b.Events)
			require.LessOrEqual(t, b.Events, subscription.MaxEvents)
			if b.Events > 1 {
				require.LessOrEqual(t, len(b.Body), subscription.MaxBytes)
			}
			require.False(t, seen[b.ID], "call %d", i)
			seen[b.ID] = true
			for _, e := range items {
				delivered = append(delivered, e.ID)
				require.Equal(t, "run.ended", e.Type)
			}
		}
		require.Equal(t, wanted, delivered)
		if len(events) > 0 {
			require.Equal(t, events[len(events)-1].At, last)
		}
	})
}

func TestAgain(t *testing.T) {
	t.Parallel()
	require.Equal(t, 5*time.Second, subscription.Again(0))
	require.Equal(t, 5*time.Minute, subscription.Again(1000))
}
