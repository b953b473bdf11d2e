package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/demo"
)

const (
	// patience is the time that a command waits for an unreachable server.
	patience = 2 * time.Second
	// callTimeout is the timeout of one call.
	callTimeout = time.Minute
)

// addRemote gives a command --server, --tls-ca and --output, and a list --watch. They are read as
// settings, together with the environment and the configuration file.
func addRemote(cmd *cobra.Command) {
	addServer(cmd)
	addTLSCA(cmd)
	addOutput(cmd, new(output))
	if cmd.Name() == "list" {
		addListWatch(cmd)
	}
}

// addServer gives a command --server.
func addServer(cmd *cobra.Command) {
	cmd.Flags().StringSlice("server", nil, "host:port of a server's gRPC, repeatable (SERVO_SERVER; default "+defaultServer+")")
}

// addTenant gives a command --tenant and --workspace.
func addTenant(cmd *cobra.Command) {
	cmd.Flags().StringP("tenant", "t", "", "tenant name (SERVO_TENANT; default: the tenant of the key; servo dev: the only one or demo)")
	cmd.Flags().StringP("workspace", "w", "", "workspace name (SERVO_WORKSPACE; default \"default\")")
	completeFlag(cmd, "tenant", (*session).tenantNames)
}

// session is the state of one command that calls a server.
type session struct {
	settings

	client *client.Client
	cmd    *cobra.Command
	args   []string
	paint  palette
	limit  int  // of a list; 0 is all
	more   bool // a list has more items than were shown

	version int32  // that a change requires; 0 is any
	reason  string // of a change

	mu   sync.Mutex
	note func(text string) // prints a remark besides the answer
}

// run builds the RunE of a command that calls a server.
func run(do func(ctx context.Context, s *session) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := connect(cmd, patience)
		if err != nil {
			return err
		}
		defer func() { _ = s.client.Close() }() // its calls are over
		s.args = args
		once := func(ctx context.Context) error { return do(ctx, s) }
		if isWatched(cmd) {
			return s.explain(s.repeat(cmd.Context(), once))
		}
		return s.explain(once(cmd.Context()))
	}
}

// connect reads the settings and creates a client; it makes no call yet.
func connect(cmd *cobra.Command, patience time.Duration) (*session, error) {
	env := environmentOf(cmd.Context())
	read, err := readSettings(cmd.Flags(), env)
	if err != nil {
		return nil, err
	}
	s := &session{settings: read, cmd: cmd, paint: paletteOf(cmd.OutOrStdout(), env.Getenv)}
	s.note = func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) }
	encryption, err := read.encryption()
	if err != nil {
		return nil, err
	}
	shown, err := read.shown(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	s.client, err = client.New(client.Options{
		Servers:     read.Servers,
		APIKey:      shown,
		TLS:         encryption,
		Patience:    patience,
		UserAgent:   "servo-cli/" + thisBuild().Version,
		Logger:      slog.New(notes{s}),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(limitCall)},
	})
	if p, ok := errors.AsType[*client.Problem](err); ok {
		return nil, fault.New(fault.InvalidArgument, p.Message, fault.Field("--server"), fault.Remedy(p.Remedy))
	}
	return s, err
}

// limitCall gives every call a timeout: a server that does not answer is unavailable.
func limitCall(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return invoke(ctx, method, req, reply, conn, opts...)
}

// report prints a remark besides the answer.
func (s *session) report(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(fmt.Sprintf(format, args...))
}

// reportTo redirects remarks.
func (s *session) reportTo(note func(text string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note = note
}

// notes passes the client's warnings on as plain lines.
type notes struct{ s *session }

func (n notes) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (n notes) WithAttrs([]slog.Attr) slog.Handler               { return n }
func (n notes) WithGroup(string) slog.Handler                    { return n }
func (n notes) Handle(_ context.Context, record slog.Record) error {
	n.s.report("%s; trying again", record.Message)
	return nil
}

// requireTenant is the tenant that was named, that of a key which belongs to one, or on servo dev
// the only one or the demo. Elsewhere a tenant must be named: one that is guessed gets the
// deployment, the pause or the deletion that was meant for another.
func (s *session) requireTenant(ctx context.Context) (string, error) {
	if s.Tenant != "" {
		return s.Tenant, nil
	}
	who, err := s.client.Keys().WhoAmI(ctx, &servov1.WhoAmIRequest{})
	if err != nil {
		return "", err
	}
	if own, ok := onlyTenant(who); ok {
		s.Tenant = own
		s.report("using tenant %s, the tenant of your key", clean(own))
		return own, nil
	}
	const enough = 6 // to name some of them
	answer, err := s.client.Tenants().ListTenants(ctx, &servov1.ListTenantsRequest{PageSize: enough})
	if err != nil {
		return "", err
	}
	var names []string
	for _, t := range answer.GetTenants() {
		names = append(names, t.GetName())
	}
	switch {
	case len(names) == 0:
		return "", fault.New(fault.NotFound, "no tenants yet", fault.Field("--tenant"), fault.Remedy("create one: servo tenants create NAME"))
	case who.GetDevelopment() && len(names) == 1:
		s.Tenant = names[0]
		s.report("using tenant %s, the only one", s.Tenant)
		return s.Tenant, nil
	case who.GetDevelopment() && slices.Contains(names, demo.Tenant):
		s.Tenant = demo.Tenant
		s.report("using tenant %s of servo dev; --tenant names another", s.Tenant)
		return s.Tenant, nil
	}
	list := strings.Join(names, ", ")
	if answer.GetNextPageToken() != "" {
		list += ", …"
	}
	return "", fault.New(fault.InvalidArgument, "no tenant is named", fault.Field("--tenant"),
		fault.Remedy("name one with --tenant or SERVO_TENANT: "+list))
}

// onlyTenant is the tenant of a caller that can reach no other.
func onlyTenant(who *servov1.Caller) (string, bool) {
	own := who.GetTenant()
	others := slices.ContainsFunc(who.GetGrants(), func(g *servov1.Grant) bool { return g.GetTenant() != own })
	return own, own != "" && !others
}

// explain converts an error of the client to one with the text and exit code of the command line.
func (s *session) explain(err error) error {
	if errors.Is(err, context.Canceled) {
		return withExit(exitFailed, errors.New("interrupted"))
	}
	p, ok := errors.AsType[*client.Problem](err)
	if !ok {
		return err
	}
	switch {
	case p.Code == client.DeadlineExceeded:
		return withExit(exitUnavailable, fault.New(fault.Unavailable, "no answer from "+strings.Join(s.Servers, ", ")+" in time",
			fault.Field("--server"), fault.Remedy("try again; if it persists, see the server's log"), fault.Cause(err)))
	case p.Code == client.Unavailable && p.Remedy == "" && p.Field == "": // no server has answered
		return withExit(exitUnavailable, fault.New(fault.Unavailable, "no server answers at "+strings.Join(s.Servers, ", ")+": "+reason(p.Message),
			fault.Field("--server"), fault.Remedy("is one running there? try servo dev"), fault.Cause(err)))
	}
	f := faultOf(p)
	if f.Code == fault.Unavailable && f.Violation.Field == "servers" { // it was reached, and no connection was made
		f = fault.New(fault.Unavailable, strings.Join(s.Servers, ", ")+": "+p.Message, fault.Field("--server"), fault.Remedy(p.Remedy), fault.Cause(err))
	}
	if f.Code == fault.Unavailable {
		return withExit(exitUnavailable, f)
	}
	return f
}

// reason is the cause in a connection error of gRPC.
func reason(message string) string {
	for _, known := range []string{"connection refused", "no such host", "i/o timeout", "network is unreachable", "connection reset by peer"} {
		if strings.Contains(message, known) {
			return known
		}
	}
	return message
}

// faultOf is a problem as a fault of our own.
func faultOf(p *client.Problem) *fault.Fault {
	f := fault.New(fault.Code(p.Code), p.Message, fault.Field(p.Field), fault.Remedy(p.Remedy), fault.RetryAfter(p.RetryAfter), fault.Cause(p))
	f.Values = p.Values
	for i, v := range p.Violations {
		if i > 0 {
			f.Others = append(f.Others, fault.Violation{Code: fault.Code(v.Code), Field: v.Field, Message: v.Message, Remedy: v.Remedy})
		}
	}
	return f
}
