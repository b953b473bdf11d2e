package engine

import (
	"context"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/store"
)

// ledger collects the decisions of a transaction about configs and their slots.
type ledger struct {
	by      string // the server that decides
	fired   []store.FiredSlot
	skipped []store.SkippedSlots
	open    map[id.Config]int // the last of skipped, by config
	events  []event.Event
}

func newLedger(by string) *ledger { return &ledger{by: by, open: map[id.Config]int{}} }

// skip records slots that do not fire. They extend the range before them if the cause is the same and no
// slot fired in between.
func (l *ledger) skip(c *store.ConfigState, r config.Range) {
	continues := !c.RangeFrom.IsZero() && r.Continues(c.Range)
	if i, ok := l.open[c.ID]; continues && ok {
		l.skipped[i].To, l.skipped[i].Slots = r.To, l.skipped[i].Slots+r.Slots
		return
	}
	if continues {
		r.From = c.RangeFrom
	}
	l.open[c.ID] = len(l.skipped)
	l.skipped = append(l.skipped, store.SkippedSlots{ConfigKey: c.Key(), Range: r})
	c.RangeFrom, c.Range = r.From, r
}

// fire records a slot that created a run.
func (l *ledger) fire(c *store.ConfigState, slot time.Time, made id.Run, partitions []string) {
	l.fired = append(l.fired, store.FiredSlot{ConfigKey: c.Key(), At: slot, Run: made, Partitions: partitions})
	delete(l.open, c.ID)
	c.RangeFrom, c.LastSlot, c.LastRun, c.LastState, c.LastRunAt = time.Time{}, slot, &made, 0, time.Time{}
}

// close records the slots that did not fire until now because of an edit, a pause or the like. Later slots
// begin a new range.
func (l *ledger) close(c *store.ConfigState, s *schedule.Schedule, now time.Time, outcome config.Outcome, reason string) {
	if !c.PausedAt.IsZero() {
		outcome, reason = config.SkippedPaused, c.PauseNote
	} else if !c.Enabled {
		outcome, reason = config.SkippedDisabled, c.DisabledReason
	}
	if moved := c.MovedTo; !moved.IsZero() && moved.After(c.DecidedUntil) && !moved.After(now) {
		before, some := c.Gap(s, c.DecidedUntil, moved.Add(-time.Microsecond), outcome, reason)
		if some {
			l.skip(c, before)
		}
		l.skip(c, config.Range{From: moved, To: moved, Slots: 1, Outcome: outcome, Reason: reason, Version: c.Version})
		c.DecidedUntil, c.MovedTo = moved, time.Time{}
	}
	if gap, some := c.Gap(s, c.DecidedUntil, now, outcome, reason); some {
		l.skip(c, gap)
	}
	if now.After(c.DecidedUntil) {
		c.DecidedUntil = now
	}
}

// record applies an event to a config.
func (l *ledger) record(c *store.ConfigState, body event.Body, now time.Time, meta event.Meta) error {
	e := event.Event{Tenant: c.Tenant, Subject: c.ID.UUID, Version: c.Version + 1, At: now, Meta: meta, Body: body}
	next, err := c.Evolve(e)
	if err != nil {
		return err
	}
	c.Config = next
	l.events = append(l.events, e)
	return nil
}

// plan computes when a config is due next.
func (l *ledger) plan(c *store.ConfigState, s *schedule.Schedule) {
	c.NextSlot, c.DueAt = c.Next(s, c.DecidedUntil)
	c.ZoneData = schedule.TZVersion()
}

// write writes the ledger in the transaction.
func (l *ledger) write(ctx context.Context, tx *store.Tx, now time.Time) error {
	if len(l.events) > 0 {
		if err := tx.AppendEntityEvents(ctx, l.events...); err != nil {
			return err
		}
	}
	return tx.WriteLedger(ctx, l.fired, l.skipped, now, l.by)
}
