package view

import (
	"cmp"
	"fmt"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// BackfillPath is the page of a backfill.
func BackfillPath(tenant, workspace, backfill string) string {
	return inWorkspace(Path("tenants", tenant, "backfills", backfill), workspace)
}

// BackfillsModel is the backfills of a tenant.
type BackfillsModel struct {
	Paging

	Scope     Scope
	State     string
	Backfills []*servov1.Backfill
	MayCreate bool
}

// BackfillModel is one backfill with its newest runs.
type BackfillModel struct {
	Scope     Scope
	Backfill  *servov1.Backfill
	Runs      []*servov1.BackfillRun
	More      bool // there are more runs
	MayManage bool
}

// BackfillForm is the form of a backfill, with its preview once it was requested.
type BackfillForm struct {
	Scope   Scope
	Request *servov1.CreateBackfillRequest
	Preview *servov1.PreviewBackfillResponse
	Errors  map[string]string // by field
}

// backfillStates are the options of the filter by state.
func backfillStates() []Option {
	options := []Option{{"", "any"}}
	for _, s := range []string{"PENDING", "RUNNING", "PAUSED", "SUCCEEDED", "FAILED", "CANCELLED"} {
		options = append(options, Option{s, LookOf(s).Label})
	}
	return options
}

// actionAt is the address of an action on the backfill.
func (m BackfillModel) actionAt(action string) string {
	return inWorkspace(Path("tenants", m.Scope.Tenant, "backfills", m.Backfill.GetId(), action), m.Backfill.GetWorkspace())
}

// selectionOf is the request of a backfill for people.
func selectionOf(b *servov1.Backfill) string {
	text := Clip(strings.Join(b.GetPartitions(), ", "), 200)
	if b.GetOnly() != servov1.CreateBackfillRequest_ONLY_UNSPECIFIED {
		text = strings.TrimSpace(text + " (only " + strings.ToLower(b.GetOnly().String()) + ")")
	}
	return cmp.Or(text, "all completed partitions")
}

// targetOf is what the runs of a backfill execute.
func targetOf(b *servov1.Backfill) string {
	return cmp.Or(b.GetPipeline(), strings.Join(b.GetSelect(), ", "))
}

// endedOf is how many partitions have a result.
func endedOf(b *servov1.Backfill) int64 { return b.GetTotal() - b.GetPending() }

// backfillCounts are the counters in words.
func backfillCounts(b *servov1.Backfill) string {
	text := fmt.Sprintf("%d of %d completed", b.GetCompleted(), b.GetTotal())
	if b.GetFailed() > 0 {
		text += fmt.Sprintf(", %d failed", b.GetFailed())
	}
	if b.GetSkipped() > 0 {
		text += fmt.Sprintf(", %d skipped", b.GetSkipped())
	}
	return text
}

// runState is the state of a run of a backfill; its rows may be deleted.
func runState(r *servov1.BackfillRun) string {
	if r.GetState() == servov1.Run_STATE_UNSPECIFIED {
		return "DELETED"
	}
	return r.GetState().String()
}

// onlyValue is the chosen restriction by status; "" for none.
func onlyValue(r *servov1.CreateBackfillRequest) string {
	if r.GetOnly() == servov1.CreateBackfillRequest_ONLY_UNSPECIFIED {
		return ""
	}
	return r.GetOnly().String()
}

// numberOr is a number of a form; 0 is not set.
func numberOr(n int32) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
