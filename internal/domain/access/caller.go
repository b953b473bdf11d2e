package access

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// Caller is the authenticated client of a call.
type Caller struct {
	Actor      string // its name in events and in the audit log
	Role       Role
	Tenant     id.Tenant // zero for the installation
	TenantName string
	Workspaces []string  // empty is the whole tenant
	Pools      []string  // pools that a worker may claim from
	Reports    []string  // pools whose leases a worker may report: all that its key names
	ExpiresAt  time.Time // of its credentials; zero if they do not expire
	Person     bool      // authenticated by a token, not by a key
	Grants     []Grant   // all grants of a person, in all tenants
}

// Open returns the caller of a server that requires no keys.
func Open() Caller { return Caller{Actor: "open", Role: Platform} }

// Caller returns the caller that authenticates with the key. A key of the installation has a prefix,
// because tenants choose the names of their keys freely.
func (k Key) Caller(tenantName string) Caller {
	actor := "key/" + k.Name
	if k.Tenant == (id.Tenant{}) {
		actor = "platform/" + k.Name
	}
	c := Caller{Actor: actor, Role: k.Role, Tenant: k.Tenant, TenantName: tenantName, Pools: k.Pools, Reports: k.Pools, ExpiresAt: k.ExpiresAt}
	if k.Workspace != "" {
		c.Workspaces = []string{k.Workspace}
	}
	return c
}

// Everywhere reports whether the caller may access every tenant.
func (c Caller) Everywhere() bool { return c.Role == Platform }

// Request is the part of a call that authorization depends on.
type Request struct {
	Tenant    string
	Workspace string
	Pools     []string
}

// NoTenant is the error for a tenant that does not exist or that the caller may not access: the same
// for both.
func NoTenant(name string) error { return Missing("tenant", name) }

// Missing is the error for an object that does not exist or that the caller may not see.
func Missing(kind, name string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("no %s %.100s", kind, name), fault.Field(kind), fault.Remedy("check the name or id"))
}

// defaultWorkspace is the workspace of a request that names none.
const defaultWorkspace = "default"

// May returns nil if a caller may make a call, or else the error for the caller. ForAll decides about
// a call that could name a tenant and does not, once its request is parsed.
func (c Caller) May(m Method, r Request) error {
	if c.Everywhere() {
		return nil
	}
	if c.Person && c.Role == "" {
		return c.ungranted(m.Permission)
	}
	if c.Role == Worker {
		return c.mayWork(m, r)
	}
	if c.Role == Tick {
		if m.Permission == SchedulerTick || m.Workers && m.Scope == OfAnyCaller {
			return nil
		}
		return c.forbidden(m.Permission)
	}
	switch m.Scope {
	case OfTenant:
		if r.Tenant != "" && r.Tenant != c.TenantName {
			return NoTenant(r.Tenant)
		}
	case OfAnyCaller:
	case OfPlatform, OfWorker:
		return c.forbidden(m.Permission)
	default:
		return c.forbidden(Admin)
	}
	if !c.Role.Has(m.Permission) {
		return c.forbidden(m.Permission)
	}
	return c.within(m, r)
}

func (c Caller) mayWork(m Method, r Request) error {
	elsewhere := c.Tenant != (id.Tenant{}) && r.Tenant != "" && r.Tenant != c.TenantName
	switch {
	case m.Scope == OfTenant && elsewhere:
		return NoTenant(r.Tenant)
	case m.Workers:
		return nil
	case m.Scope != OfWorker:
		return c.forbidden(m.Permission)
	}
	for i, pool := range r.Pools {
		if !slices.Contains(c.Pools, pool) {
			return fault.New(fault.Forbidden, fmt.Sprintf("this key does not permit pool %.100q", pool), fault.Field(fmt.Sprintf("pools[%d]", i)),
				fault.Remedy("use a worker key with every pool of the request"), fault.Value("permission", string(m.Permission)), fault.Value("role", string(Worker)))
		}
	}
	return nil
}

// within restricts a caller that has some workspaces only to them.
func (c Caller) within(m Method, r Request) error {
	if len(c.Workspaces) == 0 {
		return nil
	}
	named := r.Workspace
	switch m.Within {
	case Harmless, ByRun, ByDeployment: // the workspace of the object is checked later
		return nil
	case Named:
		if named == "" {
			named = defaultWorkspace
		}
	case Filtered, Whole:
	}
	if m.Within != Whole && slices.Contains(c.Workspaces, named) {
		return nil
	}
	own := strings.Join(c.Workspaces, " or ")
	message, remedy := "this key is restricted to workspace "+own, "use a key of the whole tenant"
	if c.Person {
		message, remedy = "your grant is restricted to workspace "+own, "ask for a grant of the whole tenant"
	}
	if m.Within != Whole {
		remedy = "set the workspace to " + own + ", or " + remedy
	}
	return fault.New(fault.Forbidden, message, fault.Field("workspace"), fault.Remedy(remedy),
		fault.Value("permission", string(m.Permission)), fault.Value("workspace", own))
}

// ForAll returns nil if a caller may make a call about the installation, which names no tenant.
func (c Caller) ForAll(m Method, r Request) error {
	if c.Everywhere() || m.Scope != OfTenant || r.Tenant != "" || m.Workers && c.Role == Worker {
		return nil
	}
	return c.forbidden(Admin)
}

// Reaches reports whether the caller may see objects of a workspace of their tenant.
func (c Caller) Reaches(workspace string) bool {
	return len(c.Workspaces) == 0 || slices.Contains(c.Workspaces, workspace)
}

func (c Caller) forbidden(p Permission) error {
	remedy := fmt.Sprintf("use a key with the role %s", Least(p))
	if c.Person {
		remedy = fmt.Sprintf("ask for a grant of the role %s", Least(p))
	}
	return fault.New(fault.Forbidden, fmt.Sprintf("role %s does not have permission %s", c.Role, p), fault.Remedy(remedy),
		fault.Value("permission", string(p)), fault.Value("role", string(Least(p))))
}

// ungranted is the error for an authenticated person without grants.
func (c Caller) ungranted(p Permission) error {
	return fault.New(fault.Forbidden, fmt.Sprintf("%s is authenticated but has no grants", c.Actor),
		fault.Remedy("ask the operator for a grant: no rule of servo server --oidc matches the claims of this token"),
		fault.Value("permission", string(p)), fault.Value("role", string(Least(p))))
}
