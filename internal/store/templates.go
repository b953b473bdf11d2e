package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/store/internal/db"
)

func templateFromRow(r db.ServoTemplate) config.Template {
	return config.Template{
		Tenant: id.Of[id.Tenant](r.TenantID), ID: id.Of[id.Template](r.ID), Name: r.Name, Version: r.Version, Cron: r.Cron, Description: r.Description,
		ChangedBy: r.ChangedBy, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}

// LockTemplate locks a template by its name, if it exists.
func (tx *Tx) LockTemplate(ctx context.Context, owner id.Tenant, name string) (found config.Template, known bool, err error) {
	row, err := tx.q.LockTemplate(ctx, db.LockTemplateParams{TenantID: owner.UUID, Name: name})
	if errors.Is(err, pgx.ErrNoRows) {
		return found, false, nil
	}
	return templateFromRow(row), err == nil, err
}

// ShareTemplates returns the cron expressions of the templates with these names, and keeps them
// from changing until the transaction ends.
func (tx *Tx) ShareTemplates(ctx context.Context, owner id.Tenant, names []string) (map[string]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return index(func(r db.ShareTemplatesRow) (string, string) {
		return r.Name, r.Cron
	})(tx.q.ShareTemplates(ctx, db.ShareTemplatesParams{TenantID: owner.UUID, Names: names}))
}

// TemplateNames returns the names of a tenant's own templates.
func (tx *Tx) TemplateNames(ctx context.Context, owner id.Tenant) ([]string, error) {
	return tx.q.TemplateNames(ctx, owner.UUID)
}

// SaveTemplate writes a new or changed template.
func (tx *Tx) SaveTemplate(ctx context.Context, t config.Template) error {
	err := tx.q.UpsertTemplate(ctx, db.UpsertTemplateParams{
		TenantID: t.Tenant.UUID, ID: t.ID.UUID, Name: t.Name, Version: t.Version, Cron: t.Cron, Description: t.Description,
		ChangedBy: t.ChangedBy, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt,
	})
	return taken(err, "template", t.Name)
}

// DeleteTemplate deletes a locked template.
func (tx *Tx) DeleteTemplate(ctx context.Context, t config.Template) error {
	return tx.q.DeleteTemplate(ctx, db.DeleteTemplateParams{TenantID: t.Tenant.UUID, ID: t.ID.UUID})
}

// NamedConfig is a config and its name.
type NamedConfig struct {
	ConfigKey

	Name string
}

// ConfigsOfTemplate returns the configs that use a template, in the order of their ids.
func (tx *Tx) ConfigsOfTemplate(ctx context.Context, owner id.Tenant, name string) ([]NamedConfig, error) {
	return list(func(r db.ConfigsOfTemplateRow) NamedConfig {
		return NamedConfig{ConfigKey: ConfigKey{Tenant: id.Of[id.Tenant](r.TenantID), Config: id.Of[id.Config](r.ID)}, Name: r.Name}
	})(tx.q.ConfigsOfTemplate(ctx, db.ConfigsOfTemplateParams{TenantID: owner.UUID, Template: name}))
}

// ListTemplates reads a tenant's own templates, by their names.
func (s *Store) ListTemplates(ctx context.Context, owner id.Tenant) ([]config.Template, error) {
	return read(ctx, s.tenant(owner), func(ctx context.Context, tx *Tx) ([]config.Template, error) {
		return list(templateFromRow)(tx.q.ListTemplates(ctx, owner.UUID))
	})
}
