package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/platform"
)

// newSigningKeys looks after the keys of push pools.
func newSigningKeys() *cobra.Command {
	return group("signing-keys", "Rotate and revoke the keys that envelopes of push pools are signed with",
		newKeysList(), newKeysCreate(), newKeysRotate(), newKeysRevoke())
}

func newKeysList() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys, without their secrets",
		Args:  exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			answer, err := s.client.SigningKeys().ListSigningKeys(ctx, &servov1.ListSigningKeysRequest{})
			if err != nil {
				return err
			}
			return showAll(s, answer.GetKeys(), "no signing keys yet; the first push pool brings one", func(w io.Writer) {
				var t table
				t.add("KEY", "STATE", "SIGNS", "CREATED", "EXPIRES")
				for _, k := range answer.GetKeys() {
					signs := "-"
					if k.GetSigning() {
						signs = "yes"
					} else if k.GetState() == servov1.SigningKey_PENDING {
						signs = "from " + moment(k.GetSignsFrom())
					}
					t.add(clean(k.GetId()), k.GetState().String(), signs, age(time.Now(), k.GetCreatedAt()), moment(k.GetExpiresAt()))
				}
				t.print(w)
			})
		}),
	}
	addRemote(cmd, &r)
	return cmd
}

func moment(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().UTC().Format(time.RFC3339)
}

func newKeysCreate() *cobra.Command {
	var (
		r    remote
		lead time.Duration
	)
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a further key; those before it stay believed",
		Args:  exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			made, err := s.client.SigningKeys().CreateSigningKey(ctx, &servov1.CreateSigningKeyRequest{Lead: durationpb.New(lead)})
			if err != nil {
				return err
			}
			return s.show(made, func(w io.Writer) { newKeyText(w, made) })
		}),
	}
	addLead(cmd, &lead)
	addRemote(cmd, &r)
	return cmd
}

func addLead(cmd *cobra.Command, lead *time.Duration) {
	cmd.Flags().DurationVar(lead, "lead", platform.DefaultKeyLead, "how long to wait before the new key signs, so that workers can be told of it")
}

func newKeyText(w io.Writer, made *servov1.CreateSigningKeyResponse) {
	k := made.GetKey()
	if k.GetSigning() {
		fmt.Fprintf(w, "key %s signs from now on\n", clean(k.GetId()))
	} else {
		fmt.Fprintf(w, "key %s signs from %s\n", clean(k.GetId()), moment(k.GetSignsFrom()))
	}
	workerKeys(w, made.GetWorkerKeys())
}

func newKeysRotate() *cobra.Command {
	var (
		r             remote
		lead, overlap time.Duration
	)
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Make a key that takes over, and let the others expire",
		Long: `Make a key that takes over, and let the others expire. The new key signs after --lead:
until then give it to the workers of every push pool, whose keys are printed once. The keys
before it are believed for --overlap after that, so that what they have signed stays good.

A key that has leaked is not rotated but revoked.`,
		Example: "  servo signing-keys rotate\n  servo signing-keys rotate --lead 1h --overlap 48h",
		Args:    exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			made, err := s.client.SigningKeys().RotateSigningKeys(ctx, &servov1.RotateSigningKeysRequest{
				Lead: durationpb.New(lead), Overlap: durationpb.New(overlap),
			})
			if err != nil {
				return err
			}
			return s.show(made, func(w io.Writer) { newKeyText(w, made) })
		}),
	}
	addLead(cmd, &lead)
	cmd.Flags().DurationVar(&overlap, "overlap", platform.DefaultKeyOverlap, "how long the keys before it are believed once it signs")
	addRemote(cmd, &r)
	return cmd
}

func newKeysRevoke() *cobra.Command {
	var (
		r      remote
		reason string
	)
	cmd := &cobra.Command{
		Use:   "revoke KEY",
		Short: "End a key: within seconds no server believes what it has signed",
		Long: `End a key: within seconds no server believes what it has signed. Workers that are at work
under it cannot report any more, and their tasks are done again. If no other key can sign,
nothing is sent to push pools until one is made.`,
		Example: "  servo signing-keys revoke sk-0123456789ab --reason leaked",
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			revoked, err := s.client.SigningKeys().RevokeSigningKey(ctx, &servov1.RevokeSigningKeyRequest{Key: args[0], Reason: reason})
			if err != nil {
				return err
			}
			return s.show(revoked, func(w io.Writer) { fmt.Fprintf(w, "key %s is revoked\n", clean(revoked.GetId())) })
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever reads the events later")
	addRemote(cmd, &r)
	return cmd
}
