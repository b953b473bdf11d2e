package servo_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo"
	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// traced is a server whose traces can be read, and a worker that reports under which span its
// code was called.
type traced struct {
	*bundle

	spans  *tracetest.InMemoryExporter
	traces *telemetry.Traces
	calls  chan trace.SpanContext
	rest   func() // stops the worker
}

func setupTraced(t *testing.T, on bool) *traced {
	t.Helper()
	x := &traced{bundle: &bundle{database: servotest.DB(t).URL}, spans: tracetest.NewInMemoryExporter(), calls: make(chan trace.SpanContext, 1)}
	var err error
	if on {
		x.traces, err = telemetry.With(t.Context(), x.spans, telemetry.Service{Name: "servo-test"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, x.traces.Stop(context.Background())) })
	}
	x.server = servertest.StartTraced(t, x.database, x.traces)
	x.Client, err = client.New(client.Options{Servers: []string{x.server.GRPC}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	_, err = x.Tenants().CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"})
	require.NoError(t, err)
	var document structpb.Struct
	require.NoError(t, document.UnmarshalJSON([]byte(`{"version": 1, "assets": [{"key": "s/one", "go": {}}], "pipelines": [{"name": "single"}]}`)))
	_, err = x.Deployments().Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: &document})
	require.NoError(t, err)
	x.rest = x.work(t, func(w *servo.Worker) {
		servo.Asset(w, "s/one", func(ctx context.Context, _ *servo.Task, _ servo.None) (string, error) {
			x.calls <- trace.SpanContextFromContext(ctx)
			return "done", nil
		})
	}, func(o *servo.WorkerOptions) { o.Tracer = x.traces.Tracer() })
	return x
}

// run triggers a run over REST and waits for its end; it returns under which span its code
// was called.
func (x *traced) run(t *testing.T, traceparent string) trace.SpanContext {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, x.server.URL+"/v1/tenants/acme/runs", strings.NewReader(`{"pipeline": "single"}`))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	if traceparent != "" {
		request.Header.Set("Traceparent", traceparent)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	var answer struct {
		Run struct {
			ID string `json:"id"`
		} `json:"run"`
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
	require.Equal(t, servov1.Run_SUCCEEDED, x.end(t, answer.Run.ID).GetState())
	return <-x.calls
}

// exported are the spans of a trace, by name, once the worker is done.
func (x *traced) exported(t *testing.T, id string) map[string]tracetest.SpanStub {
	t.Helper()
	x.rest()
	require.NoError(t, x.traces.Flush(t.Context()))
	found := map[string]tracetest.SpanStub{}
	for _, span := range x.spans.GetSpans() {
		if span.SpanContext.TraceID().String() == id {
			found[span.Name] = span
		}
	}
	return found
}

func TestTrace(t *testing.T) {
	t.Parallel()
	const (
		id     = "4bf92f3577b34da6a3ce929d0e0e4736"
		caller = "00f067aa0ba902b7"
		parent = "00-" + id + "-" + caller + "-01"
	)

	t.Run("one trace leads from a request to the code of a task", func(t *testing.T) {
		t.Parallel()
		x := setupTraced(t, true)
		called := x.run(t, parent)
		require.Equal(t, id, called.TraceID().String())
		spans := x.exported(t, id)
		const call = "servo.v1.RunService/TriggerRun"
		for child, under := range map[string]string{
			"plan_run": call, "dispatch_task": call, "worker.execute": call, "finalize_run": call, "execute_function": "worker.execute",
		} {
			require.Contains(t, spans, child)
			require.Equal(t, spans[under].SpanContext.SpanID(), spans[child].Parent.SpanID(), child)
		}
		require.Equal(t, caller, spans[call].Parent.SpanID().String())
		require.Equal(t, called.SpanID(), spans["execute_function"].SpanContext.SpanID())
	})

	t.Run("a header that cannot be read begins a trace of its own", func(t *testing.T) {
		t.Parallel()
		x := setupTraced(t, true)
		called := x.run(t, "00-"+id+"-0000000000000000-01")
		require.True(t, called.IsValid())
		require.NotEqual(t, id, called.TraceID().String())
		require.Contains(t, x.exported(t, called.TraceID().String()), "plan_run")
	})

	t.Run("what the caller does not sample is carried and not exported", func(t *testing.T) {
		t.Parallel()
		x := setupTraced(t, true)
		called := x.run(t, "00-"+id+"-"+caller+"-00")
		require.Equal(t, id, called.TraceID().String())
		require.Empty(t, x.exported(t, id))
	})

	t.Run("without an exporter the caller's trace still reaches the code", func(t *testing.T) {
		t.Parallel()
		x := setupTraced(t, false)
		require.Equal(t, parent, telemetry.Format(x.run(t, parent)))
		x.rest()
		require.Empty(t, x.spans.GetSpans())
	})

	t.Run("without an exporter and without a trace there is none", func(t *testing.T) {
		t.Parallel()
		x := setupTraced(t, false)
		require.False(t, x.run(t, "").IsValid())
	})
}
