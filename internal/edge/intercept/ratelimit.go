package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/ratelimit"
	"go.arco.dev/servo/internal/store"
)

// The headers that say how a caller stands, over gRPC and over REST.
const (
	RateLimit     = "ratelimit-limit"
	RateRemaining = "ratelimit-remaining"
	RateReset     = "ratelimit-reset"
	rateRetry     = "retry-after" // REST has it from the problem
)

// rateClasses says which calls share a limit. This is the one place: a call that is not in it,
// as all those of workers, has none. Every list is, by its name.
func rateClasses() map[string]ratelimit.Class {
	classes := map[string]ratelimit.Class{
		servov1.RunService_TriggerRun_FullMethodName:         ratelimit.Trigger,
		servov1.RunService_RetryRun_FullMethodName:           ratelimit.Trigger,
		servov1.ConfigService_TriggerConfig_FullMethodName:   ratelimit.Trigger,
		servov1.EventService_SendEvent_FullMethodName:        ratelimit.Trigger,
		servov1.DeploymentService_Deploy_FullMethodName:      ratelimit.Deploy,
		servov1.SearchService_Search_FullMethodName:          ratelimit.List,
		servov1.RunService_WatchRun_FullMethodName:           ratelimit.Stream,    // server-sent events come through it too
		servov1.TaskService_ListUpstreamTasks_FullMethodName: ratelimit.Unlimited, // a worker reads what its task depends on
	}
	for _, file := range Contract() {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				name := string(service.Methods().Get(j).Name())
				full := "/" + string(service.FullName()) + "/" + name
				if _, said := classes[full]; !said && strings.HasPrefix(name, "List") {
					classes[full] = ratelimit.List
				}
			}
		}
	}
	return classes
}

// admit counts a call against the limit of its class, and refuses it if that is reached.
func (s *Server) admit(ctx context.Context, method string, req any) error {
	class := s.rates.classes[method]
	limit := s.rates.limits.Of(class)
	if limit == 0 || class == ratelimit.Stream {
		return nil
	}
	key, known := s.rateKey(ctx, class, req)
	if !known {
		return nil
	}
	verdict, standing, err := s.rates.take(ctx, key, limit)
	if err != nil {
		return err
	}
	head := headers(standing)
	if verdict == ratelimit.Refuse {
		err = overRate(class, standing)
		head.Set(rateRetry, wholeSeconds(retryAfter(standing)))
	}
	_ = grpc.SetHeader(ctx, head) // a call that comes through no door has no head
	return err
}

// rateKey says whose limit a call counts against. A tenant that cannot be found has none: the
// call itself says what is wrong.
func (s *Server) rateKey(ctx context.Context, class ratelimit.Class, req any) (store.RateKey, bool) {
	key := store.RateKey{Class: int16(class)}
	if name := tenantOf(req); name != "" { // without a name it is about the installation
		found, err := s.tenants.id(ctx, name)
		if err != nil {
			return key, false
		}
		key.Tenant = found
	}
	if in, ok := req.(interface{ GetWorkspace() string }); ok && class == ratelimit.Deploy {
		key.Scope = orDefault(in.GetWorkspace())
	}
	return key, true
}

func overRate(class ratelimit.Class, standing ratelimit.Standing) error {
	message := fmt.Sprintf("over the limit of %d %s calls a minute", standing.Limit, class)
	if class == ratelimit.Stream {
		message = fmt.Sprintf("over the limit of %d streams at a time", standing.Limit)
	}
	return fault.New(fault.LimitExceeded, message, fault.RetryAfter(retryAfter(standing)), fault.Value("limit", standing.Limit),
		fault.Value("class", class.String()), fault.Remedy("try again after "+wholeSeconds(retryAfter(standing))+" s, or ask the operator for a higher limit"))
}

// retryAfter is when the next window begins, and never at once.
func retryAfter(standing ratelimit.Standing) time.Duration { return max(standing.Reset, time.Second) }

func headers(standing ratelimit.Standing) metadata.MD {
	return metadata.MD{
		RateLimit:     {strconv.Itoa(standing.Limit)},
		RateRemaining: {strconv.Itoa(standing.Remaining)},
		RateReset:     {wholeSeconds(standing.Reset)},
	}
}

// wholeSeconds rounds up: who comes back a moment too early is sent away again.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// seatedStream counts a stream from its first message to its end, however it ends.
type seatedStream struct {
	grpc.ServerStream

	server *Server
	limit  int
	leave  func()
}

// seated counts a stream, if it is one of those that have a limit.
func (s *Server) seated(method string, stream grpc.ServerStream) *seatedStream {
	seated := &seatedStream{ServerStream: stream, server: s}
	if s.rates.classes[method] == ratelimit.Stream {
		seated.limit = s.rates.limits.Streams
	}
	return seated
}

// RecvMsg implements grpc.ServerStream.
func (c *seatedStream) RecvMsg(m any) error {
	if err := c.ServerStream.RecvMsg(m); err != nil || c.limit == 0 || c.leave != nil {
		return err
	}
	ctx := c.Context()
	key, known := c.server.rateKey(ctx, ratelimit.Stream, m)
	if !known {
		return nil
	}
	verdict, standing, err := c.server.rates.sit(ctx, key.Tenant, c.limit)
	if err != nil {
		return err
	}
	head := headers(standing)
	if verdict == ratelimit.Refuse {
		head.Set(rateRetry, wholeSeconds(retryAfter(standing)))
		_ = c.SendHeader(head) // whoever has gone reads none
		return overRate(ratelimit.Stream, standing)
	}
	c.leave = func() { c.server.rates.stand(key.Tenant) }
	return c.SendHeader(head)
}

// done gives the place back.
func (c *seatedStream) done() {
	if c.leave != nil {
		c.leave()
	}
}
