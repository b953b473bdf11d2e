package subscription

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
)

// The limits of one call. A larger event is sent alone.
const (
	MaxEvents = 100
	MaxBytes  = 256 << 10
)

// Recorded is an event of the feed.
type Recorded struct {
	At        event.Position
	Tenant    id.Tenant // zero for events of the installation
	Run       id.Run    // zero for events of entities
	Workspace string    // of the run; set only if a filter needs it
	Pipeline  string    // likewise
	Stream    string    // its subject: an id, or the name of an entity of the installation
	Version   int32     // orders the stream; the order of the feed does not
	Time      time.Time
	Schema    int16
	Type      event.Type
	Actor     string
	Trace     string
	Data      json.RawMessage
}

// ByOrigin reports whether the filter depends on the workspace or pipeline of runs.
func (s Settings) ByOrigin() bool { return s.Workspace != "" || s.Pipeline != "" }

// Wants reports whether an event matches a subscription. A tenant's subscription never matches events
// of another tenant.
func (s Subscription) Wants(e Recorded) bool {
	if s.Tenant != (id.Tenant{}) && s.Tenant != e.Tenant {
		return false
	}
	if s.ByOrigin() && (e.Run == (id.Run{}) || s.Workspace != "" && s.Workspace != e.Workspace || s.Pipeline != "" && s.Pipeline != e.Pipeline) {
		return false
	}
	return len(s.Types) == 0 || slices.ContainsFunc(s.Types, func(p string) bool { return matches(p, string(e.Type)) })
}

// Batch is the content of one call.
type Batch struct {
	ID     string // the same for a repeated call
	Body   []byte // a JSON array
	Events int
	Upto   event.Position // of the last event that it covers, sent or filtered out
}

// item is an event in the format of receivers.
type item struct {
	ID      string          `json:"id"`
	Type    event.Type      `json:"type"`
	Schema  int16           `json:"schema"`
	Tenant  string          `json:"tenant,omitempty"`
	Stream  string          `json:"stream"`
	Run     string          `json:"run,omitempty"`
	Version int32           `json:"version"`
	Time    time.Time       `json:"time"`
	Actor   string          `json:"actor,omitempty"`
	Trace   string          `json:"trace,omitempty"`
	Data    json.RawMessage `json:"data"`
}

// Batches splits consecutive events of the feed into calls. The last one covers all events; its body
// is empty if there is nothing to send.
func (s Subscription) Batches(events []Recorded) ([]Batch, error) {
	var (
		all     []Batch
		current Batch
		first   string
	)
	end := func() {
		current.Body = append(current.Body, ']')
		current.ID = "sub_" + s.ID.String() + "_" + first + "_" + current.ID
		all = append(all, current)
		current = Batch{Upto: current.Upto}
	}
	for _, e := range events {
		if !s.Wants(e) {
			current.Upto = e.At
			continue
		}
		sent := item{
			ID: e.At.String(), Type: e.Type, Schema: e.Schema, Stream: e.Stream, Version: e.Version, Time: e.Time.UTC(), Actor: e.Actor, Trace: traceparent(e.Trace), Data: e.Data,
		}
		if e.Tenant != (id.Tenant{}) {
			sent.Tenant = e.Tenant.String()
		}
		if e.Run != (id.Run{}) {
			sent.Run = e.Run.String()
		}
		text, err := json.Marshal(sent)
		if err != nil {
			return nil, err
		}
		if current.Events == MaxEvents || current.Events > 0 && len(current.Body)+len(text)+2 > MaxBytes {
			end()
		}
		if current.Events == 0 {
			current.Body, first = append(current.Body, '['), sent.ID
		} else {
			current.Body = append(current.Body, ',')
		}
		current.Body = append(current.Body, text...)
		current.Events++
		current.ID, current.Upto = sent.ID, e.At
	}
	if current.Events > 0 {
		end()
	} else if n := len(all); n > 0 {
		all[n-1].Upto = current.Upto
	} else if len(events) > 0 {
		all = append(all, current)
	}
	return all, nil
}

// traceparent returns the first part of a recorded trace; the tracestate follows a space.
func traceparent(recorded string) string {
	parent, _, _ := strings.Cut(recorded, " ")
	return parent
}
