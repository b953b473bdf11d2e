package view

import (
	"net/url"
	"strings"
)

// Scope is the tenant and workspace that lists are filtered by.
type Scope struct {
	Tenant         string // "" is all
	Workspace      string // "" is all
	Fixed          bool   // the visitor has one tenant
	WorkspaceFixed bool   // the visitor has one workspace
}

// At is the address of a list, filtered by the scope.
func (s Scope) At(path string) string { return s.With(path, "", "") }

// With is At with one more parameter.
func (s Scope) With(path, name, value string) string {
	query := url.Values{}
	if s.Tenant != "" {
		query.Set("tenant", s.Tenant)
	}
	if s.Workspace != "" && !s.WorkspaceFixed {
		query.Set("workspace", s.Workspace)
	}
	if name != "" {
		query.Set(name, value)
	}
	return withQuery(path, query)
}

func withQuery(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// Path joins parts to an address under /ui and escapes each.
func Path(parts ...string) string {
	var b strings.Builder
	b.WriteString("/ui")
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

// TenantPath is the page of a tenant.
func TenantPath(tenant string) string { return Path("tenants", tenant) }

// RunPath is the page of a run.
func RunPath(tenant, run string) string { return Path("tenants", tenant, "runs", run) }

// TaskPath is the page of a task.
func TaskPath(tenant, run, task string) string {
	return Path("tenants", tenant, "runs", run, "tasks", task)
}

// ConfigPath is the page of a config.
func ConfigPath(tenant, workspace, config string) string {
	return inWorkspace(Path("tenants", tenant, "configs", config), workspace)
}

// AssetPath is the page of an asset with the key namespace/name.
func AssetPath(tenant, workspace, key string) string {
	namespace, name, _ := strings.Cut(key, "/")
	return inWorkspace(Path("tenants", tenant, "assets", namespace, name), workspace)
}

// AlertPath is the page of an alert; without a tenant it is an alert of the installation.
func AlertPath(tenant, alert string) string {
	return Scope{Tenant: tenant}.With("/ui/alerts", "alert", alert)
}

func inWorkspace(path, workspace string) string {
	if workspace == "" || workspace == "default" {
		return path
	}
	return withQuery(path, url.Values{"workspace": {workspace}})
}
