package view

import (
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// AdminModel is the installation; Tab selects the part that is filled in.
type AdminModel struct {
	Tab   string // "" is the first
	First bool   // the first page of a list

	Status        *servov1.Status
	Dispatch      *servov1.DispatchStatus
	Keys          KeysModel
	SigningKeys   []*servov1.SigningKey
	Subscriptions []*servov1.Subscription
	Audit         AuditModel

	Verified                   *servov1.VerifyProjectionsResponse // nil before a verification
	VerifyTenant, VerifySample string

	MayDispatch, MayVerify, MaySubscriptions bool
}

func (m AdminModel) tabs() []Tab {
	tabs := []Tab{{"Servers", "/ui/admin", m.Tab == ""}}
	for _, t := range []Option{{"keys", "Keys"}, {"signing", "Signing keys"}, {"subscriptions", "Subscriptions"}, {"projections", "Projections"}, {"audit", "Audit"}} {
		tabs = append(tabs, Tab{t.Label, "/ui/admin?tab=" + t.Value, m.Tab == t.Value})
	}
	return tabs
}

// dutyLook is the server that performs a duty.
func dutyLook(d *servov1.Duty) Look {
	if d.GetHolder() == "" {
		return Look{toneLate, "ring", "none"}
	}
	return Look{toneOK, "check", d.GetHolder()}
}

// changedBy is the actor and the reason of a change.
func changedBy(by, reason string) string {
	switch {
	case by == "" && reason == "":
		return ""
	case reason == "":
		return "by " + by
	case by == "":
		return reason
	}
	return "by " + by + ": " + reason
}

// verifiedText is the number of compared events, runs and tasks.
func verifiedText(r *servov1.VerifyProjectionsResponse) string {
	return "Replayed " + Plural(r.GetEvents(), "event", "events") + " of " + Plural(r.GetRuns(), "run", "runs") + " and " + Plural(r.GetTasks(), "task", "tasks") + "."
}

// subscriptionTypes is the filter of a subscription.
func subscriptionTypes(s *servov1.Subscription) string {
	text := strings.Join(s.GetTypes(), ", ")
	if text == "" {
		text = "all events"
	}
	if s.GetPipeline() != "" {
		text += " of " + s.GetPipeline()
	}
	if s.GetWorkspace() != "" {
		text += " in " + s.GetWorkspace()
	}
	return text
}
