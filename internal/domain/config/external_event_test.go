package config_test

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
	"go.arco.dev/servo/internal/domain/config"
)

func TestWith(t *testing.T) {
	t.Parallel()
	object := rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.IntRange(0, 9))
	rapid.Check(t, func(t *rapid.T) {
		own, over := object.Draw(t, "own"), object.Draw(t, "over")
		ownText, _ := json.Marshal(own)
		overText, _ := json.Marshal(over)
		merged, err := config.With(ownText, overText)
		require.NoError(t, err)
		want := map[string]int{}
		for name, value := range own {
			want[name] = value
		}
		for name, value := range over {
			want[name] = value
		}
		var got map[string]int
		require.NoError(t, json.Unmarshal(merged, &got))
		require.Equal(t, want, got)
	})
	merged, err := config.With(nil, nil)
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(merged))
	merged, err = config.With(json.RawMessage(`{"n": 12345678901234567890, "o": {"a": 1}}`), json.RawMessage(`{"o": {"b": 2}}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"n": 12345678901234567890, "o": {"b": 2}}`, string(merged), "numbers stay what they are, and values are replaced whole")
}

func TestValidateEvent(t *testing.T) {
	t.Parallel()
	ok := json.RawMessage(`{}`)
	require.NoError(t, config.ValidateEvent(strings.Repeat("n", config.MaxEventName), strings.Repeat("k", config.MaxDedupeKey), ok))
	for field, err := range map[string]error{
		"name":       config.ValidateEvent(strings.Repeat("n", config.MaxEventName+1), "k", ok),
		"dedupe_key": config.ValidateEvent("n", strings.Repeat("k", config.MaxDedupeKey+1), ok),
		"parameters": config.ValidateEvent("n", "k", json.RawMessage(`{"x": "`+strings.Repeat("x", config.MaxParameters)+`"}`)),
	} {
		f, isFault := fault.As(err)
		require.True(t, isFault, field)
		require.Equal(t, field, f.Violation.Field)
	}
	for _, bad := range []string{"", " ", "a\x00b", "a\nb", "\xff"} {
		require.Error(t, config.ValidateEvent("n", bad, ok), "%q", bad)
		if bad != " " {
			require.Error(t, config.ValidateEvent(bad, "k", ok), "%q", bad)
		}
	}
}

func TestEvolveRefusesUnexpectedEvents(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	subject := uuid.New()
	of := func(version int32, body event.Body) event.Event {
		return event.Event{Subject: subject, Version: version, At: at, Body: body}
	}

	received, err := config.OutsideEvent{}.Evolve(of(1, config.EventReceived{Name: "n", Key: "k"}))
	require.NoError(t, err)
	done, err := received.Evolve(of(2, config.EventHandled{Runs: 3}))
	require.NoError(t, err)
	require.EqualValues(t, 3, done.Runs)
	require.Equal(t, at, done.DoneAt)
	for _, wrong := range []func() (config.OutsideEvent, error){
		func() (config.OutsideEvent, error) { return config.OutsideEvent{}.Evolve(of(1, config.EventHandled{})) },
		func() (config.OutsideEvent, error) { return received.Evolve(of(2, config.EventReceived{})) },
		func() (config.OutsideEvent, error) { return received.Evolve(of(3, config.EventHandled{})) },
		func() (config.OutsideEvent, error) { return received.Evolve(of(2, config.Paused{})) },
		func() (config.OutsideEvent, error) { return done.Evolve(of(3, config.EventHandled{})) },
	} {
		_, err := wrong()
		require.Error(t, err)
	}

	set, err := config.Template{}.Evolve(of(1, config.TemplateSet{Name: "n", Cron: "0 6 * * *"}))
	require.NoError(t, err)
	gone, err := set.Evolve(of(2, config.TemplateDeleted{}))
	require.NoError(t, err)
	for _, wrong := range []func() (config.Template, error){
		func() (config.Template, error) { return config.Template{}.Evolve(of(1, config.TemplateDeleted{})) },
		func() (config.Template, error) { return set.Evolve(of(2, config.TemplateSet{Name: "other"})) },
		func() (config.Template, error) { return set.Evolve(of(3, config.TemplateDeleted{})) },
		func() (config.Template, error) { return set.Evolve(of(2, config.Paused{})) },
		func() (config.Template, error) { return gone.Evolve(of(3, config.TemplateSet{Name: "n"})) },
	} {
		_, err := wrong()
		require.Error(t, err)
	}
}
