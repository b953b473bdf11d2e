package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// maxNextSlots bounds the counted future slots: a week of one each minute and more.
const maxNextSlots = 12_000

// GetOutcomes implements servov1.ConfigServiceServer.
func (s configService) GetOutcomes(ctx context.Context, req *servov1.GetOutcomesRequest) (*servov1.ConfigOutcomes, error) {
	found, err := s.findAny(ctx, req)
	if err != nil {
		return nil, err
	}
	key, name := found.Key(), cmp.Or(req.GetTimezone(), found.Spec.Timezone, "UTC")
	zone, err := schedule.Location(name)
	if err != nil {
		return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("%.100q is not a time zone", name), fault.Field("timezone"),
			fault.Remedy("use an IANA name, such as Europe/Berlin"))
	}
	now, err := s.clock(ctx, key.Tenant)
	if err != nil {
		return nil, err
	}
	year, month, day := now.In(zone).Date()
	first, last, err := metricsDays(req.GetFrom(), req.GetTo(), time.Date(year, month, day, 0, 0, 0, 0, time.UTC))
	if err != nil {
		return nil, err
	}
	days := newOutcomeDays(first, last, zone)
	outcomes, oldest, err := s.store.SlotOutcomes(ctx, key, days.bounds)
	if err != nil {
		return nil, err
	}
	days.count(outcomes)
	answer := &servov1.ConfigOutcomes{Timezone: name, From: first.Format(time.DateOnly), To: last.Format(time.DateOnly), CountedFrom: timestamp(oldest)}
	if after := later(now, found.DecidedUntil); found.Fires() && after.Before(days.end()) {
		come, more, err := futureSlots(found, after, days.end())
		if err != nil {
			return nil, err
		}
		for _, slot := range come {
			days.next(slot)
		}
		if more {
			answer.CountedTo = timestamp(come[len(come)-1])
		}
	}
	answer.Days = days.filled()
	return answer, nil
}

// futureSlots returns the slots of a config between two times, and whether there are more than it
// counts. A rescheduled slot replaces the slots before it.
func futureSlots(c store.ConfigView, after, end time.Time) (slots []time.Time, more bool, err error) {
	sched, err := c.Spec.Schedule()
	if err != nil {
		return nil, false, err
	}
	if c.MovedTo.After(after) {
		slots, after = append(slots, c.MovedTo), c.MovedTo
	}
	if sched.Timed() && after.Before(end) {
		timed, _ := sched.Slots(after, end, maxNextSlots)
		more = len(timed) == maxNextSlots
		slots = append(slots, timed...)
	}
	return slots, more, nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// outcomeDays counts outcomes by day of a time zone.
type outcomeDays struct {
	bounds []time.Time // where each begins; the last is where the last ends
	days   []*servov1.DayOutcomes
	any    []bool // something was counted
}

func newOutcomeDays(first, last time.Time, zone *time.Location) *outcomeDays {
	d := &outcomeDays{}
	for date := first; !date.After(last); date = date.AddDate(0, 0, 1) {
		from := tenant.StartOfDay(date.Year(), date.Month(), date.Day(), zone)
		to := tenant.StartOfDay(date.Year(), date.Month(), date.Day()+1, zone)
		if len(d.bounds) == 0 {
			d.bounds = append(d.bounds, from)
		}
		d.bounds = append(d.bounds, to)
		d.days = append(d.days, &servov1.DayOutcomes{Day: date.Format(time.DateOnly), From: timestamp(from), To: timestamp(to)})
	}
	d.any = make([]bool, len(d.days))
	return d
}

func (d *outcomeDays) end() time.Time { return d.bounds[len(d.bounds)-1] }

// count adds what has become of slots to their days.
func (d *outcomeDays) count(outcomes []store.SlotOutcome) {
	for _, o := range outcomes {
		for i := max(o.First, 0); i <= min(o.Last, len(d.days)-1); i++ {
			d.any[i] = true
			if o.Outcome == config.Fired {
				addRuns(d.days[i], o)
				continue
			}
			skipped := skippedOf(d.days[i], servov1.Slots_Outcome(o.Outcome))
			if o.First == o.Last {
				skipped.Slots += o.Slots
			} else {
				skipped.More = true
			}
		}
	}
}

func addRuns(day *servov1.DayOutcomes, o store.SlotOutcome) {
	if o.Missed {
		day.SlaMissed += o.Slots
	}
	switch o.State {
	case run.RunSucceeded:
		day.Succeeded += o.Slots
	case run.RunFailed:
		day.Failed += o.Slots
	case run.RunTimedOut:
		day.TimedOut += o.Slots
	case run.RunCancelled:
		day.Cancelled += o.Slots
	case run.RunRunning, run.RunCancelling:
		day.Running += o.Slots
	case run.RunPending:
		day.Waiting += o.Slots
	default:
		day.Unknown += o.Slots
	}
}

// skippedOf is where slots of a day are counted that did not fire for a cause; causes come in
// their own order.
func skippedOf(day *servov1.DayOutcomes, outcome servov1.Slots_Outcome) *servov1.SkippedOutcome {
	at, known := slices.BinarySearchFunc(day.GetSkipped(), outcome, func(s *servov1.SkippedOutcome, o servov1.Slots_Outcome) int {
		return cmp.Compare(s.GetOutcome(), o)
	})
	if !known {
		day.Skipped = slices.Insert(day.GetSkipped(), at, &servov1.SkippedOutcome{Outcome: outcome})
	}
	return day.GetSkipped()[at]
}

// next adds a slot that comes.
func (d *outcomeDays) next(slot time.Time) {
	at, begins := slices.BinarySearchFunc(d.bounds, slot, time.Time.Compare)
	if !begins {
		at--
	}
	if at >= 0 && at < len(d.days) {
		d.days[at].Next++
		d.any[at] = true
	}
}

// filled are the days on which there is something.
func (d *outcomeDays) filled() (days []*servov1.DayOutcomes) {
	for i, day := range d.days {
		if d.any[i] {
			days = append(days, day)
		}
	}
	return days
}
