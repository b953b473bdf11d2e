package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// countedSlots is how many fired slots, and how many ranges of other slots, are counted for one
// answer.
const countedSlots = 20_000

// SlotOutcome counts slots of a config by outcome: of a day, or of ranges over several days.
type SlotOutcome struct {
	First, Last int // days, from 0 on; -1 is before the first, and as many as there are days after the last
	Outcome     config.Outcome
	State       run.State // of their runs, if they fired; 0 if the runs were deleted
	Missed      bool      // a promise about these runs was broken
	Slots       int64
}

// SlotOutcomes counts the outcomes of the slots of a config by day: each day begins at one of the
// bounds and ends at the next. If there are too many slots, oldest is the first that was counted.
func (s *Store) SlotOutcomes(ctx context.Context, key ConfigKey, bounds []time.Time) (outcomes []SlotOutcome, oldest time.Time, err error) {
	return s.slotOutcomes(ctx, key, bounds, countedSlots)
}

func (s *Store) slotOutcomes(ctx context.Context, key ConfigKey, bounds []time.Time, most int64) (outcomes []SlotOutcome, oldest time.Time, err error) {
	var rows []db.SlotOutcomesRow
	err = s.scoped(key.Tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		rows, err = tx.q.SlotOutcomes(ctx, db.SlotOutcomesParams{
			Bounds: bounds, TenantID: key.Tenant.UUID, ConfigID: key.Config.UUID, FromAt: bounds[0], Before: bounds[len(bounds)-1],
			Walk: int32(most), //nolint:gosec // a constant
		})
		return err
	})
	// Of each kind the newest are counted. If both are cut off, the counts are complete from the
	// later of the two times on.
	var lines [2]int64
	var first [2]time.Time
	for _, r := range rows {
		kind := 0
		if config.Outcome(r.Outcome) != config.Fired {
			kind = 1
		}
		lines[kind] += r.Lines
		if first[kind].IsZero() || r.Oldest.Before(first[kind]) {
			first[kind] = r.Oldest
		}
		outcomes = append(outcomes, SlotOutcome{
			First: int(r.FirstDay) - 1, Last: int(r.LastDay) - 1, Outcome: config.Outcome(r.Outcome), State: run.State(r.State), Missed: r.Missed, Slots: r.Slots,
		})
	}
	for kind, n := range lines {
		if n >= most && first[kind].After(oldest) {
			oldest = first[kind]
		}
	}
	return outcomes, oldest, err
}

// RunStates reads the states of runs of a tenant. It omits deleted runs.
func (s *Store) RunStates(ctx context.Context, tenant id.Tenant, runs []id.Run) (map[id.Run]run.State, error) {
	states := make(map[id.Run]run.State, len(runs))
	if len(runs) == 0 {
		return states, nil
	}
	err := s.scoped(tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		found, err := tx.runsByKey(ctx, column(runs, func(id.Run) uuid.UUID { return tenant.UUID }), column(runs, func(r id.Run) uuid.UUID { return r.UUID }))
		for _, r := range found {
			states[id.Of[id.Run](r.ID)] = run.State(r.State)
		}
		return err
	})
	return states, err
}
