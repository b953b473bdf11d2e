package web

import (
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// keys are the keys of a tenant, or with "" those of the installation. Their actions have addresses
// under base.
func (s *Web) keys(v *visit, tenant, base string) (view.KeysModel, error) {
	m := view.KeysModel{
		Tenant: tenant, Base: base, All: v.query("all"), May: v.may(access.KeysManage),
		Roles: []string{"viewer", "operator", "developer", "admin", "worker"},
	}
	if tenant == "" {
		m.Roles = []string{"platform", "worker", "tick"}
	}
	list, err := s.api.keys.ListKeys(v.ctx, &servov1.ListKeysRequest{Tenant: tenant, All: m.All != "", PageSize: rowsOfList, PageToken: v.token()})
	m.Keys, m.Paging = list.GetKeys(), v.paging(list.GetNextPageToken())
	return m, err
}

// auditOf is the audit log of a tenant, or with "" that of the installation.
func (s *Web) auditOf(v *visit, tenant string) (view.AuditModel, error) {
	m := view.AuditModel{Actor: v.query("actor"), Since: v.query("since")}
	list, err := s.api.audit.ListAudit(v.ctx, &servov1.ListAuditRequest{Tenant: tenant, Actor: m.Actor, Since: v.since(), PageSize: rowsOfList, PageToken: v.token()})
	m.Entries, m.Paging = list.GetEntries(), v.paging(list.GetNextPageToken())
	return m, err
}

// keysAt is the tenant in the path of an action on keys, and the address and the section of its
// keys.
func keysAt(v *visit) (tenant, at, section string) {
	if tenant = v.PathValue("tenant"); tenant == "" {
		return "", "/ui/admin?tab=keys", "admin"
	}
	return tenant, view.TenantPath(tenant) + "?tab=keys", "tenants"
}

func (s *Web) createKey(v *visit) (done, error) {
	tenant, at, section := keysAt(v)
	req := &servov1.CreateKeyRequest{Tenant: tenant, Name: v.field("name"), Role: v.field("role"), Workspace: v.field("workspace"), Pools: listed(v.field("pools"))}
	var err error
	if req.ExpiresIn, err = duration(v, "expires_in"); err != nil {
		return done{}, err
	}
	made, err := s.api.keys.CreateKey(v.ctx, req)
	if err != nil {
		return done{}, err
	}
	return secretOnce("Key "+made.GetKey().GetName()+" created", "It has the permissions of the role "+made.GetKey().GetRole()+".", made.GetSecret(), at, section), nil
}

func (s *Web) rotateKey(v *visit) (done, error) {
	tenant, at, section := keysAt(v)
	overlap, err := duration(v, "overlap")
	if err != nil {
		return done{}, err
	}
	made, err := s.api.keys.RotateKey(v.ctx, &servov1.RotateKeyRequest{Tenant: tenant, Key: v.PathValue("key"), Overlap: overlap})
	if err != nil {
		return done{}, err
	}
	return secretOnce("Key "+made.GetKey().GetName()+" rotated", "Replace the old key before it expires.", made.GetSecret(), at, section), nil
}

func (s *Web) revokeKey(v *visit) (done, error) {
	tenant, at, _ := keysAt(v)
	ended, err := s.api.keys.RevokeKey(v.ctx, &servov1.RevokeKeyRequest{Tenant: tenant, Key: v.PathValue("key"), Reason: v.field("reason")})
	return done{To: at, Notice: "Key " + ended.GetName() + " revoked. All servers refuse it within seconds."}, err
}

// secretOnce is a page with a secret. It is the response to a form, is not cached by browsers and
// has no address.
func secretOnce(title, text, secret, at, section string) done {
	return done{Shown: &view.Page{Title: title, Section: section, Body: view.Secret(view.SecretModel{Title: title, Text: text, Secret: secret, At: at})}}
}

// listed are names that are separated by commas or blanks.
func listed(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t' })
}
