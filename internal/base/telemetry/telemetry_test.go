package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
)

func env(pairs ...string) func(string) string {
	values := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }
}

func TestChosen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  func(string) string
		want string
	}{
		"no variable set: off":                 {env(), ""},
		"an endpoint is enough":                {env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), "http/protobuf"},
		"one for traces alone too":             {env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318"), "http/protobuf"},
		"the exporter's name is enough":        {env("OTEL_TRACES_EXPORTER", "otlp"), "http/protobuf"},
		"none is off, whatever else is set":    {env("OTEL_TRACES_EXPORTER", "none", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ""},
		"disabled is off":                      {env("OTEL_SDK_DISABLED", "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ""},
		"gRPC is spoken where it is asked for": {env("OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), "grpc"},
		"settings for traces take precedence": {
			env("OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"), "http/protobuf",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := chosen(c.env)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	for name, broken := range map[string]func(string) string{
		"OTEL_TRACES_EXPORTER":        env("OTEL_TRACES_EXPORTER", "zipkin"),
		"OTEL_EXPORTER_OTLP_PROTOCOL": env("OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
	} {
		t.Run(name+" that is not known is refused", func(t *testing.T) {
			t.Parallel()
			_, err := FromEnv(t.Context(), broken, Service{}, nil)
			f, ok := fault.As(err)
			require.True(t, ok, err)
			require.Equal(t, name, f.Field)
			require.NotEmpty(t, f.Remedy)
		})
	}
}

func TestTraces(t *testing.T) {
	t.Parallel()

	t.Run("off is nil, and nil does nothing", func(t *testing.T) {
		t.Parallel()
		traces, err := FromEnv(t.Context(), env(), Service{Name: "servo-test"}, nil)
		require.NoError(t, err)
		require.Nil(t, traces)
		require.Nil(t, traces.Tracer())
		require.NoError(t, traces.Flush(t.Context()))
		require.NoError(t, traces.Stop(t.Context()))
	})

	t.Run("spans go out with the name of who made them", func(t *testing.T) {
		t.Parallel()
		exporter := tracetest.NewInMemoryExporter()
		traces, err := With(t.Context(), exporter, Service{Name: "servo-test", Version: "1.2.3"})
		require.NoError(t, err)
		_, span := traces.Tracer().Start(t.Context(), "work")
		span.End()
		require.NoError(t, traces.Flush(t.Context()))
		spans := exporter.GetSpans()
		require.Len(t, spans, 1)
		require.Contains(t, spans[0].Resource.String(), "service.name=servo-test")
		require.NoError(t, traces.Stop(t.Context()))
	})
}

func TestExport(t *testing.T) {
	got := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.URL.Path }))
	t.Cleanup(collector.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	traces, err := FromEnv(t.Context(), env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL), Service{Name: "servo-test"}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	_, span := traces.Tracer().Start(t.Context(), "work")
	span.End()
	require.NoError(t, traces.Stop(context.WithoutCancel(t.Context())))
	require.Equal(t, "/v1/traces", <-got)
}

func TestParent(t *testing.T) {
	t.Parallel()
	const id, good = "4bf92f3577b34da6a3ce929d0e0e4736", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

	for text, want := range map[string]string{
		good:                               id,
		good[:53] + "00":                   id,
		"01" + good[2:]:                    id,
		"01" + good[2:] + "-more":          id,
		"":                                 "",
		"x":                                "",
		id:                                 "",
		good + "-more":                     "",
		"01" + good[2:] + "more":           "",
		"ff" + good[2:]:                    "",
		strings.ToUpper(good):              "",
		strings.Replace(good, "-", "_", 1): "",
		"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01": "",
		"00-" + id + "-0000000000000000-01":                      "",
		"00-" + id + "-00f067aa0ba902b7-0g":                      "",
	} {
		t.Run("of "+text, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, ID(text))
			require.Equal(t, want != "", trace.SpanContextFromContext(Under(t.Context(), text)).IsValid())
		})
	}

	t.Run("a tracestate comes along; an invalid or long one is dropped", func(t *testing.T) {
		t.Parallel()
		for state, want := range map[string]string{
			"a=1": "a=1", "a=1, b=2": "a=1,b=2", "": "", "a": "", "a=1,a=2": "", "a=" + strings.Repeat("x", 600): "",
		} {
			sc, ok := Parse(Join(good, state))
			require.True(t, ok)
			traceparent, tracestate := Split(Format(sc))
			require.Equal(t, good, traceparent)
			require.Equal(t, want, tracestate, state)
			require.Equal(t, id, ID(Join(good, state)))
		}
	})

	t.Run("what was written is read again", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			sc := trace.NewSpanContext(trace.SpanContextConfig{
				TraceID:    trace.TraceID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "trace")),
				SpanID:     trace.SpanID(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "span")),
				TraceFlags: trace.TraceFlags(rapid.IntRange(0, 1).Draw(t, "flags")), Remote: true,
			})
			got, ok := Parse(Format(sc))
			require.Equal(t, sc.IsValid(), ok)
			if ok {
				require.True(t, sc.Equal(got))
			}
		})
	})

	t.Run("anything can be read without harm", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			if sc, ok := Parse(rapid.String().Draw(t, "text")); ok {
				require.True(t, sc.IsValid())
			}
		})
	})
}
