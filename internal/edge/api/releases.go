package api

import (
	"context"
	"math"
	"slices"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// releaseService implements servo.v1.ReleaseService.
type releaseService struct{ *Server }

// CreateRelease implements servov1.ReleaseServiceServer.
func (s releaseService) CreateRelease(ctx context.Context, req *servov1.CreateReleaseRequest) (*servov1.Release, error) {
	manifest, err := manifestOf(req)
	if err != nil {
		return nil, err
	}
	if err := (deploymentService{s.Server}).checkEndpoints(manifest); err != nil {
		return nil, err
	}
	created, _, err := s.engine.CreateRelease(ctx, engine.CreateRelease{Name: req.GetName(), Note: req.GetNote(), Manifest: manifest, Meta: intercept.Meta(ctx)})
	if err != nil {
		return nil, err
	}
	return releaseToProto(created), nil
}

// GetRelease implements servov1.ReleaseServiceServer.
func (s releaseService) GetRelease(ctx context.Context, req *servov1.GetReleaseRequest) (*servov1.Release, error) {
	found, err := s.store.ReleaseNamed(ctx, req.GetRelease())
	if err != nil {
		return nil, err
	}
	out := releaseToProto(found)
	manifest, err := s.store.ReleaseManifest(ctx, found)
	if err != nil {
		return nil, err
	}
	if out.Manifest, out.ManifestGzip, err = manifestToProto(manifest); err != nil {
		return nil, err
	}
	totals, err := s.store.ReleaseTotals(ctx, []id.Release{found.ID})
	if err != nil {
		return nil, err
	}
	for code, runs := range totals[found.ID] {
		out.Totals = append(out.Totals, &servov1.ReleaseTotal{Error: code, Runs: runs})
	}
	slices.SortFunc(out.Totals, func(a, b *servov1.ReleaseTotal) int { return int(b.GetRuns() - a.GetRuns()) })
	err = s.addChannels(ctx, []*servov1.Release{out})
	return out, err
}

// addChannels adds the channels that use releases.
func (s releaseService) addChannels(ctx context.Context, releases []*servov1.Release) error {
	channels, err := s.store.ReleaseChannels(ctx)
	for _, c := range channels {
		for _, used := range c.Releases() {
			for _, r := range releases {
				if r.GetId() == used.String() {
					r.Channels = append(r.Channels, c.Name)
				}
			}
		}
	}
	return err
}

// ListReleases implements servov1.ReleaseServiceServer.
func (s releaseService) ListReleases(ctx context.Context, req *servov1.ListReleasesRequest) (*servov1.ListReleasesResponse, error) {
	releases, next, err := list(req, func(p page) ([]store.Release, error) {
		before, err := idPosition[id.Release](p)
		if err != nil {
			return nil, err
		}
		return s.store.ListReleases(ctx, before, p.size+1)
	}, func(r store.Release) string { return r.ID.String() }, nil, func(r store.Release) (*servov1.Release, error) { return releaseToProto(r), nil })
	if err != nil {
		return nil, err
	}
	err = s.addChannels(ctx, releases)
	return &servov1.ListReleasesResponse{Releases: releases, NextPageToken: next}, err
}

// DeleteRelease implements servov1.ReleaseServiceServer.
func (s releaseService) DeleteRelease(ctx context.Context, req *servov1.DeleteReleaseRequest) (*servov1.DeleteReleaseResponse, error) {
	return &servov1.DeleteReleaseResponse{}, s.engine.DeleteRelease(ctx, req.GetRelease(), intercept.Meta(ctx))
}

// CheckRelease implements servov1.ReleaseServiceServer.
func (s releaseService) CheckRelease(ctx context.Context, req *servov1.CheckReleaseRequest) (*servov1.CheckReleaseResponse, error) {
	impact, err := s.engine.CheckRelease(ctx, req.GetRelease(), req.GetChannel())
	if err != nil {
		return nil, err
	}
	out := &servov1.CheckReleaseResponse{Configs: int64(impact.Configs), BrokenConfigs: int64(impact.Total), BrokenTenants: int64(impact.Tenants)}
	for _, b := range impact.Broken {
		out.Broken = append(out.Broken, &servov1.BrokenConfig{
			Tenant: b.Tenant, Workspace: b.Workspace, Config: b.Config, Pipeline: b.Pipeline, Kind: string(b.Kind), Message: b.Message,
		})
	}
	return out, nil
}

// DiffReleases implements servov1.ReleaseServiceServer.
func (s releaseService) DiffReleases(ctx context.Context, req *servov1.DiffReleasesRequest) (*servov1.DiffReleasesResponse, error) {
	before, err := s.manifest(ctx, req.GetRelease())
	if err != nil {
		return nil, err
	}
	after, err := s.manifest(ctx, req.GetTo())
	if err != nil {
		return nil, err
	}
	found, err := changes(before, after)
	return &servov1.DiffReleasesResponse{Changes: found}, err
}

// manifest returns the manifest of a release by its name or id.
func (s releaseService) manifest(ctx context.Context, name string) (*asset.Manifest, error) {
	found, err := s.store.ReleaseNamed(ctx, name)
	if err != nil {
		return nil, err
	}
	manifest, _, err := s.engine.Code(ctx, store.DeploymentKey{Deployment: found.Deployment()})
	return manifest, err
}

func releaseToProto(r store.Release) *servov1.Release {
	return &servov1.Release{Id: r.ID.String(), Name: r.Name, Digest: r.Digest, Note: r.Note, CreatedAt: timestamp(r.CreatedAt)}
}

// percents converts hundredths of a percent.
func percents(waves []int32) []float64 {
	out := make([]float64, len(waves))
	for i, w := range waves {
		out[i] = float64(w) / 100
	}
	return out
}

// hundredths converts percentages. One that is no number, or too large, is refused later by its field.
func hundredths(waves []float64) []int32 {
	out := make([]int32, len(waves))
	for i, w := range waves {
		if scaled := math.Round(100 * w); scaled > 0 && scaled <= 1e6 {
			out[i] = int32(scaled)
		}
	}
	return out
}
