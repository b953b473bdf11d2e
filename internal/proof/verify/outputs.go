package verify

import (
	"encoding/json"
	"fmt"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// outputRow compares a version with the completion of its task: no version is promoted without one.
func (c *check) outputRow(got store.MaterializationRow) {
	t := c.meet(got.ID)
	if c.unknown(t) {
		return
	}
	t.hasOutput = true
	key := store.TaskKey{Tenant: c.key.Tenant, Run: c.key.Run, Task: id.Of[id.Task](got.ID)}
	if t.unexplained || t.State != run.Succeeded || t.Output == nil {
		c.diverges(Surplus, "materializations", "", got.ID, "", "a version that no completion has reported")
		c.fix.DropOutputs = append(c.fix.DropOutputs, key)
		return
	}
	want := wantOutput(c.run, t)
	if got.Version > 0 { // reviews have changed it since
		want.State, want.Version = got.State, got.Version
	}
	if compare(c, c.tables.outputs, got.ID, &want, &got) {
		c.fix.DropOutputs = append(c.fix.DropOutputs, key)
		c.fix.NewOutputs = append(c.fix.NewOutputs, outputOf(c.run, t))
	}
}

// missingOutputs reports completions whose version has no row.
func (c *check) missingOutputs() {
	for _, t := range c.order {
		if !t.broken && t.Output != nil && !t.hasOutput {
			c.diverges(Missing, "materializations", "", t.ID.UUID, "version "+store.VersionText(t.Token)+" of "+t.spec.Asset, "")
			c.fix.NewOutputs = append(c.fix.NewOutputs, outputOf(c.run, t))
		}
	}
}

// outputOf is the version of a task as its completion recorded it.
func outputOf(r run.Run, t *task) store.Materialization {
	return store.Materialization{
		Tenant: r.Tenant, Workspace: r.Workspace, Asset: t.spec.Asset, Token: t.Token, ID: t.ID.UUID, Partition: t.spec.Partition, Range: t.spec.Range,
		Run: r.ID, Attempt: t.Attempt, Deployment: r.Deployment, RecordedAt: t.Since, Materialization: *t.Output,
	}
}

func wantOutput(r run.Run, t *task) store.MaterializationRow {
	o := t.Output
	detail, err := json.Marshal(o.Detail)
	if err != nil {
		detail = nil // texts and numbers are always JSON
	}
	row := store.MaterializationRow{
		TenantID: r.Tenant.UUID, WorkspaceID: r.Workspace.UUID, Asset: t.spec.Asset, Token: t.Token, ID: t.ID.UUID, State: string(o.State), Gate: string(o.Gate),
		Partition: t.spec.Partition, RunID: ptr(r.ID.UUID), Attempt: t.Attempt, DeploymentID: ptr(r.Deployment.UUID), Format: string(o.Format), Path: o.Path,
		Rows: o.Rows, Bytes: o.Bytes, Files: int32(o.Files), Digest: o.Digest, SchemaHash: o.SchemaHash, Detail: detail, //nolint:gosec // at most output.MaxFiles
		StartedAt: timeOrNull(o.StartedAt), CommittedAt: timeOrNull(o.CommittedAt), RecordedAt: t.Since,
	}
	if s := t.spec.Range; s != nil {
		row.Series, row.FirstOrdinal, row.LastOrdinal = s.Series, &s.First, &s.Last
	}
	return row
}

// pointer reports a pointer that contradicts the versions of its partition.
func (v *verifier) pointer(row store.WrongPointerRow) error {
	v.report.add(Divergence{
		Kind: Invariant, Table: "pointers", Column: "current", Tenant: id.Of[id.Tenant](row.TenantID), Subject: row.WorkspaceID,
		Want: fmt.Sprintf("%s partition %q: promoted version %d", row.Asset, row.Partition, row.Token), Got: row.Found,
	})
	return nil
}
