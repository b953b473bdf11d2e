package alert

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Condition is a state that raises an alert while it holds. Its kind decides which fields are set.
type Condition struct {
	Key

	Workspace string
	Name      string // of the config or the tenant
	Count     int    // failures, runs, breaches
	Since     time.Time
	Lag       time.Duration
	Reason    string
}

// Subject names the subject of the condition.
func (c Condition) Subject() string {
	switch {
	case c.Workspace != "":
		return c.Workspace + "/" + c.Name
	case c.Name != "":
		return c.Name
	}
	return "the installation"
}

// Message describes the problem and names the command that shows more.
func (c Condition) Message() string {
	switch c.Kind {
	case PipelineFailed:
		return fmt.Sprintf("config %s has failed %s; servo slots list %s shows its runs", c.Subject(), times(c.Count), c.Name)
	case PipelineFailing:
		return fmt.Sprintf("config %s has failed %d times in a row; servo slots list %s shows its runs", c.Subject(), c.Count, c.Name)
	case PipelineDisabled:
		return fmt.Sprintf("config %s is disabled: %s; fix it, then run servo configs resume %s", c.Subject(), cmp.Or(c.Reason, "it has failed too often"), c.Name)
	case RunLate:
		return fmt.Sprintf("%s of config %s should have started by %s; servo why %s shows what it waits for", runs(c.Count), c.Subject(), stamp(c.Since), c.Name)
	case RunOverran:
		return fmt.Sprintf("a run of config %s has taken longer than its max_execution; servo configs get %s shows it", c.Subject(), c.Name)
	case SLABreaches:
		return fmt.Sprintf("tenant %s has %d SLA breaches today; servo tenants metrics %s shows them", c.Subject(), c.Count, c.Name)
	case BackfillFailed:
		return fmt.Sprintf("backfill %s of %s has failed: %s; servo backfill show %s shows it, servo backfill retry %s repeats what failed", c.About, c.Subject(), c.Reason, c.About, c.About)
	case BackfillPaused:
		return fmt.Sprintf("backfill %s of %s is paused: %s; servo backfill resume %s resumes it", c.About, c.Subject(), cmp.Or(c.Reason, "no reason was given"), c.About)
	case ScheduleLag:
		return fmt.Sprintf("configs are overdue, the first by %s; servo status shows whether servers are alive; see docs/runbooks/scheduler-is-stuck.md", c.Lag.Round(time.Second))
	case RolloutStopped:
		return fmt.Sprintf("channel %s was rolled back: %s; servo channels status %s shows the rollout", c.Name, c.Reason, c.Name)
	case RolloutWaits:
		return fmt.Sprintf("the rollout of channel %s is paused: %s; servo channels status %s shows the rollout", c.Name, c.Reason, c.Name)
	}
	return string(c.Kind)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times in a row", n)
}

func runs(n int) string {
	if n == 1 {
		return "a run"
	}
	return fmt.Sprintf("%d runs", n)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Compare returns the new conditions, and the open alerts whose condition no longer holds.
func Compare(holding []Condition, open []Alert) (raise []Condition, resolve []Alert) {
	known := make(map[Key]bool, len(open))
	for _, a := range open {
		known[a.Key()] = true
	}
	holds := make(map[Key]bool, len(holding))
	for _, c := range holding {
		if !known[c.Key] && !holds[c.Key] {
			raise = append(raise, c)
		}
		holds[c.Key] = true
	}
	for _, a := range open {
		if !holds[a.Key()] {
			resolve = append(resolve, a)
		}
	}
	slices.SortFunc(raise, func(a, b Condition) int {
		return cmp.Or(bytes.Compare(a.Tenant.UUID[:], b.Tenant.UUID[:]), cmp.Compare(a.Kind, b.Kind), bytes.Compare(a.About[:], b.About[:]))
	})
	return raise, resolve
}
