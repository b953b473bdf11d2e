package worker_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/worker"
)

const (
	parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	state  = "vendor=a1,other=b2"
)

func TestTraces(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, trace string, handler worker.Handler, change ...func(*worker.Options)) {
		t.Helper()
		b := start(t, handlers{"s/one": handler}, change...)
		b.ended(t, b.add(1, "s/one", func(l *servov1.Lease) { l.TraceParent = trace })...)
		require.NoError(t, b.stopped())
	}

	t.Run("without a tracer the code is still under its run's trace", func(t *testing.T) {
		t.Parallel()
		seen := make(chan trace.SpanContext, 1)
		run(t, parent, func(ctx context.Context, _ *worker.Task) (worker.Result, error) {
			seen <- trace.SpanContextFromContext(ctx)
			return worker.Result{}, nil
		})
		require.Equal(t, parent, telemetry.Format(<-seen))
	})

	t.Run("without a trace the code is under none", func(t *testing.T) {
		t.Parallel()
		for _, none := range []string{"", "not a trace"} {
			seen := make(chan trace.SpanContext, 1)
			run(t, none, func(ctx context.Context, _ *worker.Task) (worker.Result, error) {
				seen <- trace.SpanContextFromContext(ctx)
				return worker.Result{}, nil
			})
			require.False(t, (<-seen).IsValid())
		}
	})

	t.Run("spans contain the attempt and its code, and the failure", func(t *testing.T) {
		t.Parallel()
		spans := tracetest.NewInMemoryExporter()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		seen := make(chan trace.SpanContext, 1)
		run(t, parent, func(ctx context.Context, _ *worker.Task) (worker.Result, error) {
			seen <- trace.SpanContextFromContext(ctx)
			return worker.Result{}, errors.New("no rows")
		}, func(c *worker.Options) { c.Tracer = provider.Tracer("test") })
		all := spans.GetSpans()
		require.Len(t, all, 2)
		function, attempt := all[0], all[1]
		require.Equal(t, "execute_function", function.Name)
		require.Equal(t, "worker.execute", attempt.Name)
		require.Equal(t, (<-seen).SpanID(), function.SpanContext.SpanID(), "what the code traces is under it")
		require.Equal(t, attempt.SpanContext.SpanID(), function.Parent.SpanID())
		require.Equal(t, "00f067aa0ba902b7", attempt.Parent.SpanID().String())
		require.Equal(t, "no rows", attempt.Status.Description)
	})

	t.Run("an endpoint is called under the trace", func(t *testing.T) {
		t.Parallel()
		seen := make(chan string, 1)
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen <- r.Header.Get("Traceparent") + " " + r.Header.Get("Tracestate")
		}))
		t.Cleanup(server.Close)
		calls := worker.NewHTTP(1, netguard.NewGuard(netguard.Policy{Local: true}))
		t.Cleanup(calls.Close)
		b := start(t, nil, func(c *worker.Options) { c.Executors = []worker.Executor{calls} })
		b.ended(t, b.add(1, "s/one", func(l *servov1.Lease) {
			l.TraceParent, l.TraceState = parent, state
			l.Code = &servov1.Code{Kind: &servov1.Code_Http{Http: &servov1.HttpCode{Method: http.MethodPost, Url: server.URL}}}
		})...)
		require.Equal(t, parent+" "+state, <-seen)
		require.NoError(t, b.stopped())
	})
	t.Run("a command is run under the trace", func(t *testing.T) {
		t.Parallel()
		b := start(t, nil, func(c *worker.Options) { c.Executors = []worker.Executor{&worker.Exec{}} })
		id := b.add(1, "s/one", func(l *servov1.Lease) {
			l.TraceParent, l.TraceState = parent, state
			l.Code = &servov1.Code{Kind: &servov1.Code_Exec{Exec: &servov1.ExecCode{
				Command: []string{"sh", "-c", `printf '"%s %s"' "$TRACEPARENT" "$TRACESTATE" > "$SERVO_RESULT"`},
			}}}
		})[0]
		b.ended(t, id)
		require.NoError(t, b.stopped())
		require.Equal(t, parent+" "+state, b.lease(id).result.GetStringValue())
	})
}
