package event_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
)

func TestPosition(t *testing.T) {
	t.Parallel()

	t.Run("what is given out is read back", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			p := event.Position{
				Epoch: rapid.Int32Range(1, 1<<30).Draw(t, "epoch"), Tx: rapid.Int64Min(0).Draw(t, "tx"), Position: rapid.Int64Min(0).Draw(t, "position"),
				Ordinal: rapid.Int32Min(0).Draw(t, "ordinal"),
			}
			read, err := event.ParsePosition("from", p.String())
			require.NoError(t, err)
			require.Equal(t, p, read)
		})
	})

	t.Run("anything else is refused", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"", "1", "1.2", "1.2.3", "1.2.3.4.5", "0.1.1.1", "1.-1.1.1", "1.1.-1.1", "1.1.1.-1", "01.1.1.1", "1. 1.1.1", "1.1.99999999999999999999.1", "1.1.1.2147483648", "x.y.z.a"} {
			_, err := event.ParsePosition("from", text)
			f, ok := fault.As(err)
			require.True(t, ok, text)
			require.Equal(t, "from", f.Violation.Field)
		}
	})
}

func TestEpochs(t *testing.T) {
	t.Parallel()
	// The cluster was at 900 and was put back to 500; later it was at 700 and was put back to 600.
	epochs := event.Epochs{{Number: 1}, {Number: 2, From: 500}, {Number: 3, From: 600}}
	at := func(epoch int32, tx, position int64) event.Position {
		return event.Position{Epoch: epoch, Tx: tx, Position: position}
	}
	require.Equal(t, at(1, 400, 7), epochs.Current(at(1, 400, 7)), "what is left of the past is the past")
	require.Equal(t, at(2, 500, 0), epochs.Current(at(1, 800, 7)), "a reader that was further ahead reads the events now at this position")
	require.Equal(t, at(2, 550, 7), epochs.Current(at(2, 550, 7)))
	require.Equal(t, at(3, 600, 0), epochs.Current(at(2, 650, 7)))
	require.Equal(t, at(3, 650, 7), epochs.Current(at(3, 650, 7)))
	require.EqualValues(t, 1, epochs.Of(499))
	require.EqualValues(t, 2, epochs.Of(500))
	require.EqualValues(t, 3, epochs.Of(1<<40))

	deeper := event.Epochs{{Number: 1}, {Number: 2, From: 500}, {Number: 3, From: 300}}
	require.Equal(t, at(3, 300, 0), deeper.Current(at(1, 800, 7)), "put back twice, the second time further")
	require.Equal(t, at(3, 300, 0), deeper.Current(at(2, 550, 7)))
	require.EqualValues(t, 3, deeper.Of(550))
}
