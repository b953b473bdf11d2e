package alert

import (
	"encoding/json"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/webhook"
)

// Change is the change of an alert that a message reports.
type Change int16

// The changes, in their order.
const (
	Begun Change = iota + 1
	Ended
)

// String names the change.
func (c Change) String() string {
	switch c {
	case Begun:
		return "raised"
	case Ended:
		return "resolved"
	}
	return fmt.Sprintf("Change(%d)", int16(c))
}

// Message reports one change of an alert to one channel.
type Message struct {
	Alert   Alert
	Tenant  string // its name; "" for the installation
	Channel Channel
	Change  Change
	Secret  []byte
	Tries   int       // failed attempts so far
	Since   time.Time // when it was created
}

// payload is the body of a message.
type payload struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      data      `json:"data"`
}

type data struct {
	ID         string     `json:"id"`
	Kind       Kind       `json:"kind"`
	Severity   string     `json:"severity"`
	State      string     `json:"state"`
	Tenant     string     `json:"tenant,omitempty"`
	About      string     `json:"about,omitempty"`
	Name       string     `json:"name,omitempty"`
	Message    string     `json:"message"`
	RaisedAt   time.Time  `json:"raised_at"`
	ResolvedAt *time.Time `json:"resolved_at,omitempty"`
}

// ID is the same for each attempt and unique among messages, so that receivers can detect
// duplicates.
func (m Message) ID() string { return "alert_" + m.Alert.ID.String() + "_" + m.Change.String() }

// Body returns the body to send, which is the same for each attempt.
func (m Message) Body() ([]byte, error) {
	a := m.Alert
	p := payload{Type: "alert." + m.Change.String(), Timestamp: a.RaisedAt.UTC(), Data: data{
		ID: a.ID.String(), Kind: a.Kind, Severity: a.Severity.String(), State: "OPEN", Tenant: m.Tenant, Name: a.Name, Message: a.Message, RaisedAt: a.RaisedAt.UTC(),
	}}
	if a.About != [16]byte{} {
		p.Data.About = a.About.String()
	}
	if m.Change == Ended {
		at := a.ResolvedAt.UTC()
		p.Timestamp, p.Data.State, p.Data.ResolvedAt = at, "RESOLVED", &at
	}
	return json.Marshal(p)
}

// TestMessage returns the body of a message about no alert.
func TestMessage(tenant, channel, messageID string, at time.Time) ([]byte, error) {
	return json.Marshal(payload{Type: "alert.test", Timestamp: at.UTC(), Data: data{
		ID: messageID, Kind: "TEST", Severity: Low.String(), State: "RESOLVED", Tenant: tenant, Name: channel,
		Message: "test message of servo alerts channels test; no alert is open because of it", RaisedAt: at.UTC(), ResolvedAt: new(at.UTC()),
	}})
}

// The limits of retries.
const (
	firstWait = 5 * time.Second
	maxWait   = time.Hour
	giveUp    = 24 * time.Hour
)

// Again returns when a message is retried after a failed attempt, and whether it is.
func (m Message) Again(now time.Time) (at time.Time, again bool) {
	at = now.Add(webhook.Wait(m.Tries, firstWait, maxWait))
	return at, at.Before(m.Since.Add(giveUp))
}
