package alert

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
)

// Kind is the kind of an alert.
type Kind string

// The kinds of alerts.
const (
	PipelineFailed   Kind = "PIPELINE_FAILED"   // a config has failed
	PipelineFailing  Kind = "PIPELINE_FAILING"  // a config has failed several times in a row
	PipelineDisabled Kind = "PIPELINE_DISABLED" // its failures have disabled it
	RunLate          Kind = "RUN_LATE"          // a run of a config started too late, or has not started
	RunOverran       Kind = "RUN_OVERRAN"       // a run of a config exceeded its max_execution
	SLABreaches      Kind = "SLA_BREACHES"      // a tenant has many SLA breaches today
	ScheduleLag      Kind = "SCHEDULE_LAG"      // configs are overdue
	RolloutStopped   Kind = "ROLLOUT_STOPPED"   // a release failed more often, and its channel was rolled back
	RolloutWaits     Kind = "ROLLOUT_WAITS"     // a rollout lacks runs to judge, and waits for a decision
	BackfillFailed   Kind = "BACKFILL_FAILED"   // a backfill has failed
	BackfillPaused   Kind = "BACKFILL_PAUSED"   // a backfill is paused
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{PipelineFailed, PipelineFailing, PipelineDisabled, RunLate, RunOverran, SLABreaches, ScheduleLag, RolloutStopped, RolloutWaits, BackfillFailed, BackfillPaused}
}

// The thresholds of the rules.
const (
	FailingAt  = 3           // consecutive failures
	BreachesAt = 10          // in a day
	LagAt      = time.Minute // by which a config is overdue
)

// Severity is how urgent an alert is.
type Severity int16

// The severities, the least first.
const (
	Low Severity = iota + 1
	Medium
	High
	Critical
)

// String names the severity.
func (s Severity) String() string {
	switch s {
	case Low:
		return "LOW"
	case Medium:
		return "MEDIUM"
	case High:
		return "HIGH"
	case Critical:
		return "CRITICAL"
	}
	return fmt.Sprintf("Severity(%d)", int16(s))
}

// Severity returns the severity of alerts of the kind.
func (k Kind) Severity() Severity {
	switch k {
	case PipelineDisabled, ScheduleLag, RolloutStopped:
		return High
	case PipelineFailing, RunLate, RunOverran, SLABreaches, RolloutWaits, BackfillFailed:
		return Medium
	case PipelineFailed, BackfillPaused:
	}
	return Low
}

type (
	// Raised opens an alert.
	Raised struct {
		Kind     Kind      `json:"kind"`
		Severity Severity  `json:"severity"`
		About    uuid.UUID `json:"about"` // a config, a tenant, or zeros for the installation
		Name     string    `json:"name,omitempty"`
		Message  string    `json:"message"`
	}
	// Resolved closes it.
	Resolved struct{}
)

// EventType implements event.Body.
func (Raised) EventType() event.Type   { return "alert.raised" }
func (Resolved) EventType() event.Type { return "alert.resolved" }

// Events declares every event of this package.
func Events() []event.Definition {
	return []event.Definition{
		event.Define[Raised](),
		event.Define[Resolved](),
		event.Define[ChannelCreated](),
		event.Define[ChannelDeleted](),
	}
}

// Alert is one period in which a condition holds.
type Alert struct {
	Tenant   id.Tenant // zero for the installation
	ID       id.Alert
	Version  int32
	Kind     Kind
	Severity Severity
	About    uuid.UUID
	Name     string // of its subject: WORKSPACE/CONFIG
	Message  string

	RaisedAt   time.Time
	ResolvedAt time.Time // zero while it is open
}

// Evolve applies one event to the alert.
func (a Alert) Evolve(e event.Event) (Alert, error) {
	if err := event.Check[Raised](e, a.Version, !a.ResolvedAt.IsZero()); err != nil {
		return a, err
	}
	switch body := e.Body.(type) {
	case Raised:
		a = Alert{
			Tenant: e.Tenant, ID: id.Of[id.Alert](e.Subject), Kind: body.Kind, Severity: body.Severity, About: body.About,
			Name: body.Name, Message: body.Message, RaisedAt: e.At,
		}
	case Resolved:
		a.ResolvedAt = e.At
	default:
		return a, e.Unexpected()
	}
	a.Version = e.Version
	return a, nil
}

// Key identifies the condition of an alert: at most one alert of a key is open.
type Key struct {
	Tenant id.Tenant
	Kind   Kind
	About  uuid.UUID
}

// Key returns the key of the alert.
func (a Alert) Key() Key { return Key{Tenant: a.Tenant, Kind: a.Kind, About: a.About} }
