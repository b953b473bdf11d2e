// Package event defines the envelope of recorded events and the codec that converts bodies to JSON
// and back, across versions of Servo. It knows no concrete event: each domain package declares its
// own.
package event

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// Type is the permanent name of a kind of event: "task.claimed".
type Type string

// Body is the content of an event, a plain struct with JSON tags.
type Body interface {
	EventType() Type
}

// Event is a body with its tenant, stream, version and time.
type Event struct {
	Tenant  id.Tenant
	Run     id.Run    // zero for events of entities
	Subject uuid.UUID // the stream: a task, a run, or an entity
	Version int32     // of the stream; the first event is 1
	At      time.Time // the database's time of the transaction
	Meta    Meta
	Body    Body
}

// Meta names the actor and the trace of an event.
type Meta struct {
	Actor string
	Trace string
}

// Follows returns an error unless the event is the next one after a version of its stream.
func (e Event) Follows(version int32) error {
	if e.Version != version+1 {
		return fmt.Errorf("%s: event %s has version %d, expected %d", e.Subject, e.Body.EventType(), e.Version, version+1)
	}
	return nil
}

// Unexpected is the error of an event that the state of its stream does not permit.
func (e Event) Unexpected() error {
	return fmt.Errorf("%s: unexpected event %s", e.Subject, e.Body.EventType())
}

// Check returns an error unless the event is the next one of a stream that begins with an event of
// type First, has no second one, and has no events after its end.
func Check[First Body](e Event, version int32, ended bool) error {
	if err := e.Follows(version); err != nil {
		return err
	}
	if _, first := e.Body.(First); first != (version == 0) || ended {
		return e.Unexpected()
	}
	return nil
}

// Definition declares one type of event to a codec.
type Definition struct {
	Type   Type
	Schema int16 // the version of the body's shape that this version of Servo writes
	Decode func(json.RawMessage) (Body, error)
	// Upcast converts a body of schema n to n+1, keyed by n.
	Upcast map[int16]func(json.RawMessage) (json.RawMessage, error)
}

// Define declares the first schema of T's type. Later schemas add Upcast entries.
func Define[T Body]() Definition {
	var zero T
	return Definition{Type: zero.EventType(), Schema: 1, Decode: decode[T]}
}

func decode[T Body](data json.RawMessage) (Body, error) {
	var body T
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, err
	}
	return body, nil
}

// Codec converts bodies of the declared types to JSON and back.
type Codec struct {
	definitions map[Type]Definition
}

// NewCodec returns a codec; declaring a type twice panics.
func NewCodec(definitions ...Definition) *Codec {
	c := &Codec{definitions: make(map[Type]Definition, len(definitions))}
	for _, d := range definitions {
		if _, twice := c.definitions[d.Type]; twice {
			panic("event: " + string(d.Type) + " is declared twice")
		}
		c.definitions[d.Type] = d
	}
	return c
}

// Types returns the declared types with the schema that this version of Servo writes.
func (c *Codec) Types() map[Type]int16 {
	types := make(map[Type]int16, len(c.definitions))
	for t, d := range c.definitions {
		types[t] = d.Schema
	}
	return types
}

// Encode returns a body's schema and JSON.
func (c *Codec) Encode(body Body) (schema int16, data []byte, err error) {
	d, known := c.definitions[body.EventType()]
	if !known {
		return 0, nil, fmt.Errorf("event type %q is not declared", body.EventType())
	}
	data, err = json.Marshal(body)
	return d.Schema, data, err
}

// Decode decodes a recorded body and converts older schemas to the current one. A body of a newer
// version is refused: decisions need the whole stream.
func (c *Codec) Decode(t Type, schema int16, data json.RawMessage) (Body, error) {
	d, known := c.definitions[t]
	if !known || schema > d.Schema {
		return nil, fault.New(fault.Conflict, fmt.Sprintf("event %s (schema %d) was written by a newer version of Servo", t, schema),
			fault.Remedy("upgrade this server before it works on this stream"))
	}
	for ; schema < d.Schema; schema++ {
		lift, ok := d.Upcast[schema]
		if !ok {
			return nil, fmt.Errorf("event %s has no upcaster from schema %d", t, schema)
		}
		var err error
		if data, err = lift(data); err != nil {
			return nil, fmt.Errorf("event %s: upcast from schema %d: %w", t, schema, err)
		}
	}
	body, err := d.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", t, err)
	}
	return body, nil
}
