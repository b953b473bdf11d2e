package view

import (
	"cmp"
	"net/url"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// AlertsModel is what is wrong, and what was.
type AlertsModel struct {
	Scope           Scope
	Kind, State     string
	Open, Over      []*servov1.Alert
	MoreOpen        bool
	Channels        []*servov1.AlertChannel
	SeesChannels    bool
	MayChannels     bool
	First           bool
	FirstAt, NextAt string
}

// channelsAt is where what is done about channels goes to.
func (m AlertsModel) channelsAt() string {
	if m.Scope.Tenant == "" {
		return "/ui/alerts/channels"
	}
	return Path("tenants", m.Scope.Tenant, "alerts", "channels")
}

// alertKinds are the kinds that there are.
func alertKinds() []string {
	return []string{"PIPELINE_FAILED", "PIPELINE_FAILING", "PIPELINE_DISABLED", "RUN_LATE", "RUN_OVERRAN", "SLA_BREACHES", "SCHEDULE_LAG"}
}

// deliveryLook is how far a message is.
func deliveryLook(d *servov1.AlertDelivery) Look {
	switch {
	case d.GetDeliveredAt() != nil:
		return Look{toneOK, "check", "delivered"}
	case d.GetAgainAt() != nil && d.GetTries() == 0:
		return Look{toneWait, "half", "on its way"}
	case d.GetAgainAt() != nil:
		return Look{toneLate, "again", "tried again"}
	}
	return Look{toneBad, "cross", "given up"}
}

// alertAbout is where what an alert is about can be seen; "" is nowhere.
func alertAbout(tenant string, a *servov1.Alert) string {
	switch a.GetKind() {
	case "PIPELINE_FAILED", "PIPELINE_FAILING", "PIPELINE_DISABLED", "RUN_LATE", "RUN_OVERRAN":
		if workspace, config, ok := strings.Cut(a.GetName(), "/"); ok && tenant != "" {
			return ConfigPath(tenant, workspace, config)
		}
	case "SLA_BREACHES":
		if tenant != "" {
			return TenantPath(tenant)
		}
	}
	return ""
}

// ownerOf is whose an alert is: the list's tenant, or the one that a list of all tenants says.
func ownerOf(tenant string, a *servov1.Alert) string { return cmp.Or(a.GetTenant(), tenant) }

// AlertPath is the page of an alert; without a tenant it is one of the installation.
func AlertPath(tenant, alert string) string {
	query := url.Values{"alert": {alert}}
	if tenant != "" {
		query.Set("tenant", tenant)
	}
	return "/ui/alerts?" + query.Encode()
}

// alertState reports whether an alert is over.
func alertState(a *servov1.Alert) string {
	if a.GetResolvedAt() != nil {
		return "RESOLVED"
	}
	return "OPEN"
}

// alertTone is that of an alert's message.
func alertTone(a *servov1.Alert) string {
	switch {
	case a.GetResolvedAt() != nil:
		return toneOK
	case a.GetSeverity() >= servov1.Alert_HIGH:
		return toneBad
	}
	return toneLate
}
