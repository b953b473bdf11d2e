// Package tenant defines tenants, their workspaces and quotas, and the active deployment of each
// workspace. It is pure.
package tenant

import (
	"fmt"
	"regexp"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// DefaultWorkspace is the first workspace of every tenant.
const DefaultWorkspace = "default"

type (
	// Created creates a tenant.
	Created struct {
		Name   string  `json:"name"`
		Quotas *Quotas `json:"quotas,omitempty"` // nil: the default at the time of the event
	}
	// QuotasSet replaces all quotas of a tenant.
	QuotasSet struct {
		Quotas Quotas `json:"quotas"`
	}
	// WorkspaceCreated creates a workspace.
	WorkspaceCreated struct {
		Name string `json:"name"`
	}
	// DeploymentRegistered creates a deployment; its manifest is stored by its digest.
	DeploymentRegistered struct {
		Workspace id.Workspace `json:"workspace"`
		Digest    string       `json:"digest"`
	}
	// ChannelFollowed makes a workspace use the releases of a channel; "" returns to its own deployments.
	ChannelFollowed struct {
		Channel string `json:"channel"`
	}
	// LabelsSet replaces the labels of a tenant: JSON with sorted keys, "" for none.
	LabelsSet struct {
		Labels string `json:"labels"`
	}
	// DeploymentActivated activates a deployment: new runs of the workspace use it.
	DeploymentActivated struct {
		Deployment id.Deployment `json:"deployment"`
	}
)

// EventType implements event.Body.
func (Created) EventType() event.Type              { return "tenant.created" }
func (QuotasSet) EventType() event.Type            { return "tenant.quotas_set" }
func (WorkspaceCreated) EventType() event.Type     { return "workspace.created" }
func (DeploymentRegistered) EventType() event.Type { return "deployment.registered" }
func (DeploymentActivated) EventType() event.Type  { return "workspace.deployment_activated" }
func (ChannelFollowed) EventType() event.Type      { return "workspace.channel_followed" }
func (LabelsSet) EventType() event.Type            { return "tenant.labels_set" }

// Events declares every event of this package.
func Events() []event.Definition {
	return []event.Definition{
		event.Define[Created](),
		event.Define[QuotasSet](),
		event.Define[WorkspaceCreated](),
		event.Define[DeploymentRegistered](),
		event.Define[DeploymentActivated](),
		event.Define[ChannelFollowed](),
		event.Define[LabelsSet](),
		event.Define[AssetPaused](),
		event.Define[AssetResumed](),
	}
}

// Entity is the state of a tenant, a workspace or a deployment.
type Entity struct {
	Version   int32
	Kind      Kind
	Name      string // of a tenant or a workspace
	Quotas    Quotas // of a tenant
	Active    id.Deployment
	Channel   string       // that a workspace follows
	Labels    string       // of a tenant
	Paused    Pauses       // of a workspace
	Workspace id.Workspace // of a deployment
	Digest    string
	CreatedAt time.Time
}

// Kind is the kind of an entity.
type Kind string

// The kinds of entities.
const (
	KindTenant     Kind = "tenant"
	KindWorkspace  Kind = "workspace"
	KindDeployment Kind = "deployment"
)

// Evolve applies one event to the entity.
func (en Entity) Evolve(e event.Event) (Entity, error) {
	if err := e.Follows(en.Version); err != nil {
		return en, err
	}
	en.Version = e.Version
	if en.Version == 1 {
		en.CreatedAt = e.At
	}
	switch body := e.Body.(type) {
	case Created:
		en.Kind, en.Name, en.Quotas = KindTenant, body.Name, firstQuotas()
		if body.Quotas != nil {
			en.Quotas = *body.Quotas
		}
	case QuotasSet:
		en.Quotas = body.Quotas
	case WorkspaceCreated:
		en.Kind, en.Name = KindWorkspace, body.Name
	case DeploymentRegistered:
		en.Kind, en.Workspace, en.Digest = KindDeployment, body.Workspace, body.Digest
	case DeploymentActivated:
		en.Active = body.Deployment
	case ChannelFollowed:
		en.Channel = body.Channel
	case LabelsSet:
		en.Labels = body.Labels
	case AssetPaused:
		en.Paused = en.Paused.with(body, e)
	case AssetResumed:
		en.Paused = en.Paused.without(body)
	default:
		return en, e.Unexpected()
	}
	return en, nil
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,98}[a-z0-9])?$`)

// ValidateName checks the name of a tenant or a workspace.
func ValidateName(field, name string) error {
	if !validName.MatchString(name) {
		return fault.Invalid(field, fmt.Sprintf("%.100q is not a valid name", name), "use 1 to 100 lower-case letters, digits and inner hyphens, such as acme-prod")
	}
	return nil
}
