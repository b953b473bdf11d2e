// Package inbox lets a worker be sent its tasks rather than claim them. To the worker it is
// a connection like any other: a claim waits for envelopes that come in over HTTP, reports
// and heartbeats go out to the callback URLs that came with them. So a pushed task has all
// that a pulled one has, from the order of its reports to the ways to stop. It believes no
// envelope without a valid signature, and never executes anything itself.
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

// Config says what an inbox believes and how long it waits.
type Config struct {
	Instance string        // the name of this process among those of the pool
	Keys     push.Lookup   // whose envelopes are believed
	Patience time.Duration // how long an envelope waits for a free slot; 2 s if not said
	Logger   *slog.Logger
}

// Limits of callbacks.
const (
	callbackPatience = 20 * time.Second
	idleTimeout      = 90 * time.Second
	maxAnswer        = 8 << 20
	atOnce           = 16 // callbacks of one report or heartbeat
	pruneEvery       = time.Minute
)

// Inbox takes envelopes in and speaks for their leases.
type Inbox struct {
	config Config
	client *http.Client // makes the callbacks

	mu      sync.Mutex
	letters map[string]*letter // by idempotency key, which is the lease's handle as well
	waiting []*letter          // for a claim to take them
	pruned  time.Time
	closed  bool
	arrived chan struct{} // wakes a parked claim
}

// letter is an envelope that was believed, until nobody can come back to it.
type letter struct {
	lease   *servov1.Lease
	omitted map[string]bool // upstream tasks whose results were left out
	repeats time.Time       // until when the same envelope may come again
	decided chan struct{}   // closed when it was taken, or not
	taken   bool

	callbacks push.Callbacks // under the lock of the inbox: heartbeats renew them
	ended     bool           // under the lock: its last word was heard
	mended    bool           // under the lock: its last word was refused once
}

// New makes an inbox.
func New(config Config) *Inbox {
	if config.Patience == 0 {
		config.Patience = 2 * time.Second
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	client := &http.Client{
		Timeout:       callbackPatience,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: atOnce, IdleConnTimeout: idleTimeout, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Inbox{config: config, client: client, letters: map[string]*letter{}, pruned: time.Now(), arrived: make(chan struct{}, 1)}
}

// Close makes the inbox take no more. What it has taken can still be spoken for.
func (i *Inbox) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
}

// Release ends the connections, once there is nothing more to say.
func (i *Inbox) Release() { i.client.CloseIdleConnections() }

// offer puts a letter into the inbox and waits for a free slot to take it. The same letter
// again gets the answer of the first.
func (i *Inbox) offer(ctx context.Context, l *letter) (taken bool) {
	i.mu.Lock()
	i.prune()
	if first, known := i.letters[l.lease.GetLease()]; known {
		i.mu.Unlock()
		select {
		case <-first.decided:
			return first.taken
		case <-ctx.Done():
			return false
		}
	}
	i.letters[l.lease.GetLease()] = l
	i.waiting = append(i.waiting, l)
	i.mu.Unlock()
	select {
	case i.arrived <- struct{}{}:
	default: // it has been said
	}

	timer := time.NewTimer(i.config.Patience)
	defer timer.Stop()
	select {
	case <-l.decided:
	case <-timer.C:
	case <-ctx.Done():
	}
	return i.decide(l)
}

// decide takes back a letter that nobody has taken in time.
func (i *Inbox) decide(l *letter) (taken bool) {
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
	delete(i.letters, l.lease.GetLease())
	close(l.decided)
	return false
}

// prune forgets, from time to time, letters that are over: their envelope would not be
// believed again, and nothing can be said any more. The lock is held.
func (i *Inbox) prune() {
	now := time.Now()
	if now.Sub(i.pruned) < pruneEvery {
		return
	}
	i.pruned = now
	for key, l := range i.letters {
		if now.After(l.repeats) && (l.ended || now.After(l.callbacks.ExpiresAt)) {
			delete(i.letters, key)
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
		err = status.Error(codes.Unimplemented, method+" is not for pushed tasks")
	}
	if err != nil {
		return err
	}
	to, ok := reply.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%s wants a %T", method, reply)
	}
	proto.Merge(to, answer)
	return nil
}

// NewStream implements grpc.ClientConnInterface.
func (i *Inbox) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "there are no streams for pushed tasks")
}

// claim waits for letters. A claim that does not wait asks what an earlier one was given:
// nothing that it has not heard of.
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

// letterOf is an envelope as a worker understands it.
func letterOf(e push.Envelope) (*letter, error) {
	parameters, err := structOf(e.Parameters)
	if err != nil {
		return nil, fault.New(fault.InvalidArgument, "is not an object", fault.Field("parameters"), fault.Remedy("send the run's parameters"), fault.Cause(err))
	}
	l := &letter{
		omitted: map[string]bool{}, repeats: e.Auth.ExpiresAt, decided: make(chan struct{}), callbacks: e.Callbacks,
		lease: &servov1.Lease{
			Lease: e.IdempotencyKey, Tenant: e.Tenant, Run: e.Run.String(), Task: e.Task.String(), Attempt: e.Attempt, Asset: e.Asset,
			Partition: e.Partition, Pipeline: e.Pipeline, Parameters: parameters, Cursor: e.Cursor, FanOuts: e.FanOuts,
			TraceParent: e.Trace.Parent, TraceState: e.Trace.State, Config: e.Config, TriggerType: e.TriggerType,
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

// instant leaves out a time that is not set.
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
