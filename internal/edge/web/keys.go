package web

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// keys are the keys of a tenant, or with "" those of the installation. What is done about them
// goes to addresses under base.
func (s *Web) keys(v *visit, tenant, base string) (view.KeysModel, error) {
	m := view.KeysModel{
		Tenant: tenant, Base: base, All: v.query("all") != "", May: v.may(access.KeysManage),
		First: v.token() == "", FirstAt: v.with("page", ""), Roles: []string{"viewer", "operator", "developer", "admin", "worker"},
	}
	if tenant == "" {
		m.Roles = []string{"platform", "worker", "tick"}
	}
	list, err := s.api.keys.ListKeys(v.ctx, &servov1.ListKeysRequest{Tenant: tenant, All: m.All, PageSize: rowsOfList, PageToken: v.token()})
	m.Keys, m.NextAt = list.GetKeys(), v.next(list.GetNextPageToken())
	return m, err
}

// auditOf are the calls about a tenant, or with "" those about the installation.
func (s *Web) auditOf(v *visit, tenant string) (view.AuditModel, error) {
	m := view.AuditModel{Actor: v.query("actor"), Since: v.query("since"), First: v.token() == "", FirstAt: v.with("page", "")}
	req := &servov1.ListAuditRequest{Tenant: tenant, Actor: m.Actor, PageSize: rowsOfList, PageToken: v.token()}
	if back, ok := sinceOf(m.Since); ok {
		req.Since = timestamppb.New(v.now.Add(-back).Truncate(time.Minute)) // the same page again has the same token
	}
	list, err := s.api.audit.ListAudit(v.ctx, req)
	m.Entries, m.NextAt = list.GetEntries(), v.next(list.GetNextPageToken())
	return m, err
}

// keysAt is where the keys are that an action is about. The path says whose they are, and not
// what the lists are held to.
func keysAt(v *visit) (tenant, at string) {
	if tenant = v.PathValue("tenant"); tenant == "" {
		return "", "/ui/admin?tab=keys"
	}
	return tenant, view.TenantPath(tenant) + "?tab=keys"
}

// keysSection is the entry of the navigation that keys are under.
func keysSection(tenant string) string {
	if tenant == "" {
		return "admin"
	}
	return "tenants"
}

func (s *Web) createKey(v *visit) (done, error) {
	tenant, at := keysAt(v)
	req := &servov1.CreateKeyRequest{Tenant: tenant, Name: v.field("name"), Role: v.field("role"), Workspace: v.field("workspace"), Pools: listed(v.field("pools"))}
	var err error
	if req.ExpiresIn, err = duration(v, "expires_in"); err != nil {
		return done{}, err
	}
	made, err := s.api.keys.CreateKey(v.ctx, req)
	if err != nil {
		return done{}, err
	}
	return secretOnce("The key "+made.GetKey().GetName()+" was made", "Whoever has it may do what a "+made.GetKey().GetRole()+" may.", made.GetSecret(), at, keysSection(tenant)), nil
}

func (s *Web) rotateKey(v *visit) (done, error) {
	tenant, at := keysAt(v)
	overlap, err := duration(v, "overlap")
	if err != nil {
		return done{}, err
	}
	made, err := s.api.keys.RotateKey(v.ctx, &servov1.RotateKeyRequest{Tenant: tenant, Key: v.PathValue("key"), Overlap: overlap})
	if err != nil {
		return done{}, err
	}
	return secretOnce("The key "+made.GetKey().GetName()+" has a successor", "Put it in the place of the old one before that one ends.", made.GetSecret(), at, keysSection(tenant)), nil
}

func (s *Web) revokeKey(v *visit) (done, error) {
	tenant, at := keysAt(v)
	ended, err := s.api.keys.RevokeKey(v.ctx, &servov1.RevokeKeyRequest{Tenant: tenant, Key: v.PathValue("key"), Reason: v.field("reason")})
	return done{To: at, Notice: "The key " + ended.GetName() + " was revoked. Within seconds no server believes it."}, err
}

// secretOnce is a page with a secret. It is the answer to a form, is not kept by browsers, and
// has no address at which it could be seen again.
func secretOnce(title, text, secret, at, section string) done {
	return done{Shown: &view.Page{Title: title, Section: section, Body: view.Secret(view.SecretModel{Title: title, Text: text, Secret: secret, At: at})}}
}

// listed are names that were typed with commas or blanks between them.
func listed(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t' })
}
