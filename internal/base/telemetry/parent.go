package telemetry

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// parentLength is that of a traceparent of version 00: version, trace, parent and flags.
const parentLength = 55

// maxState is the longest tracestate that is kept: W3C asks for this much at least.
const maxState = 512

// Parse parses a trace that Join has written: a W3C traceparent, and the tracestate after a space if
// there is one. An invalid traceparent starts no trace and does not fail a request; an invalid
// tracestate is dropped. A traceparent of a later version than 00 may have more fields after its flags.
func Parse(joined string) (trace.SpanContext, bool) {
	traceparent, tracestate, _ := strings.Cut(joined, " ")
	sc, ok := parseParent(traceparent)
	if !ok || tracestate == "" || len(tracestate) > maxState {
		return sc, ok
	}
	if state, err := trace.ParseTraceState(tracestate); err == nil {
		sc = sc.WithTraceState(state)
	}
	return sc, true
}

// Join joins a traceparent and a tracestate into one text, which events and runs record.
func Join(traceparent, tracestate string) string {
	if tracestate == "" {
		return traceparent
	}
	return traceparent + " " + tracestate
}

// Parent returns the traceparent of a recorded trace.
func Parent(joined string) string {
	traceparent, _ := Split(joined)
	return traceparent
}

// Split splits a recorded trace into the two headers of W3C.
func Split(joined string) (traceparent, tracestate string) {
	traceparent, tracestate, _ = strings.Cut(joined, " ")
	return traceparent, tracestate
}

func parseParent(traceparent string) (trace.SpanContext, bool) {
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

// Format formats a trace for Parse; "" without a span.
func Format(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	flags := "00"
	if sc.IsSampled() {
		flags = "01"
	}
	return Join("00-"+sc.TraceID().String()+"-"+sc.SpanID().String()+"-"+flags, sc.TraceState().String())
}

// SetHeaders sets the W3C headers of a request that is part of a recorded trace.
func SetHeaders(header http.Header, joined string) {
	traceparent, tracestate := Split(joined)
	if traceparent != "" {
		header.Set("Traceparent", traceparent)
	}
	if tracestate != "" {
		header.Set("Tracestate", tracestate)
	}
}

// ID returns the trace id of a traceparent; "" if the traceparent is invalid.
func ID(traceparent string) string {
	sc, ok := Parse(traceparent)
	if !ok {
		return ""
	}
	return sc.TraceID().String()
}

// Under returns a context whose spans have the traceparent as parent, if it is valid.
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

// digit returns the value of a lower-case hexadecimal digit, more than 15 for any other byte.
func digit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}
