package api

import (
	"context"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/asset"
)

// assetService implements servo.v1.AssetService.
type assetService struct{ *Server }

// active returns the active deployment of a workspace.
func (s *Server) active(ctx context.Context, tenant, workspace string) (*deployed, error) {
	owner, err := s.tenants.ID(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return s.manifests.active(ctx, owner, workspace)
}

// ListAssets implements servov1.AssetServiceServer.
func (s assetService) ListAssets(ctx context.Context, req *servov1.ListAssetsRequest) (*servov1.ListAssetsResponse, error) {
	active, err := s.active(ctx, req.GetTenant(), req.GetWorkspace())
	if err != nil {
		return nil, err
	}
	expressions := req.GetSelect()
	if len(expressions) == 0 {
		expressions = []string{asset.SelectAll}
	}
	selection, err := asset.ParseSelection(expressions...)
	if err != nil {
		return nil, err
	}
	selected, err := selection.Resolve(active.graph)
	if err != nil {
		return nil, err
	}
	pauses, err := s.pauses(ctx, req.GetTenant(), req.GetWorkspace())
	if err != nil {
		return nil, err
	}
	assets, next, err := list(req, func(p page) (nodes []int, _ error) { // numbered by key
		for i, yes := range selected {
			if yes && active.graph.Asset(i).Key > p.after && len(nodes) <= p.size {
				nodes = append(nodes, i)
			}
		}
		return nodes, nil
	}, func(i int) string { return active.graph.Asset(i).Key }, nil, func(i int) (*servov1.Asset, error) {
		return assetToProto(active.graph, i, pauses), nil
	})
	return &servov1.ListAssetsResponse{Assets: assets, NextPageToken: next}, err
}

// GetAsset implements servov1.AssetServiceServer.
func (s assetService) GetAsset(ctx context.Context, req *servov1.GetAssetRequest) (*servov1.Asset, error) {
	active, err := s.active(ctx, req.GetTenant(), req.GetWorkspace())
	if err != nil {
		return nil, err
	}
	i, ok := active.graph.Index(req.GetAsset())
	if !ok {
		return nil, fault.New(fault.NotFound, "no asset "+req.GetAsset()+suggest.DidYouMean(req.GetAsset(), active.graph.Keys()),
			fault.Field("asset"), fault.Remedy("use the key of an asset in the active deployment"))
	}
	pauses, err := s.pauses(ctx, req.GetTenant(), req.GetWorkspace())
	if err != nil {
		return nil, err
	}
	return assetToProto(active.graph, i, pauses), nil
}

// ListPipelines implements servov1.AssetServiceServer.
func (s assetService) ListPipelines(ctx context.Context, req *servov1.ListPipelinesRequest) (*servov1.ListPipelinesResponse, error) {
	active, err := s.active(ctx, req.GetTenant(), req.GetWorkspace())
	if err != nil {
		return nil, err
	}
	pipelines, next, err := list(req, func(p page) (found []asset.Pipeline, _ error) { // by name
		for _, pipeline := range active.manifest.Pipelines {
			if pipeline.Name > p.after && len(found) <= p.size {
				found = append(found, pipeline)
			}
		}
		return found, nil
	}, func(p asset.Pipeline) string { return p.Name }, nil, pipelineToProto)
	return &servov1.ListPipelinesResponse{Pipelines: pipelines, NextPageToken: next}, err
}

func assetToProto(g *asset.Graph, i int, pauses map[string]*servov1.AssetPause) *servov1.Asset {
	a := g.Asset(i)
	out := &servov1.Asset{
		Key: a.Key, Description: a.Description, Upstream: a.Upstream, Pool: a.Pool, Timeout: duration(a.Timeout.Std()),
		Tags: a.Tags, Owners: a.Owners, Code: codeToProto(*a), Paused: pauses[a.Key],
	}
	for _, to := range g.Downstream(i) {
		out.Downstream = append(out.Downstream, g.Asset(to).Key)
	}
	return out
}

func codeToProto(a asset.Asset) *servov1.Code {
	switch a.Kind() {
	case asset.KindExec:
		return &servov1.Code{Kind: &servov1.Code_Exec{Exec: &servov1.ExecCode{Command: a.Exec.Command, Env: a.Exec.Env}}}
	case asset.KindHTTP:
		return &servov1.Code{Kind: &servov1.Code_Http{Http: &servov1.HttpCode{Url: a.HTTP.URL, Method: a.HTTP.Method, Headers: a.HTTP.Headers}}}
	case asset.KindGo:
		return &servov1.Code{Kind: &servov1.Code_Go{Go: &servov1.GoCode{Handler: a.Go.Handler}}}
	case asset.KindPython:
		return &servov1.Code{Kind: &servov1.Code_Python{Python: &servov1.PythonCode{Function: a.Python.Function, Code: a.Python.Code}}}
	}
	return nil // of a deployment that this version cannot read
}

func pipelineToProto(p asset.Pipeline) (*servov1.Pipeline, error) {
	out := &servov1.Pipeline{
		Name: p.Name, Description: p.Description, Select: p.Select, Priority: int32(p.Priority), //nolint:gosec // 1 to 10
		MaxExecution: duration(p.MaxExecution.Std()),
	}
	for _, parameter := range p.Parameters {
		value, err := valueOf(parameter.Default)
		if err != nil {
			return nil, err
		}
		enum, err := mapEach(parameter.Enum, valueOf)
		if err != nil {
			return nil, err
		}
		out.Parameters = append(out.Parameters, &servov1.Parameter{
			Name: parameter.Name, Type: string(parameter.Type), Description: parameter.Description, Required: parameter.Required,
			Default: value, Enum: enum,
		})
	}
	return out, nil
}
