package view

import (
	"net/url"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// FoundPath is the page of something that was looked for, or the nearest to it.
func FoundPath(f *servov1.Found) string {
	tenant, workspace := f.GetTenant(), f.GetWorkspace()
	list := func(path string, more url.Values) string {
		if tenant != "" {
			more.Set("tenant", tenant)
		}
		if workspace != "" {
			more.Set("workspace", workspace)
		}
		if encoded := more.Encode(); encoded != "" {
			return path + "?" + encoded
		}
		return path
	}
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
		return list("/ui/runs", url.Values{"pipeline": {f.GetName()}})
	case "deployment":
		return list("/ui/assets", url.Values{})
	case "workspace":
		return list("/ui/runs", url.Values{})
	case "channel":
		return list("/ui/alerts", url.Values{})
	case "pool":
		return "/ui/workers"
	}
	if tenant == "" {
		return "/ui/admin"
	}
	return TenantPath(tenant)
}

// foundKind is what was found of one kind.
type foundKind struct {
	Kind  string
	Found []*servov1.Found
}

// byKind groups what was found, in the order in which the kinds come.
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

// where is whose something is.
func where(f *servov1.Found) string {
	switch {
	case f.GetTenant() == "" || f.GetKind() == "tenant":
		return ""
	case f.GetWorkspace() == "" || f.GetWorkspace() == "default":
		return f.GetTenant()
	}
	return f.GetTenant() + "/" + f.GetWorkspace()
}
