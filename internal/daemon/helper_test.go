package daemon_test

import (
	"context"
	"log/slog"
)

// signalOn returns a logger that signals once a message was logged.
func signalOn(message string, logged chan<- struct{}) *slog.Logger {
	return slog.New(&messageSignal{message: message, logged: logged})
}

type messageSignal struct {
	message string
	logged  chan<- struct{}
}

func (e *messageSignal) Enabled(context.Context, slog.Level) bool { return true }
func (e *messageSignal) WithAttrs([]slog.Attr) slog.Handler       { return e }
func (e *messageSignal) WithGroup(string) slog.Handler            { return e }

func (e *messageSignal) Handle(_ context.Context, r slog.Record) error {
	if r.Message == e.message {
		select {
		case e.logged <- struct{}{}:
		default:
		}
	}
	return nil
}
