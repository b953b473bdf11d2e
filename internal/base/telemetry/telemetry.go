// Package telemetry sends traces where the standard OTEL_* variables say, and nowhere if they
// say nothing. It also reads and writes the W3C traceparent that Servo carries from a request
// through a run's events to its workers. It never decides what is traced, and without an
// exporter nothing is made that would cost anything.
package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"go.arco.dev/servo/internal/base/fault"
)

// Service is what calls itself by a name in traces.
type Service struct {
	Name    string // such as servo-server; OTEL_SERVICE_NAME is stronger
	Version string
}

// Traces are the spans of a process on their way out. A nil one is off.
type Traces struct {
	provider *sdktrace.TracerProvider
}

// scope names what makes the spans.
const scope = "go.arco.dev/servo"

// FromEnv starts traces as the environment says, through getenv (os.Getenv): they are on if
// OTEL_TRACES_EXPORTER is otlp or an OTLP endpoint is set, and off otherwise, which is nil.
// What the exporters and the sampler read themselves is read from the environment.
func FromEnv(ctx context.Context, getenv func(string) string, service Service, log *slog.Logger) (*Traces, error) {
	protocol, err := chosen(getenv)
	if err != nil || protocol == "" {
		return nil, err
	}
	var exporter sdktrace.SpanExporter
	if protocol == "grpc" {
		exporter, err = otlptracegrpc.New(ctx)
	} else {
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, fault.New(fault.InvalidArgument, "traces cannot be exported: "+err.Error(), fault.Field("OTEL_EXPORTER_OTLP_ENDPOINT"),
			fault.Remedy("give the address of an OTLP collector, or unset the OTEL_* variables"), fault.Cause(err))
	}
	if log != nil { // the library has one place for what its exporters cannot return
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces cannot be exported", slog.Any("error", err)) }))
	}
	return With(ctx, exporter, service)
}

// chosen is the protocol to export with; "" is off.
func chosen(getenv func(string) string) (string, error) {
	first := func(names ...string) string {
		for _, name := range names {
			if value := getenv(name); value != "" {
				return value
			}
		}
		return ""
	}
	endpoint := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	exporter := getenv("OTEL_TRACES_EXPORTER")
	switch {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none", exporter == "" && endpoint == "":
		return "", nil
	case exporter != "" && exporter != "otlp":
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("is %.50q", exporter), fault.Field("OTEL_TRACES_EXPORTER"), fault.Remedy("use otlp, or none"))
	}
	switch protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "":
		return "http/protobuf", nil
	case "grpc", "http/protobuf":
		return protocol, nil
	default:
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("is %.50q", protocol), fault.Field("OTEL_EXPORTER_OTLP_PROTOCOL"),
			fault.Remedy("use grpc or http/protobuf"))
	}
}

// With sends traces to an exporter.
func With(ctx context.Context, exporter sdktrace.SpanExporter, service Service, options ...sdktrace.TracerProviderOption) (*Traces, error) {
	described, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", service.Name), attribute.String("service.version", service.Version)),
		resource.WithFromEnv(), // stronger than what stands before it
	)
	if err != nil {
		return nil, err
	}
	options = append([]sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(described)}, options...)
	return &Traces{provider: sdktrace.NewTracerProvider(options...)}, nil
}

// Tracer makes spans; nil if traces are off.
func (t *Traces) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer(scope)
}

// Flush sends what waits.
func (t *Traces) Flush(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.ForceFlush(ctx)
}

// Stop sends what waits and ends.
func (t *Traces) Stop(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}
