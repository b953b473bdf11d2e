package worker

import (
	"context"
	"encoding"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// logHandler writes the records of a task's logger into its log: one record is one line,
// "message key=value", after the time and the level.
type logHandler struct {
	task   *Task
	prefix string // of keys: the open groups
	attrs  string // formatted already, with a leading space
}

// Enabled reports whether records of that level are kept.
func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.task.worker.options.LogLevel.Level()
}

// Handle writes one record.
func (h *logHandler) Handle(_ context.Context, record slog.Record) error {
	var line strings.Builder
	line.WriteString(oneLine(record.Message))
	line.WriteString(h.attrs)
	record.Attrs(func(attr slog.Attr) bool {
		appendAttr(&line, h.prefix, attr)
		return true
	})
	at := record.Time
	if at.IsZero() {
		at = time.Now()
	}
	a := h.task.attempt
	a.logs.line(h.task.worker, a, at, record.Level.String(), line.String())
	return nil
}

// WithAttrs adds attributes to every record.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var more strings.Builder
	for _, attr := range attrs {
		appendAttr(&more, h.prefix, attr)
	}
	return &logHandler{task: h.task, prefix: h.prefix, attrs: h.attrs + more.String()}
}

// WithGroup qualifies the keys that follow.
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &logHandler{task: h.task, prefix: h.prefix + name + ".", attrs: h.attrs}
}

func appendAttr(to *strings.Builder, prefix string, attr slog.Attr) {
	value := attr.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if attr.Key != "" {
			prefix += attr.Key + "."
		}
		for _, member := range value.Group() {
			appendAttr(to, prefix, member)
		}
		return
	}
	if attr.Equal(slog.Attr{}) {
		return
	}
	to.WriteByte(' ')
	to.WriteString(quoted(prefix + attr.Key))
	to.WriteByte('=')
	to.WriteString(quoted(textOf(value)))
}

func textOf(value slog.Value) string {
	if value.Kind() == slog.KindTime {
		return value.Time().Format(time.RFC3339Nano)
	}
	if value.Kind() != slog.KindAny {
		return value.String()
	}
	switch v := value.Any().(type) {
	case error:
		return v.Error()
	case encoding.TextMarshaler:
		if text, err := v.MarshalText(); err == nil {
			return string(text)
		}
	case []byte:
		return string(v)
	}
	return fmt.Sprintf("%+v", value.Any())
}

// quoted quotes text that is not one word.
func quoted(text string) string {
	if text == "" || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
		return r == '"' || r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}) {
		return strconv.Quote(text)
	}
	return text
}

// oneLine escapes characters that would break a line or control a terminal.
func oneLine(text string) string {
	if !strings.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == '\t':
			out.WriteByte('\t')
		case unicode.IsControl(r):
			escaped := strconv.QuoteRune(r)
			out.WriteString(escaped[1 : len(escaped)-1])
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}
