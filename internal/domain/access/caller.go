package access

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// Caller is whoever makes a call.
type Caller struct {
	Actor      string // as events and the audit name it
	Role       Role
	Tenant     id.Tenant // zero for the installation's own
	TenantName string
	Workspaces []string  // none is the whole tenant
	Pools      []string  // that a worker may claim from
	Reports    []string  // pools whose leases a worker may report: all that its key names
	ExpiresAt  time.Time // of what it shows; zero if that does not expire
	Person     bool      // known by a token and not by a key
	Grants     []Grant   // all that a person has, in whatever tenant
}

// Open is everybody, where no keys are asked for.
func Open() Caller { return Caller{Actor: "open", Role: Platform} }

// Caller is who shows the key. A key of the installation is told apart by name from that of a
// tenant, who may call its keys what it likes.
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

// Everywhere says that the caller may reach every tenant.
func (c Caller) Everywhere() bool { return c.Role == Platform }

// Request is what a call names, as far as it matters here.
type Request struct {
	Tenant    string
	Workspace string
	Pools     []string
}

// NoTenant is the answer to a name that no tenant has, and to that of another's: the same.
func NoTenant(name string) error { return Missing("tenant", name) }

// Missing is the answer to what is not there, and to what the caller may not see.
func Missing(kind, name string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("no %s %.100s", kind, name), fault.Field(kind), fault.Remedy("check the name or id"))
}

// defaultWorkspace is the one that is meant when none is named.
const defaultWorkspace = "default"

// May reports whether a caller may make a call that names this: nil, or what it is told instead.
// A call that names no tenant where it could is for ForAll to judge, once the request is known
// to be one.
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
		if m.Permission == SchedulerTick || m.Workers && m.Scope == OfAnybody {
			return nil
		}
		return c.forbidden(m.Permission)
	}
	switch m.Scope {
	case OfTenant:
		if r.Tenant != "" && r.Tenant != c.TenantName {
			return NoTenant(r.Tenant)
		}
	case OfAnybody:
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
			return fault.New(fault.Forbidden, fmt.Sprintf("this key is not for the pool %.100s", pool), fault.Field(fmt.Sprintf("pools[%d]", i)),
				fault.Remedy("use a worker key of every pool that is named"), fault.Value("permission", string(m.Permission)), fault.Value("role", string(Worker)))
		}
	}
	return nil
}

// within holds whoever is for some workspaces to them.
func (c Caller) within(m Method, r Request) error {
	if len(c.Workspaces) == 0 {
		return nil
	}
	named := r.Workspace
	switch m.Within {
	case Harmless, ByRun, ByDeployment: // the thing itself is looked at
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
	message, remedy := "this key is for the workspace "+own, "use a key of the whole tenant"
	if c.Person {
		message, remedy = "your grant is for the workspace "+own, "ask for a grant of the whole tenant"
	}
	if m.Within != Whole {
		remedy = "name the workspace " + own + ", or " + remedy
	}
	return fault.New(fault.Forbidden, message, fault.Field("workspace"), fault.Remedy(remedy),
		fault.Value("permission", string(m.Permission)), fault.Value("workspace", own))
}

// ForAll reports whether a caller may make a call about the installation, which names no tenant.
func (c Caller) ForAll(m Method, r Request) error {
	if c.Everywhere() || m.Scope != OfTenant || r.Tenant != "" || m.Workers && c.Role == Worker {
		return nil
	}
	return c.forbidden(Admin)
}

// Reaches reports whether something in a workspace of the caller's tenant may be shown.
func (c Caller) Reaches(workspace string) bool {
	return len(c.Workspaces) == 0 || slices.Contains(c.Workspaces, workspace)
}

func (c Caller) forbidden(p Permission) error {
	remedy := fmt.Sprintf("use a key with the role %s", Least(p))
	if c.Person {
		remedy = fmt.Sprintf("ask for a grant of the role %s", Least(p))
	}
	return fault.New(fault.Forbidden, fmt.Sprintf("the role %s does not have the permission %s", c.Role, p), fault.Remedy(remedy),
		fault.Value("permission", string(p)), fault.Value("role", string(Least(p))))
}

// ungranted is told to somebody who is known, and may do nothing.
func (c Caller) ungranted(p Permission) error {
	return fault.New(fault.Forbidden, fmt.Sprintf("%s is known, and may do nothing here", c.Actor),
		fault.Remedy("ask the operator for a grant: no rule of servo server --oidc fits this token's claims"),
		fault.Value("permission", string(p)), fault.Value("role", string(Least(p))))
}
