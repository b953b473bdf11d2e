package daemon_test

import (
	"context"
	"log/slog"
)

// hears gives a logger that signals once a message was logged.
func hears(message string, heard chan<- struct{}) *slog.Logger {
	return slog.New(&ear{message: message, heard: heard})
}

type ear struct {
	message string
	heard   chan<- struct{}
}

func (e *ear) Enabled(context.Context, slog.Level) bool { return true }
func (e *ear) WithAttrs([]slog.Attr) slog.Handler       { return e }
func (e *ear) WithGroup(string) slog.Handler            { return e }

func (e *ear) Handle(_ context.Context, r slog.Record) error {
	if r.Message == e.message {
		select {
		case e.heard <- struct{}{}:
		default:
		}
	}
	return nil
}
