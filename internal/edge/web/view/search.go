package view

import servov1 "go.arco.dev/servo/gen/servo/v1"

// FoundPath is the page of a match, or the list that contains it.
func FoundPath(f *servov1.Found) string {
	tenant, workspace := f.GetTenant(), f.GetWorkspace()
	scope := Scope{Tenant: tenant, Workspace: workspace}
	switch f.GetKind() {
	case "run":
		return RunPath(tenant, f.GetId())
	case "task":
		return TaskPath(tenant, f.GetRun(), f.GetId())
	case "lock":
		return RunPath(tenant, f.GetRun())
	case "config":
		return ConfigPath(tenant, workspace, f.GetName())
	case "asset":
		return AssetPath(tenant, workspace, f.GetName())
	case "alert":
		return AlertPath(tenant, f.GetId())
	case "pipeline":
		return PipelinePath(tenant, workspace, f.GetName())
	case "deployment":
		return scope.At("/ui/assets")
	case "workspace":
		return scope.At("/ui/runs")
	case "channel":
		return scope.At("/ui/alerts")
	case "pool":
		return "/ui/workers"
	}
	if tenant == "" {
		return "/ui/admin"
	}
	return TenantPath(tenant)
}

// foundKind is the matches of one kind.
type foundKind struct {
	Kind  string
	Found []*servov1.Found
}

// byKind groups matches, in the order of the first of each kind.
func byKind(found []*servov1.Found) (groups []foundKind) {
	at := map[string]int{}
	for _, f := range found {
		i, known := at[f.GetKind()]
		if !known {
			i = len(groups)
			at[f.GetKind()] = i
			groups = append(groups, foundKind{Kind: f.GetKind()})
		}
		groups[i].Found = append(groups[i].Found, f)
	}
	return groups
}

// plural is the heading of a kind.
func (k foundKind) plural() string {
	text := Words(k.Kind)
	if text == "" {
		return ""
	}
	return string(text[0]-'a'+'A') + text[1:] + "s"
}

// foundIn is the tenant and workspace of a match.
func foundIn(f *servov1.Found) string {
	switch {
	case f.GetTenant() == "" || f.GetKind() == "tenant":
		return ""
	case f.GetWorkspace() == "" || f.GetWorkspace() == "default":
		return f.GetTenant()
	}
	return f.GetTenant() + "/" + f.GetWorkspace()
}
