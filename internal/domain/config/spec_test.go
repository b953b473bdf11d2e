package config_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	valid := func() config.Spec {
		return config.Spec{Pipeline: "p", Trigger: config.Trigger{Cron: "0 2 * * *"}}
	}
	_, err := valid().Filled(noon).Validate()
	require.NoError(t, err)
	for field, spoil := range map[string]func(*config.Spec){
		"pipeline":                 func(s *config.Spec) { s.Pipeline = "" },
		"priority":                 func(s *config.Spec) { s.Priority = 11 },
		"labels":                   func(s *config.Spec) { s.Labels = map[string]string{"": "x"} },
		"parameters":               func(s *config.Spec) { s.Parameters = json.RawMessage(`[1]`) },
		"trigger":                  func(s *config.Spec) { s.Trigger.Manual = true },
		"trigger.cron":             func(s *config.Spec) { s.Trigger.Cron = "0 0 30 2 *" },
		"trigger.template":         func(s *config.Spec) { s.Trigger = config.Trigger{Template: "hourli"} },
		"trigger.interval":         func(s *config.Spec) { s.Trigger = config.Trigger{Interval: asset.Duration(time.Millisecond)} },
		"trigger.event":            func(s *config.Spec) { s.Trigger = config.Trigger{Event: &config.Event{Config: "a", Name: "b"}} },
		"timezone":                 func(s *config.Spec) { s.Timezone = "Europe/Atlantis" },
		"overlap":                  func(s *config.Spec) { s.Overlap = "sometimes" },
		"max_overlap":              func(s *config.Spec) { s.MaxOverlap = 3 },
		"catchup.policy":           func(s *config.Spec) { s.Catchup.Policy = "some" },
		"catchup.max_slots":        func(s *config.Spec) { s.Catchup.MaxSlots = 3 },
		"catchup.window":           func(s *config.Spec) { s.Catchup.Window = asset.Duration(401 * 24 * time.Hour) },
		"jitter":                   func(s *config.Spec) { s.Jitter = asset.Duration(25 * time.Hour) },
		"max_execution":            func(s *config.Spec) { s.MaxExecution = asset.Duration(8 * 24 * time.Hour) },
		"sla_start_delay":          func(s *config.Spec) { s.SLAStartDelay = asset.Duration(1500 * time.Millisecond) },
		"max_consecutive_failures": func(s *config.Spec) { s.MaxConsecutiveFailures = -1 },
		"retry.max_attempts":       func(s *config.Spec) { s.Retry = &asset.Retry{MaxAttempts: 101} },
		"depends_on": func(s *config.Spec) {
			s.Trigger, s.DependsOn = config.Trigger{Manual: true}, &config.Dependency{Config: "a", Within: asset.Duration(time.Hour)}
		},
		"depends_on.config": func(s *config.Spec) { s.DependsOn = &config.Dependency{Within: asset.Duration(time.Hour)} },
		"depends_on.within": func(s *config.Spec) { s.DependsOn = &config.Dependency{Config: "a"} },
		"depends_on.wait": func(s *config.Spec) {
			s.DependsOn = &config.Dependency{Config: "a", Within: asset.Duration(time.Hour), Wait: -1}
		},
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			s := valid()
			spoil(&s)
			_, err := s.Filled(noon).Validate()
			var f *fault.Fault
			require.True(t, errors.As(err, &f), "%v", err)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.Equal(t, field, f.Field)
			require.NotEmpty(t, f.Message)
			require.NotEmpty(t, f.Remedy)
		})
	}
	for _, name := range []string{"a", "acme-aws_cost.1", strings.Repeat("x", 100)} {
		require.NoError(t, config.ValidateName(name))
	}
	for _, name := range []string{"", "-a", "a b", "ä", "a/b", "a\x00", strings.Repeat("x", 101)} {
		require.Error(t, config.ValidateName(name), "%q", name)
	}
	require.NoError(t, config.ValidateNote("note", ""))
	require.Error(t, config.ValidateNote("note", strings.Repeat("x", 1001)))
	require.Error(t, config.ValidateNote("note", "\xff"))
}

func TestRetryHasTheRulesOfTheManifest(t *testing.T) {
	t.Parallel()
	hours := func(n int) asset.Duration { return asset.Duration(time.Duration(n) * time.Hour) }
	check := func(r asset.Retry) error {
		s := config.Spec{Pipeline: "p", Trigger: config.Trigger{Cron: "0 2 * * *"}, Retry: &r}
		_, err := s.Filled(noon).Validate()
		return err
	}
	for field, r := range map[string]asset.Retry{
		"retry.max_attempts":   {MaxAttempts: -1},
		"retry.multiplier":     {Multiplier: 0.5},
		"retry.initial_delay":  {InitialDelay: hours(2)},                     // over the default maximum
		"retry.max_delay":      {InitialDelay: hours(3), MaxDelay: hours(2)}, // over its own
		"retry.jitter":         {Jitter: 2},
		"retry.timeout_growth": {TimeoutGrowth: 11},
		"retry.retry_on[0]":    {RetryOn: []string{"not a code"}},
		"retry.no_retry_on[0]": {RetryOn: []string{"A"}, NoRetryOn: []string{"A"}},
	} {
		f, ok := fault.As(check(r))
		require.True(t, ok, field)
		require.Equal(t, field, f.Field)
		require.NotEmpty(t, f.Remedy)
	}
	f, _ := fault.As(check(asset.Retry{MaxDelay: hours(100_000)}))
	require.Equal(t, "retry.max_delay", f.Field)
	require.NoError(t, check(asset.Retry{InitialDelay: hours(2), MaxDelay: hours(4), MaxAttempts: 1, Multiplier: 1}))
}

func TestFilled(t *testing.T) {
	t.Parallel()
	s := config.Spec{Pipeline: "p", Trigger: config.Trigger{Cron: "@every 5m"}}.Filled(noon.Add(300 * time.Millisecond))
	require.Equal(t, noon, *s.Trigger.Anchor, "intervals count from the creation")
	require.Equal(t, "UTC", s.Timezone)
	require.EqualValues(t, 5, s.Priority)
	require.Equal(t, config.OverlapSkip, s.Overlap)
	require.Equal(t, config.CatchupLatest, s.Catchup.Policy)
	require.Equal(t, time.Hour, s.MaxExecution.Std())
	require.Equal(t, s, s.Filled(noon.Add(time.Hour)), "what is filled stays")
}

func TestEvolve(t *testing.T) {
	t.Parallel()
	j := newJournal(t, config.Spec{Pipeline: "p", Trigger: config.Trigger{Cron: "* * * * *"}})
	require.True(t, j.Fires())
	j.record(t, noon.Add(time.Second), config.Paused{Note: "n"})
	require.False(t, j.Fires())
	require.Equal(t, noon.Add(time.Second), j.PausedAt)
	j.record(t, noon, config.Resumed{})
	j.record(t, noon, config.Disabled{Reason: "r"})
	require.False(t, j.Fires())
	j.record(t, noon, config.Enabled{})
	require.True(t, j.Fires())
	j.record(t, noon, config.Moved{To: noon.Add(time.Hour)})
	slot, due := j.Next(j.schedule, noon)
	require.Equal(t, noon.Add(time.Hour), slot)
	require.Equal(t, slot, due)
	j.record(t, noon, config.Deleted{})
	require.False(t, j.Fires())
	_, err := j.Evolve(event.Event{Version: j.Version + 1, Body: config.Paused{}})
	require.ErrorContains(t, err, "unexpected event", "nothing comes after the end")
	_, err = config.Config{}.Evolve(event.Event{Version: 1, Body: config.Paused{}})
	require.ErrorContains(t, err, "unexpected event")
	_, err = config.Config{}.Evolve(event.Event{Version: 2, Body: config.Created{}})
	require.ErrorContains(t, err, "version 2, expected 1")
}
