package access_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
)

func TestPerson(t *testing.T) {
	t.Parallel()
	read, write := access.Methods()["/servo.v1.RunService/ListRuns"], access.Methods()["/servo.v1.RunService/TriggerRun"]
	may := func(p access.Person, m access.Method, r access.Request) error { return p.For(m, r).May(m, r) }

	t.Run("a person acts in each tenant with the grants there, and other tenants are unknown", func(t *testing.T) {
		t.Parallel()
		p := access.Person{Actor: "oidc/jo", Grants: []access.Grant{{Role: access.Viewer, Tenant: "acme"}, {Role: access.Operator, Tenant: "brick"}}}
		require.NoError(t, may(p, read, access.Request{Tenant: "acme"}))
		require.True(t, fault.Is(may(p, write, access.Request{Tenant: "acme"}), fault.Forbidden))
		require.NoError(t, may(p, write, access.Request{Tenant: "brick"}))
		require.Equal(t, access.NoTenant("cargo").Error(), may(p, write, access.Request{Tenant: "cargo"}).Error())
		require.Equal(t, []string{"acme", "brick"}, p.For(read, access.Request{}).Tenants())
	})

	t.Run("a known person without a grant is refused, whatever tenant is named", func(t *testing.T) {
		t.Parallel()
		ungranted := access.Person{Actor: "oidc/jo"}
		for _, m := range access.Methods() {
			for _, tenant := range []string{"", "acme"} {
				require.True(t, fault.Is(may(ungranted, m, access.Request{Tenant: tenant}), fault.Forbidden))
			}
		}
	})

	t.Run("grants of several workspaces add up, and one of the whole tenant outdoes them", func(t *testing.T) {
		t.Parallel()
		p := access.Person{Actor: "oidc/jo", Grants: []access.Grant{
			{Role: access.Operator, Tenant: "acme", Workspace: "dev"}, {Role: access.Developer, Tenant: "acme", Workspace: "test"}, {Role: access.Viewer, Tenant: "acme"},
		}}
		require.Empty(t, p.For(read, access.Request{Tenant: "acme"}).Workspaces)
		require.Equal(t, []string{"dev", "test"}, p.For(write, access.Request{Tenant: "acme"}).Workspaces)
		require.False(t, p.For(write, access.Request{Tenant: "acme"}).Reaches("prod"))
		f, ok := fault.As(may(p, write, access.Request{Tenant: "acme", Workspace: "prod"}))
		require.True(t, ok)
		require.Equal(t, "your grant is restricted to workspace dev or test", f.Message)
	})

	t.Run("a person may make a call if one of the grants alone permits it, and only then", func(t *testing.T) {
		t.Parallel()
		methods := slices.Sorted(maps.Keys(access.Methods()))
		name := rapid.SampledFrom([]string{"acme", "brick"})
		grant := rapid.Custom(func(t *rapid.T) access.Grant {
			role := rapid.SampledFrom([]access.Role{access.Viewer, access.Operator, access.Developer, access.TenantAdmin, access.Platform}).Draw(t, "role")
			if role == access.Platform {
				return access.Grant{Role: role}
			}
			return access.Grant{Role: role, Tenant: name.Draw(t, "tenant"), Workspace: rapid.SampledFrom([]string{"", "default", "dev"}).Draw(t, "workspace")}
		})
		rapid.Check(t, func(t *rapid.T) {
			grants := rapid.SliceOfN(grant, 0, 5).Draw(t, "grants")
			m := access.Methods()[rapid.SampledFrom(methods).Draw(t, "method")]
			r := access.Request{
				Tenant:    rapid.SampledFrom([]string{"acme", "brick", "cargo"}).Draw(t, "named"),
				Workspace: rapid.SampledFrom([]string{"", "default", "dev", "prod"}).Draw(t, "within"),
			}
			if m.Scope != access.OfTenant {
				r.Tenant = ""
			}
			one := false
			reached := false // the thing of some run in this workspace
			for _, g := range grants {
				alone := access.Person{Actor: "oidc/jo", Grants: []access.Grant{g}}
				if may(alone, m, r) == nil {
					one = true
					reached = reached || alone.For(m, r).Reaches(r.Workspace)
				}
			}
			all := access.Person{Actor: "oidc/jo", Grants: grants}
			if m.Scope == access.OfTenant || slices.ContainsFunc(grants, func(g access.Grant) bool { return g.Role == access.Platform }) {
				require.Equal(t, one, may(all, m, r) == nil)
				if one {
					require.Equal(t, reached, all.For(m, r).Reaches(r.Workspace))
				}
			}
		})
	})
}
