package intercept

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/edge/ratelimit"
	"go.arco.dev/servo/internal/store"
)

// The headers that report the state of a rate limit, over gRPC and REST.
const (
	RateLimit     = "ratelimit-limit"
	RateRemaining = "ratelimit-remaining"
	RateReset     = "ratelimit-reset"
	rateRetry     = "retry-after" // REST sets it from the problem
)

// RateClasses returns the class of each call with a rate limit. Calls named List… are in the class
// of lists. Calls of workers have no limit.
func RateClasses() map[string]ratelimit.Class {
	classes := map[string]ratelimit.Class{
		servov1.RunService_TriggerRun_FullMethodName:         ratelimit.Trigger,
		servov1.RunService_TriggerRuns_FullMethodName:        ratelimit.Trigger,
		servov1.RunService_RetryRun_FullMethodName:           ratelimit.Trigger,
		servov1.ConfigService_TriggerConfig_FullMethodName:   ratelimit.Trigger,
		servov1.EventService_SendEvent_FullMethodName:        ratelimit.Trigger,
		servov1.DeploymentService_Deploy_FullMethodName:      ratelimit.Deploy,
		servov1.SearchService_Search_FullMethodName:          ratelimit.List,
		servov1.RunService_WatchRun_FullMethodName:           ratelimit.Stream,    // also serves server-sent events
		servov1.TaskService_ListUpstreamTasks_FullMethodName: ratelimit.Unlimited, // a worker reads what its task depends on
	}
	for name, call := range Calls() {
		if _, set := classes[name]; !set && strings.HasPrefix(string(call.Name()), "List") {
			classes[name] = ratelimit.List
		}
	}
	return classes
}

// limitRate counts a call against the rate limit of its class, and refuses it beyond the limit.
func (c *Chain) limitRate(ctx context.Context, method string, req any) error {
	class := c.rates.classes[method]
	limit := c.options.Rates.Of(class)
	if limit == 0 || class == ratelimit.Stream {
		return nil
	}
	key, known := c.rateKey(ctx, class, req)
	if !known {
		return nil
	}
	verdict, state, err := c.rates.take(ctx, key, limit)
	if err != nil {
		return err
	}
	head := headers(state)
	if verdict == ratelimit.Refuse {
		err = overRate(class, state)
		head.Set(rateRetry, wholeSeconds(retryAfter(state)))
	}
	_ = grpc.SetHeader(ctx, head) // calls inside this process have no headers
	return err
}

// rateKey returns the limit that a call counts against; false if its tenant does not exist, which
// the handler reports.
func (c *Chain) rateKey(ctx context.Context, class ratelimit.Class, req any) (store.RateKey, bool) {
	key := store.RateKey{Class: int16(class)}
	if name := tenantOf(req); name != "" { // without a name the call is about the installation
		found, err := c.tenants.ID(ctx, name)
		if err != nil {
			return key, false
		}
		key.Tenant = found
	}
	if in, ok := req.(interface{ GetWorkspace() string }); ok && class == ratelimit.Deploy {
		key.Scope = cmp.Or(in.GetWorkspace(), tenant.DefaultWorkspace)
	}
	return key, true
}

func overRate(class ratelimit.Class, state ratelimit.Status) error {
	message := fmt.Sprintf("rate limit exceeded: %d %s calls per minute", state.Limit, class)
	if class == ratelimit.Stream {
		message = fmt.Sprintf("rate limit exceeded: %d concurrent streams", state.Limit)
	}
	return fault.New(fault.LimitExceeded, message, fault.RetryAfter(retryAfter(state)), fault.Value("limit", state.Limit),
		fault.Value("class", class.String()), fault.Remedy("retry after "+wholeSeconds(retryAfter(state))+" s, or ask the operator for a higher limit"))
}

// retryAfter returns the time until the next window, at least a second.
func retryAfter(state ratelimit.Status) time.Duration { return max(state.Reset, time.Second) }

func headers(state ratelimit.Status) metadata.MD {
	return metadata.MD{
		RateLimit:     {strconv.Itoa(state.Limit)},
		RateRemaining: {strconv.Itoa(state.Remaining)},
		RateReset:     {wholeSeconds(state.Reset)},
	}
}

// wholeSeconds rounds up: a caller that retries a moment too early is refused again.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// countedStream counts a stream against its limit from the first message to its end.
type countedStream struct {
	grpc.ServerStream

	chain *Chain
	limit int
	leave func()
}

// countStream counts a stream if its class has a limit.
func (c *Chain) countStream(method string, stream grpc.ServerStream) *countedStream {
	counted := &countedStream{ServerStream: stream, chain: c}
	if c.rates.classes[method] == ratelimit.Stream {
		counted.limit = c.options.Rates.Streams
	}
	return counted
}

// RecvMsg implements grpc.ServerStream.
func (s *countedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil || s.limit == 0 || s.leave != nil {
		return err
	}
	ctx := s.Context()
	key, known := s.chain.rateKey(ctx, ratelimit.Stream, m)
	if !known {
		return nil
	}
	verdict, state, err := s.chain.rates.openStream(ctx, key.Tenant, s.limit)
	if err != nil {
		return err
	}
	head := headers(state)
	if verdict == ratelimit.Refuse {
		head.Set(rateRetry, wholeSeconds(retryAfter(state)))
		_ = s.SendHeader(head) // a caller that has left reads none
		return overRate(ratelimit.Stream, state)
	}
	s.leave = func() { s.chain.rates.closeStream(key.Tenant) }
	return s.SendHeader(head)
}

// done ends the count.
func (s *countedStream) done() {
	if s.leave != nil {
		s.leave()
	}
}
