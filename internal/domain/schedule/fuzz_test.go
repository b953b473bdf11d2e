package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
)

// FuzzParse gives any text as expression and zone. Whatever it is, there is an answer: a
// fault for its author, or slots that increase. The corpus under testdata is part of every
// test run; go test -fuzz=FuzzParse looks for more.
func FuzzParse(f *testing.F) {
	f.Add("30 2 * * *", "Europe/Berlin", int64(1_774_746_000), int64(0))
	f.Add("*/5 * * * * *", "Pacific/Apia", int64(1_325_239_200), int64(0))
	f.Add("0 0 29 2 *", "UTC", int64(4_000_000_000), int64(0))
	f.Add("@every 90m", "UTC", int64(-1), int64(90))
	f.Fuzz(func(t *testing.T, expression, zone string, after, anchor int64) {
		s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: expression, Anchor: time.Unix(anchor, 0)}, zone)
		if err != nil {
			require.Equal(t, fault.InvalidArgument, fault.CodeOf(err))
			return
		}
		last := time.Unix(after, 0)
		slots, _ := s.Slots(last, time.Unix(1<<62, 0), 20)
		for _, slot := range slots {
			require.True(t, slot.After(last))
			require.True(t, slot.Year() >= 1970 && slot.Year() <= 9999)
			s.Shift(slot)
			last = slot
		}
		require.Equal(t, len(slots), s.Count(time.Unix(after, 0), last))
	})
}
