package view

import (
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// KeysModel is the keys of a tenant or of the installation.
type KeysModel struct {
	Paging

	Tenant     string // "" is the installation
	Base       string // address of the actions
	Keys       []*servov1.Key
	All        string // "" without ended keys
	May        bool
	Roles      []string
	Workspaces []*servov1.Workspace
}

// SecretModel is a secret that is shown once.
type SecretModel struct{ Title, Text, Secret, At string }

// keyAlive reports whether a key can be used.
func keyAlive(k *servov1.Key) bool {
	return k.GetState() == servov1.Key_ACTIVE || k.GetState() == servov1.Key_RETIRING
}

// keyEnd is the time of revocation, or of expiry.
func keyEnd(k *servov1.Key) *timestamppb.Timestamp {
	if k.GetRevokedAt() != nil {
		return k.GetRevokedAt()
	}
	return k.GetExpiresAt()
}

// keyScope is the pools or the workspace of a key.
func keyScope(k *servov1.Key) string {
	switch {
	case len(k.GetPools()) > 0:
		return "pools " + strings.Join(k.GetPools(), ", ")
	case k.GetWorkspace() != "":
		return "workspace " + k.GetWorkspace()
	}
	return "all"
}

func (m KeysModel) createCommand() string {
	if m.Tenant == "" {
		return "servo keys create NAME --platform --role platform"
	}
	return "servo keys create NAME --tenant " + m.Tenant + " --role viewer"
}

// roleOptions are the roles with their permissions.
func (m KeysModel) roleOptions() (options []Option) {
	texts := map[string]string{
		"viewer": "viewer: read", "operator": "operator: trigger, cancel, retry, pause", "developer": "developer: deploy and update configs",
		"admin": "admin: everything in the tenant", "worker": "worker: claim tasks of pools", "tick": "tick: fire due slots", "platform": "platform: everything in the installation",
	}
	for _, r := range m.Roles {
		options = append(options, Option{r, texts[r]})
	}
	return options
}

func (m KeysModel) workspaceOptions() []Option {
	options := []Option{{"", "all workspaces"}}
	for _, w := range m.Workspaces {
		options = append(options, Option{w.GetName(), w.GetName()})
	}
	return options
}
