package api

import (
	"context"
	"strconv"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/quality"
	"go.arco.dev/servo/internal/store"
)

// materializationService implements servo.v1.MaterializationService.
type materializationService struct{ *Server }

// maxLineage bounds the versions in each direction that an answer lists.
const maxLineage = 1000

// ListMaterializations implements servov1.MaterializationServiceServer.
func (s materializationService) ListMaterializations(ctx context.Context, req *servov1.ListMaterializationsRequest) (*servov1.ListMaterializationsResponse, error) {
	owner, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	filter := store.MaterializationFilter{Tenant: owner, Workspace: orDefault(req.GetWorkspace()), Asset: req.GetAsset(), Partition: req.Partition}
	found, next, err := list(req, func(p page) ([]store.Materialization, error) {
		before, err := versionPosition(p)
		if err != nil {
			return nil, err
		}
		return s.store.ListMaterializations(ctx, filter, before, p.size+1)
	}, func(m store.Materialization) string { return store.VersionText(m.Token) }, nil, sure(materializationToProto))
	return &servov1.ListMaterializationsResponse{Materializations: found, NextPageToken: next}, err
}

// versionPosition returns the version before which a page begins; 0 for the first page.
func versionPosition(p page) (int64, error) {
	if p.after == "" {
		return 0, nil
	}
	last, err := strconv.ParseInt(p.after, 10, 64)
	if err != nil || last <= 0 {
		return 0, notAToken()
	}
	return last, nil
}

// GetMaterialization implements servov1.MaterializationServiceServer.
func (s materializationService) GetMaterialization(ctx context.Context, req *servov1.GetMaterializationRequest) (*servov1.Materialization, error) {
	owner, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	return s.version(ctx, store.MaterializationKey{Tenant: owner, Workspace: orDefault(req.GetWorkspace()), Asset: req.GetAsset(), Token: req.GetVersion()})
}

// version reads a version with its lineage.
func (s materializationService) version(ctx context.Context, key store.MaterializationKey) (*servov1.Materialization, error) {
	found, err := s.store.GetMaterialization(ctx, key)
	if err != nil {
		return nil, err
	}
	out := materializationToProto(found)
	for _, c := range found.Schema {
		out.Schema = append(out.Schema, &servov1.MaterializationColumn{Name: c.Name, Type: string(c.Type)})
	}
	out.Checks = mapAll(found.Checks, checkToProto)
	out.Partitions, out.Truncated = found.Partitions, found.Truncated
	from, made, err := s.store.Lineage(ctx, key, maxLineage)
	if err != nil {
		return nil, err
	}
	out.Inputs, out.Made = mapAll(from, versionToProto), mapAll(made, versionToProto)
	return out, nil
}

func versionToProto(v store.VersionOf) *servov1.MaterializationVersion {
	return &servov1.MaterializationVersion{Asset: v.Asset, Version: v.Token}
}

func materializationToProto(m store.Materialization) *servov1.Materialization {
	out := &servov1.Materialization{
		Asset: m.Asset, Version: m.Token, Partition: m.Partition, State: servov1.Materialization_State(servov1.Materialization_State_value[string(m.State)]), Current: m.Current,
		Gate: string(m.Gate), Attempt: m.Attempt, Format: string(m.Format), Path: m.Path, Rows: m.Rows, Bytes: m.Bytes, Files: int32(m.Files), //nolint:gosec // at most output.MaxFiles
		Digest: m.Digest, SchemaHash: m.SchemaHash, StartedAt: timestamp(m.StartedAt), CommittedAt: timestamp(m.CommittedAt), RecordedAt: timestamp(m.RecordedAt),
	}
	if m.Run != (id.Run{}) {
		out.Run, out.Task, out.Deployment = m.Run.String(), m.ID.String(), m.Deployment.String()
	}
	return out
}

func checkToProto(r quality.Result) *servov1.CheckResult {
	out := &servov1.CheckResult{
		Name: r.Name, Type: string(r.Type), Phase: string(r.Phase), Severity: string(r.Severity), Passed: r.Passed, Skipped: r.Skipped,
		Actual: r.Actual, Expected: r.Expected, Error: r.Error, DurationMs: r.Duration.Milliseconds(),
	}
	for _, row := range r.Sample {
		out.Sample = append(out.Sample, string(row))
	}
	return out
}
