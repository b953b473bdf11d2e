package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/quality"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// MaterializationFilter selects versions: those of an asset, of one of its partitions, or of a run.
type MaterializationFilter struct {
	Tenant    id.Tenant
	Workspace string // name
	Asset     string
	Partition *string // as tasks name it
	Run       *id.Run // instead of the asset
}

// MaterializationKey identifies a version.
type MaterializationKey struct {
	Tenant    id.Tenant
	Workspace string // name
	Asset     string
	Token     int64
}

// VersionOf is a version of an asset of a known workspace.
type VersionOf struct {
	Asset string
	Token int64
}

// ListMaterializations returns the newest versions below a token, without their details; 0 is the newest of
// all.
func (s *Store) ListMaterializations(ctx context.Context, f MaterializationFilter, before int64, most int) (found []Materialization, err error) {
	if before <= 0 {
		before = math.MaxInt64
	}
	limit := int32(most) //nolint:gosec // a page size
	err = s.tenant(f.Tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		if f.Run != nil {
			found, err = list(materializationFromList)(tx.q.ListRunMaterializations(ctx, db.ListRunMaterializationsParams{TenantID: f.Tenant.UUID, RunID: f.Run.UUID, Before: before, Most: limit}))
			return err
		}
		w, err := tx.q.GetWorkspace(ctx, db.GetWorkspaceParams{TenantID: f.Tenant.UUID, Name: f.Workspace})
		if err != nil {
			return notFound(err, "workspace", f.Workspace)
		}
		if f.Partition != nil {
			rows, err := tx.q.ListPartitionMaterializations(ctx, db.ListPartitionMaterializationsParams{
				TenantID: f.Tenant.UUID, WorkspaceID: w.ID, Asset: f.Asset, Partition: *f.Partition, Before: before, Most: limit,
			})
			found = column(rows, func(r db.ListPartitionMaterializationsRow) Materialization {
				return materializationFromList(db.ListRunMaterializationsRow(r))
			})
			return err
		}
		rows, err := tx.q.ListMaterializations(ctx, db.ListMaterializationsParams{TenantID: f.Tenant.UUID, WorkspaceID: w.ID, Asset: f.Asset, Before: before, Most: limit})
		found = column(rows, func(r db.ListMaterializationsRow) Materialization {
			return materializationFromList(db.ListRunMaterializationsRow(r))
		})
		return err
	})
	return found, err
}

// GetMaterialization returns a version with its details.
func (s *Store) GetMaterialization(ctx context.Context, key MaterializationKey) (found Materialization, err error) {
	err = s.tenant(key.Tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		w, err := tx.q.GetWorkspace(ctx, db.GetWorkspaceParams{TenantID: key.Tenant.UUID, Name: key.Workspace})
		if err != nil {
			return notFound(err, "workspace", key.Workspace)
		}
		r, err := tx.q.GetMaterialization(ctx, db.GetMaterializationParams{TenantID: key.Tenant.UUID, WorkspaceID: w.ID, Asset: key.Asset, Token: key.Token})
		if err != nil {
			return notFound(err, "version", fmt.Sprintf("%s@%d", key.Asset, key.Token))
		}
		found, err = materializationFromRow(db.ServoMaterialization{
			TenantID: r.TenantID, WorkspaceID: r.WorkspaceID, Asset: r.Asset, Token: r.Token, ID: r.ID, Version: r.Version, State: r.State, Gate: r.Gate,
			Partition: r.Partition, Series: r.Series, FirstOrdinal: r.FirstOrdinal, LastOrdinal: r.LastOrdinal, RunID: r.RunID, Attempt: r.Attempt,
			DeploymentID: r.DeploymentID, Format: r.Format, Path: r.Path, Rows: r.Rows, Bytes: r.Bytes, Files: r.Files, Digest: r.Digest,
			SchemaHash: r.SchemaHash, Detail: r.Detail, StartedAt: r.StartedAt, CommittedAt: r.CommittedAt, RecordedAt: r.RecordedAt,
		})
		found.Current = r.IsCurrent
		return err
	})
	return found, err
}

// Lineage returns the versions that a version was made from, and those that were made from it, up to most each.
func (s *Store) Lineage(ctx context.Context, key MaterializationKey, most int) (from, made []VersionOf, err error) {
	err = s.tenant(key.Tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		w, err := tx.q.GetWorkspace(ctx, db.GetWorkspaceParams{TenantID: key.Tenant.UUID, Name: key.Workspace})
		if err != nil {
			return notFound(err, "workspace", key.Workspace)
		}
		from, err = list(func(r db.MaterializationInputsRow) VersionOf { return VersionOf{r.InputAsset, r.InputToken} })(tx.q.MaterializationInputs(ctx,
			db.MaterializationInputsParams{TenantID: key.Tenant.UUID, WorkspaceID: w.ID, Asset: key.Asset, Token: key.Token, Most: int32(most)})) //nolint:gosec // a page size
		if err != nil {
			return err
		}
		made, err = list(func(r db.MaterializationsMadeFromRow) VersionOf { return VersionOf(r) })(tx.q.MaterializationsMadeFrom(ctx,
			db.MaterializationsMadeFromParams{TenantID: key.Tenant.UUID, WorkspaceID: w.ID, Asset: key.Asset, Token: key.Token, Most: int32(most)})) //nolint:gosec // a page size
		return err
	})
	return from, made, err
}

func materializationFromList(r db.ListRunMaterializationsRow) Materialization {
	m, _ := materializationFromRow(db.ServoMaterialization{ // without details, which alone can be wrong
		TenantID: r.TenantID, WorkspaceID: r.WorkspaceID, Asset: r.Asset, Token: r.Token, ID: r.ID, Version: r.Version, State: r.State, Gate: r.Gate,
		Partition: r.Partition, Series: r.Series, FirstOrdinal: r.FirstOrdinal, LastOrdinal: r.LastOrdinal, RunID: r.RunID, Attempt: r.Attempt,
		DeploymentID: r.DeploymentID, Format: r.Format, Path: r.Path, Rows: r.Rows, Bytes: r.Bytes, Files: r.Files, Digest: r.Digest,
		SchemaHash: r.SchemaHash, StartedAt: r.StartedAt, CommittedAt: r.CommittedAt, RecordedAt: r.RecordedAt,
	})
	m.Current = r.IsCurrent
	return m
}

// materializationFromRow maps a row of materializations.
func materializationFromRow(r db.ServoMaterialization) (Materialization, error) {
	m := Materialization{
		Tenant: id.Of[id.Tenant](r.TenantID), Workspace: id.Of[id.Workspace](r.WorkspaceID), Asset: r.Asset, Token: r.Token, ID: r.ID, Version: r.Version,
		Partition: r.Partition, Attempt: r.Attempt, RecordedAt: r.RecordedAt,
		Materialization: output.Materialization{
			State: output.State(r.State), Gate: quality.Gate(r.Gate), Format: quality.Format(r.Format), Path: r.Path, Rows: r.Rows, Bytes: r.Bytes,
			Files: int(r.Files), Digest: r.Digest, SchemaHash: r.SchemaHash, StartedAt: timeOf(r.StartedAt), CommittedAt: timeOf(r.CommittedAt),
		},
	}
	if r.RunID != nil {
		m.Run = id.Of[id.Run](*r.RunID)
	}
	if r.DeploymentID != nil {
		m.Deployment = id.Of[id.Deployment](*r.DeploymentID)
	}
	if r.FirstOrdinal != nil && r.LastOrdinal != nil {
		m.Range = &run.PartitionRange{Series: r.Series, First: *r.FirstOrdinal, Last: *r.LastOrdinal}
	}
	if len(r.Detail) == 0 {
		return m, nil
	}
	return m, json.Unmarshal(r.Detail, &m.Detail)
}

// VersionText is a version as people write it.
func VersionText(token int64) string { return strconv.FormatInt(token, 10) }
