package client

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// hedged makes a call that may be repeated, and sends it to another server as well if the one
// that has it falls silent. The first answer counts. A server that is slow but alive is not
// hedged: it answers probes, and a second server would only wait for the same database.
func (c *Client) hedged(ctx context.Context, kind repeat, method string, reply any, invoke func(ctx context.Context, reply any) error) error {
	into, ok := reply.(proto.Message)
	if kind != repeatSafe || len(c.servers) < 2 || !ok {
		return invoke(ctx, reply)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &hedge{reply: into, invoke: invoke, acknowledged: method == servov1.WorkerService_Claim_FullMethodName}
	h.settled.L = &h.mu
	first, cancelFirst := context.WithCancel(ctx)
	defer cancelFirst()
	h.cancelFirst = cancelFirst
	err := invoke(withTry(first, h.newTry(ctx)), reply)
	return h.finish(err, cancel)
}

// hedge is a call with its tries. The first try writes into the caller's reply, so that a call
// that needs no other costs nothing more.
type hedge struct {
	reply        proto.Message
	invoke       func(ctx context.Context, reply any) error
	acknowledged bool
	cancelFirst  context.CancelFunc

	mu      sync.Mutex
	settled sync.Cond
	ended   bool // no more tries
	open    int  // tries other than the first
	silent  []*server
	won     bool
	answer  proto.Message
	err     error // of the try that won
}

// newTry is a try that is followed by another one if its server falls silent.
func (h *hedge) newTry(ctx context.Context) *try {
	t := &try{acknowledged: h.acknowledged}
	t.silent = sync.OnceFunc(func() { go h.another(ctx, t.server.Load()) })
	return t
}

// another makes a try at a server that is not silent.
func (h *hedge) another(ctx context.Context, silent *server) {
	h.mu.Lock()
	if h.ended || h.won {
		h.mu.Unlock()
		return
	}
	h.open++
	h.silent = append(h.silent, silent)
	t := h.newTry(ctx)
	t.avoid = append(t.avoid, h.silent...)
	h.mu.Unlock()

	reply := h.reply.ProtoReflect().New().Interface()
	err := h.invoke(withTry(ctx, t), reply)

	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	if isAnswer(err) && !h.won {
		h.won, h.answer, h.err = true, reply, err
		h.cancelFirst()
	}
	h.settled.Broadcast()
}

// finish is called when the first try has ended, and gives the answer of the call. It returns
// when no try reads the request any more.
func (h *hedge) finish(err error, cancel context.CancelFunc) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !isAnswer(err) && !h.won && h.open > 0 {
		h.settled.Wait()
	}
	h.ended = true
	cancel()
	for h.open > 0 {
		h.settled.Wait()
	}
	if !isAnswer(err) && h.won {
		proto.Reset(h.reply)
		proto.Merge(h.reply, h.answer)
		return h.err
	}
	return err
}

// isAnswer reports whether an error is the answer of a server.
func isAnswer(err error) bool {
	switch status.Code(err) { //nolint:exhaustive // the rest comes from a server
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return false
	}
	return true
}
