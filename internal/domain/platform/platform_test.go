package platform_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/platform"
)

func TestSwitch(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

	t.Run("an untouched switch is on, and turning it on changes nothing", func(t *testing.T) {
		t.Parallel()
		body, err := platform.Switch{}.Turn(false, "", "")
		require.NoError(t, err)
		require.Nil(t, body)
	})

	t.Run("the actor of a change is named, by the request or else by the server", func(t *testing.T) {
		t.Parallel()
		off := platform.Event{
			Subject: platform.SubjectOf(platform.KindSwitch, platform.Dispatch), Version: 1, At: at,
			Meta: event.Meta{Actor: "api"}, Body: platform.SwitchTurnedOff{Reason: "upgrade", By: "ann"},
		}
		en, err := platform.Entity{}.Evolve(off)
		require.NoError(t, err)
		require.Equal(t, platform.Switch{Off: true, Reason: "upgrade", ChangedBy: "ann", ChangedAt: at}, en.Switch)
		on := off
		on.Version, on.Body = 2, platform.SwitchTurnedOn{}
		en, err = en.Evolve(on)
		require.NoError(t, err)
		require.Equal(t, platform.Switch{ChangedBy: "api", ChangedAt: at}, en.Switch)
		require.Equal(t, platform.KindSwitch, en.Kind)
		require.Equal(t, platform.Dispatch, en.Name)
	})

	t.Run("after any changes it has the last state, with one event for each change", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			var en platform.Entity
			changes, before := 0, false
			for _, off := range rapid.SliceOf(rapid.Bool()).Draw(t, "turns") {
				body, err := en.Switch.Turn(off, "", "")
				require.NoError(t, err)
				require.Equal(t, off != before, body != nil)
				before = off
				if body == nil {
					continue
				}
				changes++
				en, err = en.Evolve(platform.Event{Subject: "switch/dispatch", Version: en.Version + 1, At: at, Body: body})
				require.NoError(t, err)
			}
			require.Equal(t, before, en.Switch.Off)
			require.EqualValues(t, changes, en.Version)
		})
	})

	t.Run("notes that cannot be kept are refused by their field", func(t *testing.T) {
		t.Parallel()
		for field, err := range map[string]error{
			"reason": second(platform.Switch{}.Turn(true, strings.Repeat("x", platform.MaxReasonLength+1), "")),
			"by":     second(platform.Switch{}.Turn(true, "", "a\x00b")),
		} {
			refused, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, field, refused.Field)
		}
	})
}

func second[A, B any](_ A, b B) B { return b }

func TestEntity(t *testing.T) {
	t.Parallel()

	t.Run("a gap in the versions is refused", func(t *testing.T) {
		t.Parallel()
		_, err := platform.Entity{}.Evolve(platform.Event{Subject: "switch/dispatch", Version: 2, Body: platform.SwitchTurnedOff{}})
		require.ErrorContains(t, err, "version 2, expected 1")
	})

	t.Run("an event of another kind is refused", func(t *testing.T) {
		t.Parallel()
		_, err := platform.Entity{}.Evolve(platform.Event{Subject: "pool/default", Version: 1, Body: platform.SwitchTurnedOff{}})
		require.ErrorContains(t, err, "not an event of a pool")
	})

	t.Run("a subject comes apart as it was put together", func(t *testing.T) {
		t.Parallel()
		kind, name := platform.Split(platform.SubjectOf(platform.KindSwitch, "a/b"))
		require.Equal(t, platform.KindSwitch, kind)
		require.Equal(t, "a/b", name)
	})
}
