// Package telemetry exports traces as the standard OTEL_* variables configure, and none without
// them. It also parses and formats the W3C traceparent that Servo passes from a request through a
// run's events to its workers. Callers decide what is traced; without an exporter no spans are
// created.
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

// Service names the process in traces.
type Service struct {
	Name    string // such as servo-server; OTEL_SERVICE_NAME overrides it
	Version string
}

// Traces exports the spans of a process. A nil Traces is off.
type Traces struct {
	provider *sdktrace.TracerProvider
}

// scope names the instrumentation.
const scope = "go.arco.dev/servo"

// FromEnv starts traces as the environment configures, through getenv (os.Getenv): they are on if
// OTEL_TRACES_EXPORTER is otlp or an OTLP endpoint is set; otherwise it returns nil. The exporters
// and the sampler read further variables from the environment themselves.
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
			fault.Remedy("set the address of an OTLP collector, or unset the OTEL_* variables"), fault.Cause(err))
	}
	if log != nil { // the library has one global handler for errors of its exporters
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces cannot be exported", slog.Any("error", err)) }))
	}
	return With(ctx, exporter, service)
}

// chosen returns the protocol to export with; "" is off.
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
		return "", fault.Invalid("OTEL_TRACES_EXPORTER", fmt.Sprintf("unsupported exporter %.50q", exporter), "use otlp, or none")
	}
	switch protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "":
		return "http/protobuf", nil
	case "grpc", "http/protobuf":
		return protocol, nil
	default:
		return "", fault.Invalid("OTEL_EXPORTER_OTLP_PROTOCOL", fmt.Sprintf("unsupported protocol %.50q", protocol), "use grpc or http/protobuf")
	}
}

// With exports traces to an exporter.
func With(ctx context.Context, exporter sdktrace.SpanExporter, service Service, options ...sdktrace.TracerProviderOption) (*Traces, error) {
	described, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", service.Name), attribute.String("service.version", service.Version)),
		resource.WithFromEnv(), // overrides the attributes above
	)
	if err != nil {
		return nil, err
	}
	options = append([]sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(described)}, options...)
	return &Traces{provider: sdktrace.NewTracerProvider(options...)}, nil
}

// Tracer returns a tracer; nil if traces are off.
func (t *Traces) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer(scope)
}

// Flush exports all pending spans.
func (t *Traces) Flush(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.ForceFlush(ctx)
}

// Stop exports all pending spans and stops.
func (t *Traces) Stop(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}
