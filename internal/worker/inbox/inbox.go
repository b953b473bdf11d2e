// Package inbox gives pushed tasks to a worker that otherwise claims them. To the worker it is a
// connection to a server: a claim waits for envelopes that arrive over HTTP, and reports and heartbeats
// are sent to the callback URLs in the envelopes. So pushed tasks behave like pulled ones, from the
// order of their reports to stopping. It accepts only envelopes with a valid signature, and executes
// nothing itself.
package inbox

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/push"
)

// Options configures an inbox.
type Options struct {
	Instance string        // the name of this process among those of the pool
	Keys     push.Lookup   // keys that verify envelopes
	Patience time.Duration // how long an envelope waits for free capacity; default 2 s
	Logger   *slog.Logger
}

// The limits of callbacks.
const (
	callbackPatience = 20 * time.Second
	idleTimeout      = 90 * time.Second
	maxAnswer        = 8 << 20
	atOnce           = 16 // concurrent callbacks of one report or heartbeat
	pruneEvery       = time.Minute
)

// Inbox receives envelopes and reports for their leases.
type Inbox struct {
	options Options
	client  *http.Client // makes the callbacks

	mu         sync.Mutex
	deliveries map[string]*delivery // by idempotency key, which is the lease's handle as well
	waiting    []*delivery          // for a claim
	pruned     time.Time
	closed     bool
	arrived    chan struct{} // wakes a waiting claim
}

// delivery is a verified envelope, until neither the sender nor the worker can refer to it.
type delivery struct {
	lease   *servov1.Lease
	omitted map[string]bool // upstream tasks whose results were omitted
	repeats time.Time       // until when the same envelope may arrive again
	decided chan struct{}   // closed when it was accepted or refused
	taken   bool

	callbacks push.Callbacks // guarded by Inbox.mu: heartbeats renew them
	ended     bool           // guarded by Inbox.mu: its end was accepted
	replaced  bool           // guarded by Inbox.mu: its end was refused once
}

// New returns an inbox.
func New(options Options) *Inbox {
	if options.Patience == 0 {
		options.Patience = 2 * time.Second
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	client := &http.Client{
		Timeout:       callbackPatience,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: atOnce, IdleConnTimeout: idleTimeout, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Inbox{options: options, client: client, deliveries: map[string]*delivery{}, pruned: time.Now(), arrived: make(chan struct{}, 1)}
}

// Close makes the inbox refuse new envelopes. Reports for accepted ones still work.
func (i *Inbox) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
}

// Release closes the connections, after the last report.
func (i *Inbox) Release() { i.client.CloseIdleConnections() }

// offer adds a delivery to the inbox and waits until a claim takes it. The same delivery again gets the
// result of the first.
func (i *Inbox) offer(ctx context.Context, l *delivery) (taken bool) {
	i.mu.Lock()
	i.prune()
	if first, known := i.deliveries[l.lease.GetLease()]; known {
		i.mu.Unlock()
		select {
		case <-first.decided:
			return first.taken
		case <-ctx.Done():
			return false
		}
	}
	i.deliveries[l.lease.GetLease()] = l
	i.waiting = append(i.waiting, l)
	i.mu.Unlock()
	select {
	case i.arrived <- struct{}{}:
	default: // already awake
	}

	timer := time.NewTimer(i.options.Patience)
	defer timer.Stop()
	select {
	case <-l.decided:
	case <-timer.C:
	case <-ctx.Done():
	}
	return i.decide(l)
}

// decide removes a delivery that no claim has taken in time.
func (i *Inbox) decide(l *delivery) (taken bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if l.taken {
		return true
	}
	for n, w := range i.waiting {
		if w == l {
			i.waiting = append(i.waiting[:n:n], i.waiting[n+1:]...)
			break
		}
	}
	delete(i.deliveries, l.lease.GetLease())
	close(l.decided)
	return false
}

// prune removes finished deliveries from time to time: their envelope would be refused as expired, and
// there is nothing left to report. The lock is held.
func (i *Inbox) prune() {
	now := time.Now()
	if now.Sub(i.pruned) < pruneEvery {
		return
	}
	i.pruned = now
	for key, l := range i.deliveries {
		if now.After(l.repeats) && (l.ended || now.After(l.callbacks.ExpiresAt)) {
			delete(i.deliveries, key)
		}
	}
}

// Invoke implements grpc.ClientConnInterface.
func (i *Inbox) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	var answer proto.Message
	var err error
	switch request := args.(type) {
	case *servov1.ClaimRequest:
		answer, err = i.claim(ctx, request)
	case *servov1.ReportRequest:
		answer, err = i.report(ctx, request)
	case *servov1.HeartbeatRequest:
		answer, err = i.heartbeat(ctx, request)
	case *servov1.GetTaskRequest:
		answer, err = i.result(ctx, request)
	case *servov1.ListUpstreamTasksRequest:
		answer, err = i.upstream(ctx, request)
	default:
		err = status.Error(codes.Unimplemented, method+" is not available for pushed tasks")
	}
	if err != nil {
		return err
	}
	to, ok := reply.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%s expects another response than %T", method, reply)
	}
	proto.Merge(to, answer)
	return nil
}

// NewStream implements grpc.ClientConnInterface.
func (i *Inbox) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "streams are not available for pushed tasks")
}

// claim waits for deliveries. A claim that does not wait asks for the result of an earlier one: there is
// none that it has not received.
func (i *Inbox) claim(ctx context.Context, request *servov1.ClaimRequest) (*servov1.ClaimResponse, error) {
	wait := request.GetWait().AsDuration()
	if wait <= 0 {
		return &servov1.ClaimResponse{}, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return nil, status.FromContextError(err).Err()
		}
		if taken := i.take(int(request.GetMax())); len(taken) > 0 {
			return &servov1.ClaimResponse{Leases: taken}, nil
		}
		select {
		case <-i.arrived:
		case <-timer.C:
			return &servov1.ClaimResponse{}, nil
		case <-ctx.Done():
		}
	}
}

func (i *Inbox) take(most int) []*servov1.Lease {
	i.mu.Lock()
	defer i.mu.Unlock()
	var taken []*servov1.Lease
	for len(i.waiting) > 0 && len(taken) < most {
		l := i.waiting[0]
		i.waiting = i.waiting[1:]
		l.taken = true
		close(l.decided)
		taken = append(taken, l.lease)
	}
	return taken
}

// deliveryOf converts an envelope to a lease.
func deliveryOf(e push.Envelope) (*delivery, error) {
	parameters, err := structOf(e.Parameters)
	if err != nil {
		return nil, fault.New(fault.InvalidArgument, "is not an object", fault.Field("parameters"), fault.Remedy("send the run's parameters"), fault.Cause(err))
	}
	l := &delivery{
		omitted: map[string]bool{}, repeats: e.Auth.ExpiresAt, decided: make(chan struct{}), callbacks: e.Callbacks,
		lease: &servov1.Lease{
			Lease: e.IdempotencyKey, Tenant: e.Tenant, Run: e.Run.String(), Task: e.Task.String(), Attempt: e.Attempt, Asset: e.Asset,
			Partition: e.Partition, Partitions: e.Partitions, Pipeline: e.Pipeline, Parameters: parameters, Cursor: e.Cursor, FanOuts: e.FanOuts,
			FencingToken: e.Token, TraceParent: e.Trace.Parent, TraceState: e.Trace.State, Config: e.Config, TriggerType: e.TriggerType,
			Slot: instant(e.Slot), IntervalStart: instant(e.IntervalStart), IntervalEnd: instant(e.IntervalEnd),
			Code: &servov1.Code{Kind: &servov1.Code_Go{Go: &servov1.GoCode{Handler: e.Entrypoint}}},
		},
	}
	if e.TimeoutSeconds > 0 {
		l.lease.Timeout = durationpb.New(time.Duration(e.TimeoutSeconds) * time.Second)
	}
	for _, u := range e.Upstream {
		result := &structpb.Value{}
		if len(u.Result) == 0 {
			result = nil
		} else if err := result.UnmarshalJSON(u.Result); err != nil {
			return nil, fault.New(fault.InvalidArgument, "is not JSON", fault.Field("upstream"), fault.Cause(err))
		}
		l.omitted[u.Task.String()] = u.Omitted
		l.lease.Upstream = append(l.lease.Upstream, &servov1.UpstreamResult{
			Run: u.Run.String(), Task: u.Task.String(), Asset: u.Asset, Partition: u.Partition, Result: result, Omitted: u.Omitted,
		})
	}
	return l, nil
}

// instant returns nil for a time that is not set.
func instant(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func structOf(data json.RawMessage) (*structpb.Struct, error) {
	out := &structpb.Struct{}
	if len(data) == 0 || string(data) == "null" {
		return out, nil
	}
	return out, out.UnmarshalJSON(data)
}
