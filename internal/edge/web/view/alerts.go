package view

import (
	"cmp"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// AlertsModel is the alerts and channels of a tenant, or of the installation.
type AlertsModel struct {
	Paging

	Scope          Scope
	Kind, State    string
	Open, Resolved []*servov1.Alert
	MoreOpen       bool
	Channels       []*servov1.AlertChannel
	SeesChannels   bool
	MayChannels    bool
}

// channelsAt is the address of actions on channels.
func (m AlertsModel) channelsAt() string {
	if m.Scope.Tenant == "" {
		return "/ui/alerts/channels"
	}
	return Path("tenants", m.Scope.Tenant, "alerts", "channels")
}

// alertKinds are the options of the filter by kind.
func alertKinds() []Option {
	options := []Option{{"", "any"}}
	for _, k := range []string{"PIPELINE_FAILED", "PIPELINE_FAILING", "PIPELINE_DISABLED", "RUN_LATE", "RUN_OVERRAN", "SLA_BREACHES", "SCHEDULE_LAG", "ROLLOUT_STOPPED", "ROLLOUT_WAITS", "BACKFILL_FAILED", "BACKFILL_PAUSED"} {
		options = append(options, Option{k, Words(k)})
	}
	return options
}

// deliveryLook is the state of a message.
func deliveryLook(d *servov1.AlertDelivery) Look {
	switch {
	case d.GetDeliveredAt() != nil:
		return Look{toneOK, "check", "delivered"}
	case d.GetAgainAt() != nil && d.GetTries() == 0:
		return Look{toneWait, "half", "pending"}
	case d.GetAgainAt() != nil:
		return Look{toneLate, "again", "retrying"}
	}
	return Look{toneBad, "cross", "failed"}
}

// deliveryTime is the time of the delivery, or of the next attempt.
func deliveryTime(d *servov1.AlertDelivery) *timestamppb.Timestamp {
	if d.GetDeliveredAt() != nil {
		return d.GetDeliveredAt()
	}
	return d.GetAgainAt()
}

// subjectPath is the page of the subject of an alert; "" without one.
func subjectPath(tenant string, a *servov1.Alert) string {
	switch a.GetKind() {
	case "PIPELINE_FAILED", "PIPELINE_FAILING", "PIPELINE_DISABLED", "RUN_LATE", "RUN_OVERRAN":
		if workspace, config, ok := strings.Cut(a.GetName(), "/"); ok && tenant != "" {
			return ConfigPath(tenant, workspace, config)
		}
	case "BACKFILL_FAILED", "BACKFILL_PAUSED":
		if workspace, _, ok := strings.Cut(a.GetName(), "/"); ok && tenant != "" {
			return BackfillPath(tenant, workspace, a.GetAbout())
		}
	case "SLA_BREACHES":
		if tenant != "" {
			return TenantPath(tenant)
		}
	}
	return ""
}

// ownerOf is the tenant of an alert: its own in a list of all tenants, else that of the list.
func ownerOf(tenant string, a *servov1.Alert) string { return cmp.Or(a.GetTenant(), tenant) }

// alertState is OPEN or RESOLVED.
func alertState(a *servov1.Alert) string {
	if a.GetResolvedAt() != nil {
		return "RESOLVED"
	}
	return "OPEN"
}

// alertTone is the tone of the message of an alert.
func alertTone(a *servov1.Alert) string {
	switch {
	case a.GetResolvedAt() != nil:
		return toneOK
	case a.GetSeverity() >= servov1.Alert_HIGH:
		return toneBad
	}
	return toneLate
}
