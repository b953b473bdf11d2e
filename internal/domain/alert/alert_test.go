package alert_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/alert"
)

var at = time.Date(2026, 11, 15, 9, 30, 0, 0, time.UTC)

// some draws one of a few ids, so that draws meet each other.
func some(t *rapid.T, name string) uuid.UUID {
	return uuid.UUID{15: byte(rapid.IntRange(0, 3).Draw(t, name))}
}

func conditions(t *rapid.T, name string) []alert.Condition {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) alert.Condition {
		return alert.Condition{Key: alert.Key{
			Tenant: id.Of[id.Tenant](some(t, "tenant")), Kind: rapid.SampledFrom(alert.Kinds()).Draw(t, "kind"), About: some(t, "about"),
		}, Count: rapid.IntRange(1, 5).Draw(t, "count")}
	}), 0, 30).Draw(t, name)
}

func TestCompare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		holding := conditions(t, "holding")
		var open []alert.Alert
		seen := map[alert.Key]bool{}
		for _, c := range conditions(t, "open") { // there is at most one open alert of a key
			if !seen[c.Key] {
				seen[c.Key] = true
				open = append(open, alert.Alert{Tenant: c.Tenant, Kind: c.Kind, About: c.About})
			}
		}
		raise, resolve := alert.Compare(holding, open)

		after := map[alert.Key]int{}
		for _, a := range open {
			after[a.Key()]++
		}
		for _, c := range raise {
			after[c.Key]++
		}
		for _, a := range resolve {
			require.Equal(t, 1, after[a.Key()], "only what is open is resolved")
			delete(after, a.Key())
		}
		wanted := map[alert.Key]int{}
		for _, c := range holding {
			wanted[c.Key] = 1
		}
		require.Equal(t, wanted, after, "afterwards there is one open alert for each condition that holds, and no other")

		again, over := alert.Compare(holding, opened(raise, open, resolve))
		require.Empty(t, again, "a second look raises nothing")
		require.Empty(t, over, "and resolves nothing")
	})
}

func opened(raise []alert.Condition, open, resolve []alert.Alert) []alert.Alert {
	gone := map[alert.Key]bool{}
	for _, a := range resolve {
		gone[a.Key()] = true
	}
	var out []alert.Alert
	for _, a := range open {
		if !gone[a.Key()] {
			out = append(out, a)
		}
	}
	for _, c := range raise {
		out = append(out, alert.Alert{Tenant: c.Tenant, Kind: c.Kind, About: c.About})
	}
	return out
}

func TestEvolve(t *testing.T) {
	t.Parallel()
	subject := uuid.New()
	eventOf := func(version int32, body event.Body) event.Event {
		return event.Event{Tenant: id.Of[id.Tenant](uuid.Max), Subject: subject, Version: version, At: at.Add(time.Duration(version) * time.Minute), Body: body}
	}
	raised := alert.Raised{Kind: alert.PipelineFailing, Severity: alert.Medium, About: uuid.New(), Name: "default/cost", Message: "it fails"}

	t.Run("an alert begins and ends once", func(t *testing.T) {
		t.Parallel()
		a, err := alert.Alert{}.Evolve(eventOf(1, raised))
		require.NoError(t, err)
		require.Equal(t, alert.Alert{
			Tenant: id.Of[id.Tenant](uuid.Max), ID: id.Of[id.Alert](subject), Version: 1, Kind: raised.Kind, Severity: raised.Severity,
			About: raised.About, Name: raised.Name, Message: raised.Message, RaisedAt: at.Add(time.Minute),
		}, a)
		_, err = a.Evolve(eventOf(2, raised))
		require.ErrorContains(t, err, "unexpected event")
		a, err = a.Evolve(eventOf(2, alert.Resolved{}))
		require.NoError(t, err)
		require.Equal(t, at.Add(2*time.Minute), a.ResolvedAt)
		_, err = a.Evolve(eventOf(3, alert.Resolved{}))
		require.ErrorContains(t, err, "unexpected event")
		_, err = a.Evolve(eventOf(5, alert.Resolved{}))
		require.ErrorContains(t, err, "version 5, expected 3")
		_, err = alert.Alert{}.Evolve(eventOf(1, alert.Resolved{}))
		require.ErrorContains(t, err, "unexpected event")
		_, err = a.Evolve(eventOf(3, alert.ChannelDeleted{}))
		require.ErrorContains(t, err, "unexpected event")
	})

	t.Run("a channel likewise", func(t *testing.T) {
		t.Parallel()
		made := alert.ChannelCreated{ChannelSettings: alert.ChannelSettings{Name: "on-call", URL: "https://example.com/x", Severity: alert.High}}
		c, err := alert.Channel{}.Evolve(eventOf(1, made))
		require.NoError(t, err)
		require.Equal(t, made.ChannelSettings, c.ChannelSettings)
		_, err = c.Evolve(eventOf(2, made))
		require.ErrorContains(t, err, "unexpected event")
		c, err = c.Evolve(eventOf(2, alert.ChannelDeleted{}))
		require.NoError(t, err)
		require.Equal(t, at.Add(2*time.Minute), c.DeletedAt)
		_, err = c.Evolve(eventOf(3, alert.ChannelDeleted{}))
		require.ErrorContains(t, err, "unexpected event")
		_, err = c.Evolve(eventOf(4, alert.ChannelDeleted{}))
		require.ErrorContains(t, err, "version 4, expected 3")
		_, err = c.Evolve(eventOf(3, alert.Resolved{}))
		require.ErrorContains(t, err, "unexpected event")
	})
}

func TestChannelReceives(t *testing.T) {
	t.Parallel()
	acme, globex := id.Of[id.Tenant](uuid.New()), id.Of[id.Tenant](uuid.New())
	high := alert.ChannelSettings{Severity: alert.High}
	for _, c := range []struct {
		claim    string
		channel  alert.Channel
		alert    alert.Alert
		receives bool
	}{
		{"a tenant's channel receives its alerts", alert.Channel{Tenant: acme, ChannelSettings: high}, alert.Alert{Tenant: acme, Severity: alert.High}, true},
		{"but not of what is less urgent than it asks for", alert.Channel{Tenant: acme, ChannelSettings: high}, alert.Alert{Tenant: acme, Severity: alert.Medium}, false},
		{"nor of another's", alert.Channel{Tenant: acme, ChannelSettings: high}, alert.Alert{Tenant: globex, Severity: alert.Critical}, false},
		{"nor of the installation's", alert.Channel{Tenant: acme, ChannelSettings: high}, alert.Alert{Severity: alert.Critical}, false},
		{"one of the installation receives all", alert.Channel{ChannelSettings: high}, alert.Alert{Tenant: globex, Severity: alert.High}, true},
		{"one that was deleted receives nothing", alert.Channel{ChannelSettings: high, DeletedAt: at}, alert.Alert{Severity: alert.High}, false},
	} {
		require.Equal(t, c.receives, c.channel.Receives(c.alert), c.claim)
	}
}

func TestValidateChannel(t *testing.T) {
	t.Parallel()
	good := alert.ChannelSettings{Name: "on-call", URL: "https://hooks.example.com/servo?team=data", Severity: alert.Medium}
	require.NoError(t, good.Validate())
	for _, c := range []struct {
		field  string
		change func(*alert.ChannelSettings)
	}{
		{"name", func(s *alert.ChannelSettings) { s.Name = "" }},
		{"name", func(s *alert.ChannelSettings) { s.Name = "-x" }},
		{"name", func(s *alert.ChannelSettings) { s.Name = strings.Repeat("x", 101) }},
		{"url", func(s *alert.ChannelSettings) { s.URL = "ftp://example.com" }},
		{"url", func(s *alert.ChannelSettings) { s.URL = "https://" }},
		{"url", func(s *alert.ChannelSettings) { s.URL = "https://user:secret@example.com/" }},
		{"url", func(s *alert.ChannelSettings) { s.URL = "https://example.com/" + strings.Repeat("x", 2000) }},
		{"url", func(s *alert.ChannelSettings) { s.URL = "https://exa mple.com\x00" }},
		{"severity", func(s *alert.ChannelSettings) { s.Severity = 0 }},
		{"severity", func(s *alert.ChannelSettings) { s.Severity = 5 }},
	} {
		s := good
		c.change(&s)
		f, ok := fault.As(s.Validate())
		require.True(t, ok)
		require.Equal(t, c.field, f.Violation.Field)
		require.NotEmpty(t, f.Violation.Remedy)
	}
}

func TestMessage(t *testing.T) {
	t.Parallel()

	t.Run("beginning and end are two messages, and each try is the same", func(t *testing.T) {
		t.Parallel()
		begun := alert.Message{Tenant: "acme", Change: alert.Begun, Alert: alert.Alert{
			ID: id.Of[id.Alert](uuid.New()), Kind: alert.PipelineDisabled, Severity: alert.High, About: uuid.Max, Name: "default/cost", Message: "repair it", RaisedAt: at,
		}}
		over := begun
		over.Change, over.Alert.ResolvedAt = alert.Ended, at.Add(time.Hour)
		require.NotEqual(t, begun.ID(), over.ID())
		body, err := begun.Body()
		require.NoError(t, err)
		begun.Tries = 7
		again, err := begun.Body()
		require.NoError(t, err)
		require.Equal(t, body, again)
		require.JSONEq(t, `{"type": "alert.raised", "timestamp": "2026-11-15T09:30:00Z", "data": {"id": "`+begun.Alert.ID.String()+`", "kind": "PIPELINE_DISABLED",
			"severity": "HIGH", "state": "OPEN", "tenant": "acme", "about": "ffffffff-ffff-ffff-ffff-ffffffffffff", "name": "default/cost", "message": "repair it",
			"raised_at": "2026-11-15T09:30:00Z"}}`, string(body))
		body, err = over.Body()
		require.NoError(t, err)
		var payload struct {
			Type string
			Data struct {
				State      string
				ResolvedAt time.Time `json:"resolved_at"`
			}
		}
		require.NoError(t, json.Unmarshal(body, &payload))
		require.Equal(t, "alert.resolved", payload.Type)
		require.Equal(t, "RESOLVED", payload.Data.State)
		require.Equal(t, at.Add(time.Hour), payload.Data.ResolvedAt)
	})

	t.Run("it is tried later and later, for a day", func(t *testing.T) {
		t.Parallel()
		m := alert.Message{Since: at}
		now, tries := at, 0
		last := time.Duration(0)
		for {
			next, again := m.Again(now)
			if !again {
				break
			}
			require.GreaterOrEqual(t, next.Sub(now), last)
			require.LessOrEqual(t, next.Sub(now), time.Hour)
			last, now = next.Sub(now), next
			m.Tries++
			tries++
		}
		require.Equal(t, time.Hour, last)
		require.Greater(t, now.Sub(at), 22*time.Hour)
		require.Less(t, now.Sub(at), 24*time.Hour)
		require.Less(t, tries, 50)
	})
}

func TestConditionMessage(t *testing.T) {
	t.Parallel()
	for _, kind := range alert.Kinds() {
		c := alert.Condition{Key: alert.Key{Kind: kind}, Workspace: "default", Name: "cost", Count: 4, Since: at, Lag: 90 * time.Second, Reason: "it has failed 5 times"}
		require.Contains(t, c.Message(), "servo ", "%s states what to do", kind)
		require.GreaterOrEqual(t, kind.Severity(), alert.Low)
	}
	require.Equal(t, alert.Low, alert.PipelineFailed.Severity())
	c := alert.Condition{Key: alert.Key{Kind: alert.RunLate}, Workspace: "default", Name: "cost", Count: 1, Since: at}
	require.Equal(t, "a run of config default/cost should have started by 2026-11-15T09:30:00Z; servo why cost shows what it waits for", c.Message())
	require.Equal(t, "the installation", alert.Condition{Key: alert.Key{Kind: alert.ScheduleLag}}.Subject())
}
