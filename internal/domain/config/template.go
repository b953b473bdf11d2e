package config

import (
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/schedule"
)

type (
	// TemplateSet creates or replaces a template.
	TemplateSet struct {
		Name        string `json:"name"`
		Cron        string `json:"cron"`
		Description string `json:"description,omitempty"`
	}
	// TemplateDeleted deletes it. Its name is free again.
	TemplateDeleted struct{}
)

// EventType implements event.Body.
func (TemplateSet) EventType() event.Type     { return "template.set" }
func (TemplateDeleted) EventType() event.Type { return "template.deleted" }

// Template is a tenant's own named schedule.
type Template struct {
	Tenant      id.Tenant
	ID          id.Template
	Name        string
	Cron        string
	Description string
	Version     int32
	ChangedBy   string
	CreatedAt   time.Time
	UpdatedAt   time.Time
	Deleted     bool
}

// Evolve applies one event to the template.
func (t Template) Evolve(e event.Event) (Template, error) {
	if err := e.Follows(t.Version); err != nil {
		return t, err
	}
	if t.Deleted {
		return t, e.Unexpected()
	}
	t.Version, t.UpdatedAt, t.ChangedBy = e.Version, e.At, e.Meta.Actor
	switch body := e.Body.(type) {
	case TemplateSet:
		if t.Version == 1 {
			t.Tenant, t.ID, t.Name, t.CreatedAt = e.Tenant, id.Of[id.Template](e.Subject), body.Name, e.At
		} else if t.Name != body.Name {
			return t, fmt.Errorf("template %s: its name is %s, not %s", e.Subject, t.Name, body.Name)
		}
		t.Cron, t.Description = body.Cron, body.Description
	case TemplateDeleted:
		if t.Version == 1 {
			return t, e.Unexpected()
		}
		t.Deleted = true
	default:
		return t, e.Unexpected()
	}
	return t, nil
}

// MaxTemplates is the maximum number of a tenant's own templates.
const MaxTemplates = 150

// ValidateTemplate checks a template. It has no zone: each config that uses it has its own.
func ValidateTemplate(name, cron, description string) error {
	if err := fault.CheckName(name, "weekdays-6am"); err != nil {
		return err
	}
	if _, builtIn := schedule.Resolve(name); builtIn {
		return fault.Invalid("name", name+" is the name of a built-in template", "choose another name")
	}
	if err := ValidateNote("description", description); err != nil {
		return err
	}
	if (Trigger{Cron: cron}).elapsed() {
		return fault.Invalid("cron", "an interval cannot be a template, because it counts from the creation of each config", "set the interval in the trigger of the config")
	}
	_, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: cron}, DefaultTimezone)
	if f, ok := fault.As(err); ok {
		named := *f
		named.Violation.Field = "cron"
		return &named
	}
	return err
}
