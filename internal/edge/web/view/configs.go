package view

import (
	"slices"
	"strings"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// ConfigsModel is the list of configs.
type ConfigsModel struct {
	Paging

	Scope                          Scope
	State, Pipeline, Label, Prefix string
	Configs                        []*servov1.Config
	Invalid                        string // the error of a filter
	MayWrite                       bool
}

// configPage is the address of a config.
func configPage(c *servov1.Config) string {
	return ConfigPath(c.GetTenant(), c.GetWorkspace(), c.GetName())
}

// configDetail is the pipeline, labels and workspace of a config.
func configDetail(c *servov1.Config) string {
	parts := append([]string{c.GetSpec().GetPipeline()}, pairLines(c.GetSpec().GetLabels(), "=")...)
	if w := c.GetWorkspace(); w != "default" {
		parts = append(parts, "in "+w)
	}
	return Clip(strings.Join(parts, " · "), 90)
}

func oldestFirst(recent []*servov1.RecentSlot) []*servov1.RecentSlot {
	out := slices.Clone(recent)
	slices.Reverse(out)
	return out
}

// recentText is the label of a dot.
func recentText(s *servov1.RecentSlot, zone *time.Location) string {
	text := wall(s.GetSlot(), zone)
	if s.GetTriggered() {
		text += " (triggered)"
	}
	text += ": " + slotLook(s.GetOutcome(), s.GetState()).Label
	if s.GetCount() > 1 {
		text += " (" + Plural(s.GetCount(), "slot", "slots") + ")"
	}
	return text
}

// slotLook is the look of the run of a slot, or of the outcome of a slot without one.
func slotLook(outcome servov1.Slots_Outcome, state servov1.Run_State) Look {
	if outcome == servov1.Slots_FIRED && state != servov1.Run_STATE_UNSPECIFIED {
		return LookOf(state.String())
	}
	return LookOf(outcome.String())
}
