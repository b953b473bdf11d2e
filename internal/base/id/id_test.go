package id_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

func TestMinter(t *testing.T) {
	t.Parallel()

	t.Run("ids of one minter are unique, ordered and carry its time", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			now := time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "now")).UTC()
			m := id.NewMinter(now)
			previous := id.New[id.Run](m)
			require.Equal(t, now, id.Time(previous.UUID))
			require.EqualValues(t, 7, previous.Version())
			for range rapid.IntRange(1, 5000).Draw(t, "n") {
				next := id.New[id.Run](m)
				require.Negative(t, bytes.Compare(previous.UUID[:], next.UUID[:]))
				previous = next
			}
		})
	})

	t.Run("the floor of a time is below every id minted from it", func(t *testing.T) {
		t.Parallel()
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		floor, minted := id.Floor(now), id.New[id.Task](id.NewMinter(now))
		require.Negative(t, bytes.Compare(floor[:], minted.UUID[:]))
		before := id.New[id.Task](id.NewMinter(now.Add(-time.Millisecond)))
		require.Positive(t, bytes.Compare(floor[:], before.UUID[:]))
	})
}

func TestParse(t *testing.T) {
	t.Parallel()

	_, err := id.Parse[id.Run]("run", "nonsense")
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, "run", f.Violation.Field)
	require.NotEmpty(t, f.Violation.Remedy)

	want := id.New[id.Run](id.NewMinter(time.Now()))
	got, err := id.Parse[id.Run]("run", want.String())
	require.NoError(t, err)
	require.Equal(t, want, got)

	config := id.New[id.Config](id.NewMinter(time.Now()))
	require.Equal(t, config, id.Of[id.Config](config.UUID))
	again, err := id.Parse[id.Config]("config", config.String())
	require.NoError(t, err)
	require.Equal(t, config, again)
}
