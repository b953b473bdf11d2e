// Package callbacks serves the callbacks of push workers: they post to URLs that Servo has signed for
// one attempt and one action. All invalid URLs get the same answer. Package api handles the calls of
// valid ones like those of pull workers. The package has no state.
package callbacks

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/edge/problem"
	"go.arco.dev/servo/internal/edge/rest"
	"go.arco.dev/servo/internal/engine"
)

// Options configure callbacks.
type Options struct {
	Server *api.Server
	Engine *engine.Engine
	// PublicURL is where workers reach the servers, such as https://servo.example.com.
	PublicURL string
	Logger    *slog.Logger
}

// Callbacks serves presigned URLs.
type Callbacks struct{ config Options }

// New creates the handler of all paths under push.CallbackPath.
func New(config Options) *Callbacks {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Callbacks{config: config}
}

// Before serves callbacks and passes other requests to another handler. It runs before a mux, which
// would redirect paths with a double slash.
func (c *Callbacks) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, push.CallbackPath) {
			c.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Pattern is the name of these requests in metrics.
const Pattern = "/v1/callbacks/{tenant}/{run}/{task}/{attempt}/{action}"

// ServeHTTP answers a callback.
func (c *Callbacks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Pattern = r.Method + " " + Pattern
	defer func() {
		if caught := recover(); caught != nil {
			c.config.Logger.ErrorContext(r.Context(), "a callback panicked", "panic", caught, "stack", string(debug.Stack()))
			problem.Write(w, r, fmt.Errorf("panic: %v", caught))
		}
	}()
	answer, err := c.answer(w, r)
	if err != nil {
		problem.Write(w, r, err)
		return
	}
	rest.WriteMessage(w, r, answer)
}

// refused is the error of all invalid URLs.
func refused() error {
	return fault.New(fault.Forbidden, "this URL is invalid, expired, or for another action", fault.Remedy("use the URLs of the envelope, or those of the answer to the last heartbeat"))
}

func (c *Callbacks) answer(w http.ResponseWriter, r *http.Request) (any, error) {
	ctx := r.Context()
	keys, now, err := c.config.Engine.KeyringWith(ctx, r.URL.Query().Get("key"))
	if err != nil {
		c.config.Logger.WarnContext(ctx, "cannot read the signing keys", "error", err)
		return nil, intercept.DatabaseUnavailable(err)
	}
	p, err := push.VerifyCallback(r.Method, r.URL, keys, now)
	if err != nil {
		c.config.Logger.InfoContext(ctx, "refused a callback", "reason", push.ReasonOf(err), "path", r.URL.Path)
		return nil, refused()
	}
	if trace := r.Header.Get("traceparent"); trace != "" {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("traceparent", trace, "tracestate", strings.Join(r.Header.Values("tracestate"), ",")))
	}
	answer, err := c.config.Server.Callback(ctx, p.Callback, func(m proto.Message) error { return rest.ReadMessage(w, r, m) })
	if err != nil {
		return nil, err
	}
	beat, ok := answer.(*servov1.HeartbeatAnswer)
	if !ok {
		return answer, nil
	}
	reply := push.HeartbeatReply{Held: beat.GetHeld(), ShouldCancel: beat.GetShouldCancel()}
	if reply.Held && keys.Renew(p, now) {
		key, err := keys.Signing(now)
		if err != nil {
			return reply, nil //nolint:nilerr // without a key the old URLs stay
		}
		fresh, err := push.SignCallbacks(c.config.PublicURL, p.Callback, key, now.Add(push.CallbackLifetime))
		if err != nil {
			return nil, err
		}
		reply.Callbacks = &fresh
	}
	return reply, nil
}
