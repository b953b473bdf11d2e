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
	// readyFor is how long an answer of the database is reused: /readyz queries the database at
	// most once a second.
	readyFor = time.Second
)

// readiness stores the last answer of the database.
type readiness struct {
	mu      sync.Mutex
	at      time.Time
	missing []string
}

// Missing lists the reasons why this server is not ready; it is empty if the server is ready.
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

// healthz responds while the process runs.
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
	_ = json.NewEncoder(w).Encode(value) // the caller may have disconnected
}
