package daemon

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	// readyPatience is how long the database may take to answer.
	readyPatience = time.Second
	// readyFor is how long an answer of the database is passed on: however often somebody
	// asks, the database hears it once a second.
	readyFor = time.Second
)

// readiness remembers what the database said last.
type readiness struct {
	mu      sync.Mutex
	at      time.Time
	missing []string
}

// Missing says what keeps this server from doing its work; nothing if it is ready.
func (d *Daemon) Missing(ctx context.Context) []string {
	if d.draining.Load() {
		return []string{"the server is stopping"}
	}
	d.readiness.mu.Lock()
	defer d.readiness.mu.Unlock()
	if time.Since(d.readiness.at) > readyFor {
		d.readiness.missing = d.ask(context.WithoutCancel(ctx)) // for all who wait, not for one of them
		d.readiness.at = time.Now()
	}
	return d.readiness.missing
}

func (d *Daemon) ask(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	if err := d.store.Ping(ctx); err != nil {
		d.config.Logger.Warn("not ready: the database does not answer", slog.Any("error", err))
		return []string{"the database does not answer"}
	}
	missing, err := missingMigration(ctx, d.store)
	switch {
	case err != nil:
		d.config.Logger.Warn("not ready: the migrations cannot be read", slog.Any("error", err))
		return []string{"the migrations of the database cannot be read"}
	case missing != "":
		return []string{missing + " is not applied"}
	}
	return nil
}

// healthz says that the process lives.
func healthz(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, "application/json", map[string]any{"status": "alive"})
}

// readyz reports whether this server should be sent work.
func (d *Daemon) readyz(w http.ResponseWriter, r *http.Request) {
	missing := d.Missing(r.Context())
	if len(missing) == 0 {
		answer(w, http.StatusOK, "application/json", map[string]any{"status": "ready"})
		return
	}
	answer(w, http.StatusServiceUnavailable, "application/problem+json", map[string]any{
		"type": "/errors/unavailable", "title": "Not ready", "status": http.StatusServiceUnavailable,
		"detail": missing[0], "code": "UNAVAILABLE", "missing": missing,
	})
}

func answer(w http.ResponseWriter, status int, kind string, value any) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // whoever asked may be gone
}
