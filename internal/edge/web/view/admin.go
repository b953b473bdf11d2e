package view

import (
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// AdminModel is the installation.
type AdminModel struct {
	Tab   string // "" is the first
	First bool   // of the pages of a list

	Status        *servov1.Status
	Dispatch      *servov1.DispatchStatus
	Keys          KeysModel
	SigningKeys   []*servov1.SigningKey
	Subscriptions []*servov1.Subscription
	Audit         AuditModel

	Verified                   *servov1.VerifyProjectionsResponse // nil before it was asked for
	VerifyTenant, VerifySample string

	MayDispatch, MayVerify, MaySubscriptions bool
}

// adminTabs are the parts of the page.
func adminTabs() []Tab {
	return []Tab{{"", "Servers"}, {"keys", "Keys"}, {"signing", "Signing keys"}, {"subscriptions", "Subscriptions"}, {"projections", "Projections"}, {"audit", "Audit"}}
}

func adminAt(tab string) string {
	if tab == "" {
		return "/ui/admin"
	}
	return "/ui/admin?tab=" + tab
}

// sampleText is how many runs were asked for.
func (m AdminModel) sampleText() string {
	if m.VerifySample == "" {
		return "1000"
	}
	return m.VerifySample
}

// dutyLook reports whether somebody has a duty.
func dutyLook(d *servov1.Duty) Look {
	if d.GetHolder() == "" {
		return Look{toneLate, "ring", "nobody"}
	}
	return Look{toneOK, "check", d.GetHolder()}
}

// changedBy is who has changed something, and why.
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

// verifiedText is what was compared.
func verifiedText(r *servov1.VerifyProjectionsResponse) string {
	return Plural(r.GetEvents(), "event", "events") + " of " + Plural(r.GetRuns(), "run", "runs") + " and " + Plural(r.GetTasks(), "task", "tasks") + " were read again."
}

// subscriptionTypes is what a subscription asks for.
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
