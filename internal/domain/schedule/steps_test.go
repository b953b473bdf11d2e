package schedule

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWork bounds the work of a search by the months that it computes: time would depend on the
// machine.
func TestWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expression, zone string
		after            int64
		months           int
	}{
		"each minute":                                  {"* * * * *", "Europe/Berlin", 1_800_000_000, 1},
		"once a year":                                  {"0 0 1 1 *", "Europe/Berlin", 1_800_000_000, 2},
		"29 February across 2100":                      {"0 0 29 2 *", "Europe/Berlin", 3_981_312_000, 9},
		"29 February on a Monday, 40 years":            {"0 0 ? 2 1#5", "Europe/Berlin", 3_900_000_000, 42},
		"the same in real time":                        {"* 0 ? 2 1#5", "Europe/Berlin", 3_900_000_000, 130},
		"days that the clock always skips until 9999":  {"*/5 2 * 3 0L", "Europe/Berlin", 0, 2700},
		"nothing until the end, from a late beginning": {"0 0 29 2 *", "UTC", 253_370_764_800 + 86_400*60, 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z, err := findZone(c.zone)
			require.NoError(t, err)
			f, err := parseExpression(c.expression)
			require.NoError(t, err)
			w := walker{schedule: &Schedule{kind: Cron, zone: z, fields: f}}
			w.next(c.after)
			require.LessOrEqual(t, w.month.loads, c.months)
			require.Positive(t, w.month.loads)
		})
	}
}
