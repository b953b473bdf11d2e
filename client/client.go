package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

const (
	// keepaliveTime is the time without data from the server after which the client sends a ping while
	// a call is open. A waiting claim receives nothing for minutes. 10 s is the minimum of gRPC.
	keepaliveTime = 10 * time.Second
	// keepaliveTimeout is the timeout of a ping.
	keepaliveTimeout = 5 * time.Second
	// connectBase and connectMax are the pause between two tries to connect. A server that
	// restarts does not answer for a second or two, and connecting to a closed port is cheap.
	connectBase = 100 * time.Millisecond
	connectMax  = 3 * time.Second
	// connectTimeout is how long one try may take.
	connectTimeout = 5 * time.Second
	// maxAnswer bounds one answer: a thousand leases with the results of their upstreams.
	maxAnswer = 128 << 20
)

// Options configure a client.
type Options struct {
	// Servers are addresses as host:port, or https://host:port of servers that speak TLS. Calls
	// are spread over all that answer.
	Servers []string
	// Patience is how long a call waits for a server that cannot be reached before it fails
	// with UNAVAILABLE. 0 waits as long as the call's context allows.
	Patience time.Duration
	// APIKey is the key of the client, as sk_…; empty for servers without keys. It is sent with every
	// call: use TLS on networks that you do not trust.
	APIKey string
	// TLS enables encryption, or configures it for https:// addresses; see TLSFromFiles. Nil is plain
	// text, or the certificate authorities of this machine for https:// addresses.
	TLS *tls.Config
	// UserAgent names the program to the server.
	UserAgent string
	// Logger receives repeats and lost connections; nil logs nothing.
	Logger *slog.Logger
	// DialOptions come after the client's own.
	DialOptions []grpc.DialOption

	// silencePatience is how long a server may take to answer a probe and to acknowledge a claim;
	// 0 is defaultSilencePatience.
	silencePatience time.Duration
}

// Client is a connection to an installation. It is safe for concurrent use.
type Client struct {
	conn     *grpc.ClientConn
	servers  []string
	patience time.Duration
	apiKey   string
	log      *slog.Logger
	silence  time.Duration   // patience with probes and acknowledgements
	closed   context.Context //nolint:containedctx // ends the probes of silent servers
	close    context.CancelFunc
}

// New creates a client. It connects at the first call.
func New(options Options) (*Client, error) {
	addresses, https, err := parseServers(options.Servers)
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(options.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &Problem{Code: InvalidArgument, Message: "has characters that no key has", Field: "api_key", Remedy: "give it as it was shown: sk_…"}
	}
	c := &Client{servers: options.Servers, patience: options.Patience, apiKey: options.APIKey, log: options.Logger}
	c.silence = cmp.Or(options.silencePatience, defaultSilencePatience)
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if options.UserAgent == "" {
		options.UserAgent = "servo-go"
	}
	transport := insecure.NewCredentials()
	if encryption := options.encryption(https); encryption != nil {
		transport = credentials.NewTLS(encryption)
	}
	c.closed, c.close = context.WithCancel(context.Background())
	for i, address := range addresses {
		addresses[i] = addressOf(newServer(c, address.Addr), address)
	}
	registerPolicy()
	list := manual.NewBuilderWithScheme("servo")
	list.InitialState(resolver.State{Addresses: addresses})
	dial := []grpc.DialOption{
		grpc.WithResolvers(list),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"` + policy + `": {}}]}`),
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent(options.UserAgent),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: connectBase, Multiplier: 1.6, Jitter: 0.2, MaxDelay: connectMax},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithIdleTimeout(0), // a worker's connection stays open
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithStatsHandler(receipts{}),
		grpc.WithChainUnaryInterceptor(c.unary),
		grpc.WithChainStreamInterceptor(c.stream),
	}
	if c.conn, err = grpc.NewClient("servo:///servers", append(dial, options.DialOptions...)...); err != nil {
		return nil, &Problem{Code: InvalidArgument, Message: err.Error(), Field: "options", Remedy: "correct the dial options"}
	}
	return c, nil
}

// Close ends the connections and the calls that are open.
func (c *Client) Close() error {
	c.close()
	return c.conn.Close()
}

// Conn is the connection itself, with repeats and typed errors, for other generated clients.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// Tenants looks after tenants and workspaces.
func (c *Client) Tenants() servov1.TenantServiceClient { return servov1.NewTenantServiceClient(c.conn) }

// Deployments registers manifests.
func (c *Client) Deployments() servov1.DeploymentServiceClient {
	return servov1.NewDeploymentServiceClient(c.conn)
}

// Assets reads assets and pipelines.
func (c *Client) Assets() servov1.AssetServiceClient { return servov1.NewAssetServiceClient(c.conn) }

// Runs triggers, lists, cancels and retries runs.
func (c *Client) Runs() servov1.RunServiceClient { return servov1.NewRunServiceClient(c.conn) }

// Tasks reads tasks and their logs.
func (c *Client) Tasks() servov1.TaskServiceClient { return servov1.NewTaskServiceClient(c.conn) }

// Workers is the API of pull workers.
func (c *Client) Workers() servov1.WorkerServiceClient { return servov1.NewWorkerServiceClient(c.conn) }

// Status reports the state of the installation.
func (c *Client) Status() servov1.StatusServiceClient { return servov1.NewStatusServiceClient(c.conn) }

// Locks lists and releases locks.
func (c *Client) Locks() servov1.LockServiceClient { return servov1.NewLockServiceClient(c.conn) }

// Admin has calls for operators.
func (c *Client) Admin() servov1.AdminServiceClient { return servov1.NewAdminServiceClient(c.conn) }

// Metrics returns totals of runs.
func (c *Client) Metrics() servov1.MetricsServiceClient {
	return servov1.NewMetricsServiceClient(c.conn)
}

// Fairness lists the shares of tenants in pools.
func (c *Client) Fairness() servov1.FairnessServiceClient {
	return servov1.NewFairnessServiceClient(c.conn)
}

// Configs manages configs, and lists their slots.
func (c *Client) Configs() servov1.ConfigServiceClient { return servov1.NewConfigServiceClient(c.conn) }

// Search finds objects by an id or a part of a name.
func (c *Client) Search() servov1.SearchServiceClient { return servov1.NewSearchServiceClient(c.conn) }

// Simulation predicts the slots and runs of configs.
func (c *Client) Simulation() servov1.SimulationServiceClient {
	return servov1.NewSimulationServiceClient(c.conn)
}

// Alerts lists alerts and manages alert channels.
func (c *Client) Alerts() servov1.AlertServiceClient { return servov1.NewAlertServiceClient(c.conn) }

// Materializations lists versions of outputs.
func (c *Client) Materializations() servov1.MaterializationServiceClient {
	return servov1.NewMaterializationServiceClient(c.conn)
}

// Backfills manages backfills.
func (c *Client) Backfills() servov1.BackfillServiceClient {
	return servov1.NewBackfillServiceClient(c.conn)
}

// Subscriptions manages the URLs that receive events.
func (c *Client) Subscriptions() servov1.SubscriptionServiceClient {
	return servov1.NewSubscriptionServiceClient(c.conn)
}

// Keys manages API keys.
func (c *Client) Keys() servov1.KeyServiceClient { return servov1.NewKeyServiceClient(c.conn) }

// Audit lists audited calls.
func (c *Client) Audit() servov1.AuditServiceClient { return servov1.NewAuditServiceClient(c.conn) }

// Scheduler fires slots on request.
func (c *Client) Scheduler() servov1.SchedulerServiceClient {
	return servov1.NewSchedulerServiceClient(c.conn)
}

// Events sends external events, and lists recorded events.
func (c *Client) Events() servov1.EventServiceClient { return servov1.NewEventServiceClient(c.conn) }

// Templates manages named schedules.
func (c *Client) Templates() servov1.TemplateServiceClient {
	return servov1.NewTemplateServiceClient(c.conn)
}

// Pools manages pools.
func (c *Client) Pools() servov1.PoolServiceClient { return servov1.NewPoolServiceClient(c.conn) }

// Releases manages releases.
func (c *Client) Releases() servov1.ReleaseServiceClient {
	return servov1.NewReleaseServiceClient(c.conn)
}

// Channels manages channels of releases and their rollouts.
func (c *Client) Channels() servov1.ReleaseChannelServiceClient {
	return servov1.NewReleaseChannelServiceClient(c.conn)
}

// SigningKeys manages the keys that sign envelopes of push pools.
func (c *Client) SigningKeys() servov1.SigningKeyServiceClient {
	return servov1.NewSigningKeyServiceClient(c.conn)
}
