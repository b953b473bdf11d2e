package access

import (
	"slices"
	"time"
)

// Grant is a person's role in a tenant, in one workspace of it, or everywhere with the role platform.
type Grant struct {
	Role      Role
	Tenant    string // its name; "" with the role platform
	Workspace string // "" is the whole tenant
}

// Person is a user who is authenticated by a token. Unlike a key, a person may have grants in several
// tenants.
type Person struct {
	Actor     string // the name in events and in the audit log
	Grants    []Grant
	ExpiresAt time.Time // of the token
}

// For returns the caller for a call: the request's tenant selects the grants, and all of those that
// permit the call apply. Without a grant in that tenant, the caller belongs to the first tenant with
// a grant and may not see the other one.
func (p Person) For(m Method, r Request) Caller {
	c := Caller{Actor: p.Actor, Person: true, Grants: p.Grants, ExpiresAt: p.ExpiresAt}
	for _, g := range p.Grants {
		if g.Role == Platform {
			c.Role = Platform
			return c
		}
	}
	tenants := c.Tenants()
	if len(tenants) == 0 {
		return c
	}
	c.TenantName = tenants[0]
	if slices.Contains(tenants, r.Tenant) {
		c.TenantName = r.Tenant
	}
	here := p.in(c.TenantName, func(role Role) bool { return role.Has(m.Permission) })
	if len(here) == 0 {
		here = p.in(c.TenantName, func(Role) bool { return true }) // for the error message
	}
	whole := false
	for _, g := range here {
		if slices.Index(Roles(), g.Role) > slices.Index(Roles(), c.Role) {
			c.Role = g.Role
		}
		whole = whole || g.Workspace == ""
		if !slices.Contains(c.Workspaces, g.Workspace) {
			c.Workspaces = append(c.Workspaces, g.Workspace)
		}
	}
	if whole {
		c.Workspaces = nil
	}
	return c
}

// Tenants returns the names of all tenants in which a person has a grant, in the order of the grants.
func (c Caller) Tenants() (names []string) {
	for _, g := range c.Grants {
		if g.Tenant != "" && !slices.Contains(names, g.Tenant) {
			names = append(names, g.Tenant)
		}
	}
	return names
}

// in returns the grants in a tenant with a matching role.
func (p Person) in(tenant string, fits func(Role) bool) (found []Grant) {
	for _, g := range p.Grants {
		if g.Tenant == tenant && fits(g.Role) {
			found = append(found, g)
		}
	}
	return found
}
