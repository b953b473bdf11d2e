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
)

// newKeys looks after API keys.
func newKeys() *cobra.Command {
	return group("keys", "Look after API keys", newAPIKeysBootstrap(), newAPIKeysCreate(), newAPIKeysList(), newAPIKeysRotate(), newAPIKeysRevoke())
}

func newAPIKeysBootstrap() *cobra.Command {
	var (
		database, name string
		force          bool
		form           output
	)
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Make the first platform key, straight in the database",
		Long: `Make the first platform key, straight in the database, and print it once. It may do everything:
make further keys with it, and keep it safe. Whoever can reach the database can do this; if there
is a platform key that is alive it is refused, unless --force says that they are lost.`,
		Example: `  servo keys bootstrap --database postgres://servo@localhost/servo
  servo keys bootstrap -o json | jq -r .secret | servo login --server 127.0.0.1:8081`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := openMigrated(cmd.Context(), database)
			if err != nil {
				return err
			}
			defer s.Close()
			e := engine.New(s, engine.Config{}, slog.New(slog.DiscardHandler))
			defer e.Stop()
			made, secret, err := e.Bootstrap(cmd.Context(), name, force, event.Meta{Actor: "bootstrap"})
			if err != nil {
				return err
			}
			return render(cmd.OutOrStdout(), form, map[string]string{"id": made.Public, "name": made.Name, "role": string(made.Role), "secret": secret.Text()}, func(w io.Writer) {
				keyMade(w, made.Name, made.Public, string(made.Role), secret.Text())
			})
		},
	}
	addDatabase(cmd, &database)
	cmd.Flags().StringVar(&name, "name", "bootstrap", "its name, which events and the audit show")
	cmd.Flags().BoolVar(&force, "force", false, "make it although there are platform keys")
	addOutput(cmd, &form)
	return cmd
}

func keyMade(w io.Writer, name, id, role, secret string) {
	fmt.Fprintf(w, "key %s (%s) has the role %s\nkeep it; it is not shown again:\n  %s\n", clean(name), clean(id), clean(role), shownOnce(secret))
}

// shownOnce is a secret that an answer had, unless the answer that had it was lost: a repeat has
// none.
func shownOnce(secret string) string {
	if secret == "" {
		return "(the answer that had it was lost on its way: end this one, and make another)"
	}
	return clean(secret)
}

func newAPIKeysCreate() *cobra.Command {
	var (
		w       whose
		role    string
		pools   []string
		expires time.Duration
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an API key, and print it once",
		Long: `Make an API key, and print it once. Roles, each with what the one before may do:

  viewer     reads
  operator   triggers, cancels and retries runs, pauses and resumes, releases locks
  developer  deploys, writes configs, sends events
  admin      everything in the tenant: keys, quotas, audit, workspaces, channels
  platform   everything, everywhere (with --platform)

A worker key works for the pools that --pool names, and does nothing else. With --workspace a key
is for one workspace.`,
		Example: `  servo keys create ci --role developer --expires-in 2160h
  servo keys create fleet --platform --role worker --pool default --pool big`,
		Args: exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			if err := knownRole(role); err != nil {
				return err
			}
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			req := &servov1.CreateKeyRequest{Tenant: tenant, Name: args[0], Role: role, Pools: pools}
			if s.cmd.Flags().Changed("workspace") { // a workspace of the settings is where one works, not what a key is for
				req.Workspace = s.Workspace
			}
			if expires != 0 {
				req.ExpiresIn = durationpb.New(expires)
			}
			made, err := s.client.Keys().CreateKey(ctx, req)
			if err != nil {
				return err
			}
			return s.show(made, func(w io.Writer) {
				keyMade(w, made.GetKey().GetName(), made.GetKey().GetId(), made.GetKey().GetRole(), made.GetSecret())
			})
		}),
	}
	cmd.Flags().StringVar(&role, "role", "", "viewer, operator, developer, admin, worker, tick or platform")
	cmd.Flags().StringArrayVar(&pools, "pool", nil, "a pool that a worker key serves; may be given several times")
	cmd.Flags().DurationVar(&expires, "expires-in", 0, "how long it lives (default: for ever)")
	addWhose(cmd, &w, "a key of the installation, for the roles platform and worker")
	return cmd
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
		message = fmt.Sprintf("%q is no role%s", role, suggest.DidYouMean(role, names))
	}
	return fault.New(fault.InvalidArgument, message, fault.Field("--role"), fault.Remedy("use one of "+strings.Join(names, ", ")))
}

func newAPIKeysList() *cobra.Command {
	var (
		w     whose
		limit int
		all   bool
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the API keys of a tenant, without their secrets",
		Example: "  servo keys list --all",
		Args:    exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			keys, err := listed(s, client.AllKeys(ctx, s.client, &servov1.ListKeysRequest{Tenant: tenant, All: all, PageSize: pageSize(limit)}), limit)
			if err != nil {
				return err
			}
			return showAll(s, keys, "no keys; servo keys create makes one", func(w io.Writer) { keysTable(w, s, keys, time.Now()) })
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that are expired or revoked")
	addLimit(cmd, &limit, "keys")
	addWhose(cmd, &w, "those of the installation")
	return cmd
}

func keysTable(w io.Writer, s *session, keys []*servov1.Key, now time.Time) {
	var t table
	t.add("ID", "NAME", "ROLE", "FOR", "STATE", "AGE", "EXPIRES", "USED", "BY")
	for _, k := range keys {
		reach := orDash(clean(k.GetWorkspace()))
		if len(k.GetPools()) > 0 {
			reach = clean(strings.Join(k.GetPools(), ","))
		}
		t.add(k.GetId(), clean(k.GetName()), k.GetRole(), reach, s.paint.state(k.GetState().String()), age(now, k.GetCreatedAt()),
			when(now, k.GetExpiresAt()), when(now, k.GetLastUsedAt()), clean(k.GetCreatedBy()))
	}
	t.print(w)
}

func newAPIKeysRotate() *cobra.Command {
	var (
		w       whose
		overlap time.Duration
	)
	cmd := &cobra.Command{
		Use:   "rotate KEY",
		Short: "Make a key that replaces another, which is believed for a while",
		Long: `Make a key that may do the same as another, and print it once. The other, named by its id or its
name, is believed for --overlap: give the new one to whoever uses it in that time.`,
		Example: "  servo keys rotate ci --overlap 1h",
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			made, err := s.client.Keys().RotateKey(ctx, &servov1.RotateKeyRequest{Tenant: tenant, Key: args[0], Overlap: durationpb.New(overlap)})
			if err != nil {
				return err
			}
			return s.show(made, func(w io.Writer) {
				keyMade(w, made.GetKey().GetName(), made.GetKey().GetId(), made.GetKey().GetRole(), made.GetSecret())
				fmt.Fprintf(w, "the one before it is believed for %s\n", overlap)
			})
		}),
	}
	cmd.Flags().DurationVar(&overlap, "overlap", access.DefaultOverlap, "how long the other is still believed")
	addWhose(cmd, &w, "one of the installation")
	return cmd
}

func newAPIKeysRevoke() *cobra.Command {
	var (
		w      whose
		reason string
	)
	cmd := &cobra.Command{
		Use:     "revoke KEY",
		Short:   "End a key: within seconds no server believes it",
		Example: "  servo keys revoke ci --reason leaked",
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			tenant, err := w.tenantOf(ctx, s)
			if err != nil {
				return err
			}
			revoked, err := s.client.Keys().RevokeKey(ctx, &servov1.RevokeKeyRequest{Tenant: tenant, Key: args[0], Reason: reason})
			if err != nil {
				return err
			}
			return s.show(revoked, func(w io.Writer) {
				fmt.Fprintf(w, "key %s (%s) is revoked\n", clean(revoked.GetName()), clean(revoked.GetId()))
			})
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever reads the events later")
	addWhose(cmd, &w, "one of the installation")
	return cmd
}
