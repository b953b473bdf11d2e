package servo

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/worker/inbox"
)

// PushOptions configures a push worker.
type PushOptions struct {
	// Keys are the pool's signing keys as Servo shows them: id and secret, separated by a colon.
	// Add the next key before it begins to sign, and keep the previous one until it has expired.
	// The default is the environment variable SERVO_PUSH_KEYS, separated by commas.
	Keys []string
}

// defaultPushConcurrency is the default capacity: the pool should set the limit.
const defaultPushConcurrency = 64

// PushHandler executes the tasks of a push pool, which Servo posts to it in signed envelopes. It
// verifies an envelope, responds with 202 immediately, and reports to the callback URLs in the
// envelope. An envelope that is delivered twice is executed once, also if the second copy reaches
// another process of the pool.
type PushHandler struct {
	inbox  *inbox.Inbox
	worker *Worker
	stop   context.CancelFunc
	done   chan struct{}
	err    error // once done
}

// NewPushHandler returns the handler of a push pool for a worker with its assets. Do not also call Run.
// The options about servers and pools are ignored. Concurrency should be the limit of the pool; the
// default is 64. If no capacity becomes free within a few seconds, an envelope is refused with 429.
func NewPushHandler(w *Worker, options PushOptions) (*PushHandler, error) {
	keys, err := options.keys()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	if w.started {
		w.mu.Unlock()
		return nil, fault.New(fault.Conflict, "the worker was already started", fault.Remedy("create a new worker"))
	}
	w.instance = uuid.NewString()
	in := inbox.New(inbox.Options{Instance: w.instance, Keys: push.WorkerKeys(keys...), Logger: w.options.Logger})
	w.options.Conn = in
	if w.options.Concurrency == 0 {
		w.options.Concurrency = defaultPushConcurrency
	}
	if w.options.Ahead == 0 {
		w.options.Ahead = -1 // accepted tasks start immediately
	}
	w.mu.Unlock()
	inner, disconnect, err := w.start()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	h := &PushHandler{inbox: in, worker: w, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(h.done)
		defer in.Release()
		h.err = errors.Join(inner.Run(ctx), disconnect())
	}()
	return h, nil
}

// ServeHTTP receives an envelope. It can be mounted at any path.
func (h *PushHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.inbox.ServeHTTP(w, r) }

// Shutdown refuses new tasks, lets running tasks continue for the worker's grace, interrupts the rest
// (they are retried), and returns when all results are reported, or immediately when the context ends.
// Shut the HTTP server down after this.
func (h *PushHandler) Shutdown(ctx context.Context) error {
	h.inbox.Close()
	h.stop()
	select {
	case <-h.done:
		return h.err
	case <-ctx.Done():
	}
	h.worker.Abort()
	<-h.done
	return errors.Join(context.Cause(ctx), h.err)
}

func (o PushOptions) keys() ([]push.WorkerKey, error) {
	texts := o.Keys
	if len(texts) == 0 {
		texts = strings.FieldsFunc(os.Getenv(pushKeysVariable), func(r rune) bool { return r == ',' })
	}
	var keys []push.WorkerKey
	for _, text := range texts {
		key, err := push.ParseWorkerKey(text)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fault.Invalid("keys", "is missing", "set the pool's signing key, or SERVO_PUSH_KEYS")
	}
	return keys, nil
}
