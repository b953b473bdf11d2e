package access

import (
	"slices"
	"time"
)

// Grant is what a person may do in a tenant, in one workspace of it, or with the role platform
// everywhere.
type Grant struct {
	Role      Role
	Tenant    string // its name; "" with the role platform
	Workspace string // "" is the whole tenant
}

// Person is somebody who is known by a token. Unlike a key, a person may have grants in several
// tenants.
type Person struct {
	Actor     string // as events and the audit name it
	Grants    []Grant
	ExpiresAt time.Time // of the token
}

// For is who the person is for a call: the request's tenant selects the grants, and of those
// the ones that permit the call add up. A person without a grant in that tenant is one of the
// first tenant that there is a grant of, to whom another one is not there.
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
		here = p.in(c.TenantName, func(Role) bool { return true }) // to be told what is missing
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

// Tenants are the names of all tenants in which a person has a grant, in the order of the grants.
func (c Caller) Tenants() (names []string) {
	for _, g := range c.Grants {
		if g.Tenant != "" && !slices.Contains(names, g.Tenant) {
			names = append(names, g.Tenant)
		}
	}
	return names
}

// in are the grants in a tenant whose role is one of those.
func (p Person) in(tenant string, fits func(Role) bool) (found []Grant) {
	for _, g := range p.Grants {
		if g.Tenant == tenant && fits(g.Role) {
			found = append(found, g)
		}
	}
	return found
}
