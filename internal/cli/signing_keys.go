package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/platform"
)

// newSigningKeys is the group of commands about the keys of push pools.
func newSigningKeys() *cobra.Command {
	return group("signing-keys", "Manage the keys that sign envelopes of push pools",
		newList(spec{short: "List signing keys without their secrets"}, "no signing keys yet; the first push pool creates one",
			func(ctx context.Context, s *session) ([]*servov1.SigningKey, error) {
				answer, err := s.client.SigningKeys().ListSigningKeys(ctx, &servov1.ListSigningKeysRequest{})
				return answer.GetKeys(), err
			},
			columns([]string{"KEY", "STATE", "SIGNS", "CREATED", "EXPIRES"}, func(v view, k *servov1.SigningKey) []string {
				signs := "-"
				if k.GetSigning() {
					signs = "yes"
				} else if k.GetState() == servov1.SigningKey_PENDING {
					signs = "from " + instant(k.GetSignsFrom())
				}
				return []string{clean(k.GetId()), k.GetState().String(), signs, age(v.now, k.GetCreatedAt()), instant(k.GetExpiresAt())}
			})),
		newSigningKeysCreate(), newSigningKeysRotate(),
		newShow(spec{
			use: "revoke KEY", short: "Revoke a signing key (takes effect within seconds)", reason: true,
			long: `Revoke a signing key: within seconds no server accepts its signatures. Workers with envelopes
signed by it can no longer report, and their tasks run again. If no other key can sign, tasks of
push pools wait until one is created.`,
			example: "  servo signing-keys revoke sk-0123456789ab --reason leaked",
		}, func(ctx context.Context, s *session) (*servov1.SigningKey, error) {
			return s.client.SigningKeys().RevokeSigningKey(ctx, &servov1.RevokeSigningKeyRequest{Key: s.args[0], Reason: s.reason})
		}, func(w io.Writer, _ *session, k *servov1.SigningKey) {
			fmt.Fprintf(w, "key %s revoked\n", clean(k.GetId()))
		}))
}

func addLead(cmd *cobra.Command, lead *time.Duration) {
	cmd.Flags().DurationVar(lead, "lead", platform.DefaultKeyLead, "delay before the new key signs, for its distribution to workers")
}

func newSigningKeysCreate() *cobra.Command {
	var lead time.Duration
	return newShow(spec{use: "create", short: "Create a signing key; others stay valid", flags: func(cmd *cobra.Command) { addLead(cmd, &lead) }},
		func(ctx context.Context, s *session) (*servov1.CreateSigningKeyResponse, error) {
			return s.client.SigningKeys().CreateSigningKey(ctx, &servov1.CreateSigningKeyRequest{Lead: durationpb.New(lead)})
		}, signingKeyText)
}

func signingKeyText(w io.Writer, _ *session, made *servov1.CreateSigningKeyResponse) {
	from := "now on"
	if k := made.GetKey(); !k.GetSigning() {
		from = instant(k.GetSignsFrom())
	}
	fmt.Fprintf(w, "key %s signs from %s\n", clean(made.GetKey().GetId()), from)
	workerKeys(w, made.GetWorkerKeys())
}

func newSigningKeysRotate() *cobra.Command {
	var lead, overlap time.Duration
	return newShow(spec{
		use: "rotate", short: "Create a signing key and let the others expire",
		long: `Create a signing key and let the others expire. The new key signs after --lead: until then give
it to the workers of every push pool; the keys are printed once. The previous keys are accepted
for --overlap after that, so that envelopes signed by them stay valid.

Revoke a leaked key instead.`,
		example: "  servo signing-keys rotate\n  servo signing-keys rotate --lead 1h --overlap 48h",
		flags: func(cmd *cobra.Command) {
			addLead(cmd, &lead)
			cmd.Flags().DurationVar(&overlap, "overlap", platform.DefaultKeyOverlap, "time for which the previous keys are accepted afterwards")
		},
	}, func(ctx context.Context, s *session) (*servov1.CreateSigningKeyResponse, error) {
		return s.client.SigningKeys().RotateSigningKeys(ctx, &servov1.RotateSigningKeysRequest{Lead: durationpb.New(lead), Overlap: durationpb.New(overlap)})
	}, signingKeyText)
}
