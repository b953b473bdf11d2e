package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// newKeys is the group of commands about API keys.
func newKeys() *cobra.Command {
	return group("keys", "Manage API keys", newKeysBootstrap(), newKeysCreate(), newKeysList(), newKeysRotate(),
		newShow(spec{
			use: "revoke KEY", short: "Revoke an API key (takes effect within seconds)", platform: ofPlatform, reason: true,
			example: "  servo keys revoke ci --reason leaked",
		}, func(ctx context.Context, s *session) (*servov1.Key, error) {
			return s.client.Keys().RevokeKey(ctx, &servov1.RevokeKeyRequest{Tenant: s.Tenant, Key: s.args[0], Reason: s.reason})
		}, func(w io.Writer, _ *session, k *servov1.Key) {
			fmt.Fprintf(w, "key %s (%s) revoked\n", clean(k.GetName()), clean(k.GetId()))
		}))
}

func newKeysBootstrap() *cobra.Command {
	var (
		name  string
		force bool
	)
	return newOnDatabase(spec{
		use: "bootstrap", short: "Create the first platform key in the database",
		long: `Create the first platform key in the database and print it once. The key permits everything:
create further keys with it, and store it safely. The command needs access to the database. It is
refused while a platform key is valid; --force overrides that, for the case that all are lost.`,
		example: `  servo keys bootstrap --database postgres://servo@localhost/servo
  servo keys bootstrap -o json | jq -r .secret | servo login --server 127.0.0.1:8081`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&name, "name", "bootstrap", "name of the key, shown in events and the audit log")
			cmd.Flags().BoolVar(&force, "force", false, "create the key although platform keys exist")
		},
	}, openMigrated, func(ctx context.Context, s *store.Store, _ []string) (map[string]string, error) {
		e := engine.New(s, engine.Config{}, slog.New(slog.DiscardHandler))
		defer e.Stop()
		made, secret, err := e.Bootstrap(ctx, name, force, event.Meta{Actor: "bootstrap"})
		if err != nil {
			return nil, err
		}
		return map[string]string{"id": made.Public, "name": made.Name, "role": string(made.Role), "secret": secret.Text()}, nil
	}, func(w io.Writer, key map[string]string) {
		keyMade(w, key["name"], key["id"], key["role"], key["secret"])
	})
}

func keyMade(w io.Writer, name, id, role, secret string) {
	fmt.Fprintf(w, "key %s (%s) created with role %s\nstore it; it is not shown again:\n  %s\n", clean(name), clean(id), clean(role), shownOnce(secret))
}

// createdKey prints a key with its secret.
func createdKey(w io.Writer, _ *session, made *servov1.CreateKeyResponse) {
	keyMade(w, made.GetKey().GetName(), made.GetKey().GetId(), made.GetKey().GetRole(), made.GetSecret())
}

// shownOnce is the secret of an answer. The answer to a repeated call has none.
func shownOnce(secret string) string {
	if secret == "" {
		return "(lost with the first answer: delete this one and create another)"
	}
	return clean(secret)
}

func newKeysCreate() *cobra.Command {
	var (
		role    string
		pools   []string
		expires time.Duration
	)
	return newShow(spec{
		use: "create NAME", short: "Create an API key and print it once", platform: "key of the installation, for the roles platform and worker",
		long: `Create an API key and print it once. Each role includes the one before:

  viewer     reads
  operator   triggers, cancels and retries runs, pauses and resumes, releases locks
  developer  deploys, writes configs, sends external events
  admin      everything in the tenant: keys, quotas, audit, workspaces, channels
  platform   everything in all tenants (with --platform)

A worker key claims tasks of the pools that --pool names, and permits nothing else. With
--workspace a key is for one workspace.`,
		example: `  servo keys create ci --role developer --expires-in 2160h
  servo keys create fleet --platform --role worker --pool default --pool big`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&role, "role", "", "role: viewer, operator, developer, admin, worker, tick or platform")
			cmd.Flags().StringArrayVar(&pools, "pool", nil, "pool of a worker key, repeatable")
			cmd.Flags().DurationVar(&expires, "expires-in", 0, "lifetime of the key, such as 2160h (default: no expiry)")
		},
		check: func(*session) error { return knownRole(role) },
	}, func(ctx context.Context, s *session) (*servov1.CreateKeyResponse, error) {
		req := &servov1.CreateKeyRequest{Tenant: s.Tenant, Name: s.args[0], Role: role, Pools: pools}
		if s.cmd.Flags().Changed("workspace") { // the workspace of the settings does not restrict a key
			req.Workspace = s.Workspace
		}
		if s.cmd.Flags().Changed("expires-in") {
			req.ExpiresIn = durationpb.New(expires)
		}
		return s.client.Keys().CreateKey(ctx, req)
	}, createdKey)
}

func knownRole(role string) error {
	if access.Role(role).Known() {
		return nil
	}
	var names []string
	for _, r := range access.Roles() {
		names = append(names, string(r))
	}
	message := "is missing"
	if role != "" {
		message = fmt.Sprintf("unknown role %q%s", role, suggest.DidYouMean(role, names))
	}
	return fault.New(fault.InvalidArgument, message, fault.Field("--role"), fault.Remedy("use one of "+strings.Join(names, ", ")))
}

func newKeysList() *cobra.Command {
	var all bool
	return newList(spec{
		short: "List API keys without their secrets", example: "  servo keys list --all", platform: "keys of the installation", limit: "keys",
		flags: func(cmd *cobra.Command) { cmd.Flags().BoolVar(&all, "all", false, "include expired and revoked keys") },
	}, "no keys; create one: servo keys create NAME", func(ctx context.Context, s *session) ([]*servov1.Key, error) {
		return listed(s, client.AllKeys(ctx, s.client, &servov1.ListKeysRequest{Tenant: s.Tenant, All: all, PageSize: pageSize(s.limit)}))
	}, columns([]string{"ID", "NAME", "ROLE", "FOR", "STATE", "AGE", "EXPIRES", "USED", "BY"}, func(v view, k *servov1.Key) []string {
		reach := orDash(k.GetWorkspace())
		if len(k.GetPools()) > 0 {
			reach = clean(strings.Join(k.GetPools(), ","))
		}
		return []string{
			k.GetId(), clean(k.GetName()), k.GetRole(), reach, v.paint.state(k.GetState().String()), age(v.now, k.GetCreatedAt()),
			when(v.now, k.GetExpiresAt()), when(v.now, k.GetLastUsedAt()), clean(k.GetCreatedBy()),
		}
	}))
}

func newKeysRotate() *cobra.Command {
	var overlap time.Duration
	return newShow(spec{
		use: "rotate KEY", short: "Create a key that replaces another", platform: ofPlatform,
		long: `Create a key with the role of another, and print it once. The other key, given by id or name,
stays valid for --overlap: distribute the new key in that time.`,
		example: "  servo keys rotate ci --overlap 1h",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().DurationVar(&overlap, "overlap", access.DefaultOverlap, "time for which the other key stays valid")
		},
	}, func(ctx context.Context, s *session) (*servov1.CreateKeyResponse, error) {
		return s.client.Keys().RotateKey(ctx, &servov1.RotateKeyRequest{Tenant: s.Tenant, Key: s.args[0], Overlap: durationpb.New(overlap)})
	}, func(w io.Writer, s *session, made *servov1.CreateKeyResponse) {
		createdKey(w, s, made)
		fmt.Fprintf(w, "the previous key stays valid for %s\n", overlap)
	})
}
