package api

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// past finds a config whose history is asked for: by its id it may be deleted.
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
	page, err := pageOf(req)
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
	if page.after != "" {
		if before, err = time.Parse(time.RFC3339Nano, page.after); err != nil {
			return nil, intercept.BadPageToken("is not a page token")
		}
	}
	entries, err := s.store.ListSlots(ctx, key, from, before, page.size+1)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListSlotsResponse{}
	// No two entries begin with the same slot: that is the place to go on from.
	entries, answer.NextPageToken = cut(page, entries, small[store.LedgerEntry], func(e store.LedgerEntry) string { return e.From.UTC().Format(time.RFC3339Nano) })
	states, err := s.store.RunStates(ctx, key.Tenant, firedRuns(entries))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		out := &servov1.Slots{
			From: timestamp(e.From), To: timestamp(e.To), Count: e.Slots, Outcome: servov1.Slots_Outcome(e.Outcome), Reason: e.Reason,
			ConfigVersion: e.Version, DecidedAt: timestamp(e.DecidedAt), DecidedBy: e.DecidedBy,
		}
		if e.Run != nil {
			out.Run = e.Run.String()
		}
		if e.Outcome == config.Fired {
			out.State = servov1.Run_State(states[*e.Run])
		}
		answer.Slots = append(answer.Slots, out)
	}
	return answer, nil
}

// firedRuns are the runs that slots have made.
func firedRuns(entries []store.LedgerEntry) (runs []id.Run) {
	for _, e := range entries {
		if e.Outcome == config.Fired {
			runs = append(runs, *e.Run)
		}
	}
	return runs
}

// auditBatch is how many events are read at once to see what a config said.
const auditBatch = 500

// ListConfigAudit implements servov1.ConfigServiceServer.
func (s configService) ListConfigAudit(ctx context.Context, req *servov1.ListConfigAuditRequest) (*servov1.ListConfigAuditResponse, error) {
	key, err := s.past(ctx, req)
	if err != nil {
		return nil, err
	}
	page, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	before, err := indexPosition(page)
	if err != nil {
		return nil, err
	}
	if before == store.BeforeFirst {
		before = math.MaxInt32
	}
	entries, err := s.audit(ctx, key, before, page.size+1)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListConfigAuditResponse{}
	answer.Entries, answer.NextPageToken = cut(page, entries,
		func(e *servov1.ConfigAudit) int { return proto.Size(e) }, func(e *servov1.ConfigAudit) string { return strconv.Itoa(int(e.GetVersion())) })
	return answer, nil
}

// change is something that was done to a config, and what it said before and after.
type change struct {
	event         event.Event
	before, after config.Config
}

// audit reads what was done before a version, the newest first. What the config said is what all
// events up to there make of it: they are read from the first one on, and the last are kept.
func (s configService) audit(ctx context.Context, key store.ConfigKey, before int32, most int) (entries []*servov1.ConfigAudit, err error) {
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
	for _, c := range slices.Backward(last) {
		entry, err := auditEntry(c.event, c.before, c.after)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

func auditEntry(e event.Event, before, after config.Config) (*servov1.ConfigAudit, error) {
	out := &servov1.ConfigAudit{
		Version: e.Version, Action: strings.TrimPrefix(string(e.Body.EventType()), "config."), Actor: e.Meta.Actor, At: timestamp(e.At),
		Reason: reasonOf(e.Body), Trace: telemetry.Parent(e.Meta.Trace),
	}
	var err error
	if before.Version > 0 {
		if out.Before, err = said(before); err != nil {
			return nil, err
		}
	}
	if after.DeletedAt.IsZero() {
		out.After, err = said(after)
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
