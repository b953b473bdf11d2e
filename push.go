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

// PushOptions says whom a push worker believes.
type PushOptions struct {
	// Keys are the pool's signing keys as they were shown, id and secret with a colon between.
	// Give the next one before it begins to sign, and leave the last one until it has expired.
	// The environment variable SERVO_PUSH_KEYS, with commas between, if not said.
	Keys []string
}

// defaultPushConcurrency is for workers that do not say: the limit is the pool's to set.
const defaultPushConcurrency = 64

// PushHandler executes the tasks of a push pool, which Servo posts to it in signed envelopes.
// It verifies them, answers 202 at once, and tells how the task goes at the URLs that came
// along: an envelope that comes twice is executed once, also when the second copy reaches another
// process of the pool.
type PushHandler struct {
	inbox  *inbox.Inbox
	worker *Worker
	stop   context.CancelFunc
	done   chan struct{}
	err    error // once done
}

// NewPushHandler makes the handler of a push pool from a worker with its assets. The worker
// is not run in another way. Of its options those about a server and pools do not matter;
// Concurrency should be that of the pool, and is 64 if not said: an envelope for which no
// slot becomes free within some seconds is answered with 429.
func NewPushHandler(w *Worker, options PushOptions) (*PushHandler, error) {
	keys, err := options.keys()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	if w.started {
		w.mu.Unlock()
		return nil, fault.New(fault.Conflict, "the worker has been started", fault.Remedy("make a new one"))
	}
	w.instance = uuid.NewString()
	in := inbox.New(inbox.Config{Instance: w.instance, Keys: push.WorkerKeys(keys...), Logger: w.options.Logger})
	w.options.Conn = in
	if w.options.Concurrency == 0 {
		w.options.Concurrency = defaultPushConcurrency
	}
	if w.options.Ahead == 0 {
		w.options.Ahead = -1 // what is taken is begun
	}
	w.mu.Unlock()
	inner, hangUp, err := w.start()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	h := &PushHandler{inbox: in, worker: w, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(h.done)
		defer in.Release()
		h.err = errors.Join(inner.Run(ctx), hangUp())
	}()
	return h, nil
}

// ServeHTTP takes an envelope. It may be mounted at any path.
func (h *PushHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.inbox.ServeHTTP(w, r) }

// Shutdown takes no more tasks, lets those that run go on for the worker's grace, interrupts
// the rest (they are tried again), and returns when the server has heard of everything; when
// the context ends, at once. The HTTP server is the caller's, and is shut down after this.
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
		return nil, fault.Invalid("keys", "there is no key to believe envelopes by", "give the pool's signing key, or set SERVO_PUSH_KEYS")
	}
	return keys, nil
}
