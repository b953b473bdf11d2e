package daemon_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/base/webhook"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// addressClasses has an address of each class, and whether a server that lists 10.0.0.0/8 may
// call it.
var addressClasses = map[string]bool{
	"8.8.8.8": true, "[2606:4700::1]": true, "[64:ff9b::8.8.8.8]": true, "10.1.2.3": true, "[::ffff:10.1.2.3]": true, "[64:ff9b::10.1.2.3]": true,
	"192.168.1.1": false, "172.16.0.1": false, "[fd12::1]": false, // private, and not in the list
	"100.64.0.1": false, "198.18.0.1": false, "203.0.113.1": false, // CGNAT, benchmarking, documentation
	"127.0.0.1": false, "[::1]": false, "localhost": false, "a.localhost": false, // loopback
	"169.254.1.1": false, "[fe80::1]": false, "169.254.169.254": false, "[fd00:ec2::254]": false, // link-local, metadata
	"0.0.0.0": false, "0.1.2.3": false, "[::]": false, "224.0.0.1": false, "[ff02::1]": false, // unspecified, multicast
	"240.0.0.1": false, "255.255.255.255": false, "[64:ff9b:1::a00:1]": false, "[2001:0:a00:1::1]": false, // reserved, local NAT64, Teredo
	"[::ffff:127.0.0.1]": false, "[::ffff:192.168.1.1]": false, "[64:ff9b::127.0.0.1]": false, "[64:ff9b::192.168.1.1]": false, "[2002:c0a8:101::1]": false,
}

// TestTargets tries every class of addresses with everything that saves a URL, and with what
// calls it afterwards.
func TestTargets(t *testing.T) {
	t.Parallel()
	targets := netguard.Policy{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	conn := servertest.StartWith(t, daemon.Config{DatabaseURL: servotest.DB(t).URL, Targets: targets}).Dial(t)
	_, err := servov1.NewTenantServiceClient(conn).CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"})
	require.NoError(t, err)
	_, err = servov1.NewPoolServiceClient(conn).CreatePool(t.Context(), &servov1.CreatePoolRequest{Name: "changing", Kind: servov1.Pool_PUSH, Url: "https://10.9.9.9"})
	require.NoError(t, err)

	for user, save := range saversOf(conn) {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			for host, allowed := range addressClasses {
				err := save(t.Context(), "http://"+host+":9000/x")
				if allowed {
					require.NoError(t, err, host)
					continue
				}
				require.Equal(t, codes.InvalidArgument, status.Code(err), "%s: %v", host, err)
				require.Regexp(t, `^\S+ is (a|an|the) `, status.Convert(err).Message(), host)
			}
		})
	}

	t.Run("calls of webhooks", func(t *testing.T) {
		t.Parallel()
		sender := webhook.NewSender("test", netguard.NewGuard(targets))
		t.Cleanup(sender.Close)
		for host, allowed := range addressClasses {
			if !allowed {
				result := sender.Post(t.Context(), webhook.Message{URL: "http://" + host + ":9/x"}, time.Now())
				require.Regexp(t, ` is (a|an|the) .*address|may be called`, result, host)
			}
		}
	})
}

// saversOf are the calls that save a URL.
func saversOf(conn grpc.ClientConnInterface) map[string]func(context.Context, string) error {
	alerts, subscriptions, pools := servov1.NewAlertServiceClient(conn), servov1.NewSubscriptionServiceClient(conn), servov1.NewPoolServiceClient(conn)
	name := strings.NewReplacer("http://", "", ":", "-", "/", "", "[", "", "]", "")
	return map[string]func(context.Context, string) error{
		"alert channel": func(ctx context.Context, url string) error {
			_, err := alerts.CreateAlertChannel(ctx, &servov1.CreateAlertChannelRequest{Tenant: "acme", Name: "x" + name.Replace(url), Url: url})
			return err
		},
		"alert channel of the platform": func(ctx context.Context, url string) error {
			_, err := alerts.CreateAlertChannel(ctx, &servov1.CreateAlertChannelRequest{Name: "x" + name.Replace(url), Url: url})
			return err
		},
		"subscription": func(ctx context.Context, url string) error {
			_, err := subscriptions.CreateSubscription(ctx, &servov1.CreateSubscriptionRequest{Tenant: "acme", Name: "x" + name.Replace(url), Url: url})
			return err
		},
		"new push pool": func(ctx context.Context, url string) error {
			_, err := pools.CreatePool(ctx, &servov1.CreatePoolRequest{Name: "x" + name.Replace(url), Kind: servov1.Pool_PUSH, Url: url})
			return err
		},
		"changed push pool": func(ctx context.Context, url string) error {
			_, err := pools.UpdatePool(ctx, &servov1.UpdatePoolRequest{Pool: "changing", Url: &url})
			return err
		},
		"http asset": func(ctx context.Context, url string) error {
			manifest, err := structpb.NewStruct(map[string]any{
				"version": 1, "assets": []any{map[string]any{"key": "a/b", "http": map[string]any{"url": url}}}, "pipelines": []any{map[string]any{"name": "p"}},
			})
			if err != nil {
				return err
			}
			_, err = servov1.NewDeploymentServiceClient(conn).Deploy(ctx, &servov1.DeployRequest{Tenant: "acme", Manifest: manifest})
			return err
		},
	}
}
