package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// parentLength is that of a traceparent of version 00: version, trace, parent and flags.
const parentLength = 55

// Parse reads a W3C traceparent. What is not one belongs to no trace: it is no reason to
// refuse anything. A version that comes after 00 may say more after its flags.
func Parse(traceparent string) (trace.SpanContext, bool) {
	if len(traceparent) < parentLength || traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-' {
		return trace.SpanContext{}, false
	}
	version := traceparent[:2]
	if len(traceparent) > parentLength && (version == "00" || traceparent[parentLength] != '-') {
		return trace.SpanContext{}, false
	}
	if !hexadecimal(version) || version == "ff" || !hexadecimal(traceparent[53:parentLength]) {
		return trace.SpanContext{}, false
	}
	traceID, err := trace.TraceIDFromHex(traceparent[3:35])
	if err != nil {
		return trace.SpanContext{}, false
	}
	spanID, err := trace.SpanIDFromHex(traceparent[36:52])
	if err != nil {
		return trace.SpanContext{}, false
	}
	flags := trace.TraceFlags(0)
	if digit(traceparent[54])&1 == 1 {
		flags = trace.FlagsSampled
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, TraceFlags: flags, Remote: true}), true
}

// Format writes a traceparent; "" for no span.
func Format(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	flags := "00"
	if sc.IsSampled() {
		flags = "01"
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + flags
}

// ID is the trace of a traceparent, for people; "" if it is none.
func ID(traceparent string) string {
	sc, ok := Parse(traceparent)
	if !ok {
		return ""
	}
	return sc.TraceID().String()
}

// Under puts what follows under a traceparent, if it is one.
func Under(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	sc, ok := Parse(traceparent)
	if !ok {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, sc)
}

func hexadecimal(text string) bool {
	for i := range len(text) {
		if digit(text[i]) > 15 {
			return false
		}
	}
	return true
}

// digit is the value of a lower-case hexadecimal digit, more than 15 if it is none.
func digit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}
