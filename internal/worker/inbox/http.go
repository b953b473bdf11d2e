package inbox

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/push"
)

// ServeHTTP receives an envelope: 202 means that it is being executed, once for all of its copies.
// Every invalid envelope gets the same response; a worker without free capacity responds with 429, one
// that stops with 503.
func (i *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		answer(w, http.StatusMethodNotAllowed, map[string]any{"code": "METHOD_NOT_ALLOWED", "message": "tasks are sent with POST"})
		return
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, push.MaxEnvelope))
	if err != nil {
		raw = nil // it is refused like every invalid envelope
	}
	envelope, err := push.Verify(raw, i.options.Keys, time.Now())
	if err != nil {
		i.refuse(w, err)
		return
	}
	l, err := deliveryOf(envelope)
	if err != nil {
		i.refuse(w, err)
		return
	}
	i.mu.Lock()
	_, known := i.deliveries[envelope.IdempotencyKey]
	closed := i.closed && !known
	i.mu.Unlock()
	switch {
	case closed:
		w.Header().Set("Retry-After", "5")
		answer(w, http.StatusServiceUnavailable, map[string]any{"code": fault.Unavailable, "message": "the worker is stopping"})
	case !i.offer(r.Context(), l):
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusTooManyRequests, map[string]any{"code": fault.LimitExceeded, "message": "the worker has no free capacity"})
	default:
		answer(w, http.StatusAccepted, map[string]any{"status": "ACCEPTED", "repeat": known, "instance": i.options.Instance})
	}
}

// refuse responds to an envelope that is not executed. A sender without a key learns nothing.
func (i *Inbox) refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, push.ErrRefused) {
		i.options.Logger.Warn("an envelope was refused", "reason", push.ReasonOf(err))
		answer(w, http.StatusForbidden, map[string]any{"code": "FORBIDDEN", "message": push.ErrRefused.Error()})
		return
	}
	i.options.Logger.Error("an envelope cannot be executed", "error", err)
	answer(w, http.StatusBadRequest, map[string]any{"code": fault.CodeOf(err), "message": err.Error()})
}

func answer(w http.ResponseWriter, code int, body map[string]any) {
	contentType := "application/json"
	if code >= http.StatusBadRequest {
		contentType = "application/problem+json"
		body["status"] = code
	}
	encoded, err := json.Marshal(body)
	if err != nil { // plain values always encode
		encoded = []byte("{}")
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	_, _ = w.Write(append(encoded, '\n'))
}
