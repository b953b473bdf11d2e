// Package view renders the pages: templ components and the models that they show. It defines the
// label, colour and shape of each state, and the format of times, durations and addresses. It
// makes no calls.
package view

import (
	"slices"

	"github.com/a-h/templ"
)

// Layout surrounds every page: header, navigation and notice.
type Layout struct {
	Files    map[string]string // addresses of the static files, by name
	Version  string
	Path     string
	LiveAt   string // address of the stream of the page; "" without one
	Open     bool   // the server requires no login
	Platform bool   // the visitor sees all tenants
	Actor    string
	Role     string
	Tenants  []string
	Scope    Scope
	Notice   string
	May      func(permission string) bool
	Has      func(path string) bool // reports whether a page exists
}

// Page is one page.
type Page struct {
	Title   string
	Section string // entry of the navigation
	Live    bool   // the page is refreshed while it is open
	Rarely  bool   // every fifth refresh is enough: the page takes many calls
	Script  string // a further script that only this page needs
	Body    templ.Component
}

// section is an entry of the navigation.
type section struct{ Name, Label, Path, Icon, Permission string }

// sections are the entries, in the order of how often operators need them. An entry with a
// permission is shown to visitors who have it.
func sections() [][]section {
	return [][]section{
		{
			{Name: "overview", Label: "Overview", Path: "/ui/", Icon: "home"},
			{Name: "runs", Label: "Runs", Path: "/ui/runs", Icon: "run"},
			{Name: "pipelines", Label: "Pipelines", Path: "/ui/pipelines", Icon: "flow"},
			{Name: "configs", Label: "Configs", Path: "/ui/configs", Icon: "clock"},
			{Name: "assets", Label: "Assets", Path: "/ui/assets", Icon: "graph"},
			{Name: "backfills", Label: "Backfills", Path: "/ui/backfills", Icon: "again", Permission: "BACKFILLS_READ"},
			{Name: "alerts", Label: "Alerts", Path: "/ui/alerts", Icon: "bell"},
		},
		{
			{Name: "fairness", Label: "Fairness", Path: "/ui/fairness", Icon: "scale", Permission: "PLATFORM_READ"},
			{Name: "workers", Label: "Workers", Path: "/ui/workers", Icon: "cpu", Permission: "PLATFORM_READ"},
			{Name: "locks", Label: "Locks", Path: "/ui/locks", Icon: "lock"},
			{Name: "simulator", Label: "Simulator", Path: "/ui/simulator", Icon: "chart"},
		},
		{
			{Name: "releases", Label: "Releases", Path: "/ui/releases", Icon: "box", Permission: "PLATFORM_READ"},
			{Name: "tenants", Label: "Tenants", Path: "/ui/tenants", Icon: "people"},
			{Name: "events", Label: "Events", Path: "/ui/events", Icon: "list", Permission: "AUDIT_READ"},
			{Name: "admin", Label: "Admin", Path: "/ui/admin", Icon: "gear", Permission: "PLATFORM_READ"},
		},
	}
}

// sections are the entries of the navigation that the visitor may open.
func (l Layout) sections() (groups [][]section) {
	for _, group := range sections() {
		group = slices.DeleteFunc(group, func(s section) bool {
			return l.Has == nil || !l.Has(s.Path) || s.Permission != "" && !l.May(s.Permission)
		})
		if len(group) > 0 {
			groups = append(groups, group)
		}
	}
	return groups
}

// switchTo is the address of a section for another tenant. Pages about one object lead to the
// list of such objects.
func (l Layout) switchTo(name, tenant string) string {
	for _, s := range slices.Concat(sections()...) {
		if s.Name == name {
			return Scope{Tenant: tenant}.At(s.Path)
		}
	}
	return Scope{Tenant: tenant}.At("/ui/")
}
