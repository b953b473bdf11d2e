// Package view is how pages look: templ components and the few values that they are made of.
// It knows what a state is called and which colour and shape it has, and how times, durations
// and addresses are written. It calls nobody.
package view

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/a-h/templ"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Frame is what surrounds every page.
type Frame struct {
	Files    map[string]string // addresses of what is loaded, by name
	Version  string
	Path     string
	LiveAt   string // where the body is streamed; "" is nowhere
	Open     bool   // nobody logs in
	Platform bool   // the visitor looks across tenants
	Actor    string
	Role     string
	Tenants  []string
	Scope    Scope
	Notice   string
	May      func(permission string) bool
	Has      func(path string) bool // whether there is a page
}

// Scope is what the lists are held to.
type Scope struct {
	Tenant    string // "" is all
	Workspace string // "" is all
	Fixed     bool   // the visitor has no other tenant
	HeldTo    bool   // nor workspace
}

// Page is one page.
type Page struct {
	Title   string
	Section string // the entry of the navigation that it belongs to
	Live    bool   // it is kept fresh while it is open
	Rarely  bool   // each fifth time is enough: what it shows costs many calls
	Body    templ.Component
}

// section is an entry of the navigation.
type section struct{ Name, Label, Path, Icon, Permission string }

// sections are the entries, in the order of how often people on call need them. One with a
// permission is there for those who have it.
func sections() [][]section {
	return [][]section{
		{
			{Name: "overview", Label: "Overview", Path: "/ui/", Icon: "home"},
			{Name: "runs", Label: "Runs", Path: "/ui/runs", Icon: "run"},
			{Name: "configs", Label: "Configs", Path: "/ui/configs", Icon: "clock"},
			{Name: "assets", Label: "Assets", Path: "/ui/assets", Icon: "graph"},
			{Name: "alerts", Label: "Alerts", Path: "/ui/alerts", Icon: "bell"},
		},
		{
			{Name: "fairness", Label: "Fairness", Path: "/ui/fairness", Icon: "scale", Permission: "PLATFORM_READ"},
			{Name: "workers", Label: "Workers", Path: "/ui/workers", Icon: "cpu", Permission: "PLATFORM_READ"},
			{Name: "locks", Label: "Locks", Path: "/ui/locks", Icon: "lock"},
			{Name: "simulator", Label: "Simulator", Path: "/ui/simulator", Icon: "chart"},
		},
		{
			{Name: "tenants", Label: "Tenants", Path: "/ui/tenants", Icon: "people"},
			{Name: "events", Label: "Events", Path: "/ui/events", Icon: "list", Permission: "AUDIT_READ"},
			{Name: "admin", Label: "Admin", Path: "/ui/admin", Icon: "gear", Permission: "PLATFORM_READ"},
		},
	}
}

// sections are the entries of the navigation that are for the visitor.
func (f Frame) sections() (groups [][]section) {
	for _, group := range sections() {
		group = slices.DeleteFunc(group, func(s section) bool {
			return f.Has == nil || !f.Has(s.Path) || s.Permission != "" && !f.May(s.Permission)
		})
		if len(group) > 0 {
			groups = append(groups, group)
		}
	}
	return groups
}

// At is the address of a list that stays with what is chosen.
func (s Scope) At(path string) string {
	query := url.Values{}
	if s.Tenant != "" {
		query.Set("tenant", s.Tenant)
	}
	if s.Workspace != "" && !s.HeldTo {
		query.Set("workspace", s.Workspace)
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// switchTo is the address of a list with another tenant. Pages about one thing lead to the
// list of such things.
func (f Frame) switchTo(section, tenant string) string {
	path := "/ui/"
	for _, group := range sections() {
		for _, s := range group {
			if s.Name == section {
				path = s.Path
			}
		}
	}
	return Scope{Tenant: tenant}.At(path)
}

// Path joins parts to an address under /ui, each as one piece.
func Path(parts ...string) string {
	var b strings.Builder
	b.WriteString("/ui")
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}

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

// AssetPath is the page of an asset, whose key is namespace/name.
func AssetPath(tenant, workspace, key string) string {
	namespace, name, _ := strings.Cut(key, "/")
	return inWorkspace(Path("tenants", tenant, "assets", namespace, name), workspace)
}

// TenantPath is the page of a tenant.
func TenantPath(tenant string) string { return Path("tenants", tenant) }

func inWorkspace(path, workspace string) string {
	if workspace == "" || workspace == "default" {
		return path
	}
	return path + "?" + url.Values{"workspace": {workspace}}.Encode()
}

// Clip shortens a text to about so many bytes.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// ShortID is enough of an id to tell it from its neighbours: its end is random, its beginning
// is the time.
func ShortID(id string) string {
	if len(id) != 36 {
		return Clip(id, 20)
	}
	return id[:8] + "…" + id[28:]
}

// Duration is a duration as people say it: two units, rounded down.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "−" + Duration(-d)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", math.Floor(d.Seconds()*10)/10)
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return two(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 24*time.Hour:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	default:
		return two(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
	}
}

func two(a int, unit string, b int, smaller string) string {
	if b == 0 || a >= 10 {
		return fmt.Sprintf("%d %s", a, unit)
	}
	return fmt.Sprintf("%d %s %d %s", a, unit, b, smaller)
}

// DurationOf is Duration of a message; "" if there is none.
func DurationOf(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return Duration(d.AsDuration())
}

// Count is a number with its thousands apart, and a sign that there may be more.
func Count[N int | int32 | int64](n N, atLeast bool) string {
	text := fmt.Sprintf("%d", n)
	var out strings.Builder
	for i, c := range text {
		if i > 0 && (len(text)-i)%3 == 0 && text[i-1] != '-' {
			out.WriteString("\u202f")
		}
		out.WriteRune(c)
	}
	if atLeast {
		return "≥ " + out.String()
	}
	return out.String()
}

// Plural is a number of things.
func Plural[N int | int32 | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n, false) + " " + many
}

// Percent is a part of a whole.
func Percent(part float64) string { return fmt.Sprintf("%.0f %%", part*100) }

// Words makes a name of the API one that people read: RETRY_WAIT is "retry wait".
func Words(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", " ")) }
