package api

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// past returns the key of a config that may be deleted.
func (s configService) past(ctx context.Context, req configRequest) (store.ConfigKey, error) {
	found, err := s.findAny(ctx, req)
	return found.Key(), err
}

// ListSlots implements servov1.ConfigServiceServer.
func (s configService) ListSlots(ctx context.Context, req *servov1.ListSlotsRequest) (*servov1.ListSlotsResponse, error) {
	key, err := s.past(ctx, req)
	if err != nil {
		return nil, err
	}
	from, err := timeOf("from", req.GetFrom())
	if err != nil {
		return nil, err
	}
	before, err := timeOf("to", req.GetTo())
	if err != nil {
		return nil, err
	}
	if before.IsZero() {
		before = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	}
	var states map[id.Run]run.State
	slots, next, err := list(req, func(p page) ([]store.LedgerEntry, error) {
		if p.after != "" {
			if before, err = time.Parse(time.RFC3339Nano, p.after); err != nil {
				return nil, notAToken()
			}
		}
		entries, err := s.store.ListSlots(ctx, key, from, before, p.size+1)
		if err == nil {
			states, err = s.store.RunStates(ctx, key.Tenant, firedRuns(entries))
		}
		return entries, err
	}, func(e store.LedgerEntry) string { return e.From.UTC().Format(time.RFC3339Nano) }, // no two entries begin with the same slot
		nil, func(e store.LedgerEntry) (*servov1.Slots, error) { return slotsToProto(e, states), nil })
	return &servov1.ListSlotsResponse{Slots: slots, NextPageToken: next}, err
}

func slotsToProto(e store.LedgerEntry, states map[id.Run]run.State) *servov1.Slots {
	out := &servov1.Slots{
		From: timestamp(e.From), To: timestamp(e.To), Count: e.Slots, Outcome: servov1.Slots_Outcome(e.Outcome), Reason: e.Reason,
		ConfigVersion: e.Version, DecidedAt: timestamp(e.DecidedAt), DecidedBy: e.DecidedBy, Partitions: e.Partitions,
	}
	if e.Run != nil {
		out.Run = e.Run.String()
	}
	if e.Outcome == config.Fired {
		out.State = servov1.Run_State(states[*e.Run])
	}
	return out
}

// firedRuns returns the runs that slots have created.
func firedRuns(entries []store.LedgerEntry) (runs []id.Run) {
	for _, e := range entries {
		if e.Outcome == config.Fired {
			runs = append(runs, *e.Run)
		}
	}
	return runs
}

// auditBatch is how many events of a config are read at once.
const auditBatch = 500

// ListConfigAudit implements servov1.ConfigServiceServer.
func (s configService) ListConfigAudit(ctx context.Context, req *servov1.ListConfigAuditRequest) (*servov1.ListConfigAuditResponse, error) {
	key, err := s.past(ctx, req)
	if err != nil {
		return nil, err
	}
	entries, next, err := list(req, func(p page) ([]change, error) {
		before, err := indexPosition(p)
		if err != nil {
			return nil, err
		}
		if before == store.BeforeFirst {
			before = math.MaxInt32
		}
		return s.changes(ctx, key, before, p.size+1)
	}, func(c change) string { return strconv.Itoa(int(c.event.Version)) },
		func(c change) int { return len(c.before.Spec.Parameters) + len(c.after.Spec.Parameters) }, auditEntry)
	return &servov1.ListConfigAuditResponse{Entries: entries, NextPageToken: next}, err
}

// change is a change of a config, with the config before and after it.
type change struct {
	event         event.Event
	before, after config.Config
}

// changes returns the last changes before a version, the newest first. The state before and after a
// change follows from all earlier events, so that it reads them from the first one on.
func (s configService) changes(ctx context.Context, key store.ConfigKey, before int32, most int) ([]change, error) {
	var c config.Config
	var last []change
	for done := false; !done; {
		events, err := s.store.ConfigEvents(ctx, key, c.Version, auditBatch)
		if err != nil {
			return nil, err
		}
		done = len(events) < auditBatch
		for _, e := range events {
			if e.Version >= before {
				done = true
				break
			}
			was := c
			if c, err = c.Evolve(e); err != nil {
				return nil, err
			}
			if last = append(last, change{event: e, before: was, after: c}); len(last) > most {
				last = last[1:]
			}
		}
	}
	slices.Reverse(last)
	return last, nil
}

func auditEntry(c change) (*servov1.ConfigAudit, error) {
	e := c.event
	out := &servov1.ConfigAudit{
		Version: e.Version, Action: strings.TrimPrefix(string(e.Body.EventType()), "config."), Actor: e.Meta.Actor, At: timestamp(e.At),
		Reason: reasonOf(e.Body), Trace: telemetry.Parent(e.Meta.Trace),
	}
	var err error
	if c.before.Version > 0 {
		if out.Before, err = definition(c.before); err != nil {
			return nil, err
		}
	}
	if c.after.DeletedAt.IsZero() {
		out.After, err = definition(c.after)
	}
	return out, err
}

func reasonOf(body event.Body) string {
	switch b := body.(type) {
	case config.Created:
		return b.Reason
	case config.Changed:
		return b.Reason
	case config.Paused:
		return b.Note
	case config.Resumed:
		return b.Note
	case config.Disabled:
		return b.Reason
	case config.Enabled:
		return b.Reason
	case config.Moved:
		return b.Reason
	case config.Deleted:
		return b.Reason
	}
	return ""
}
