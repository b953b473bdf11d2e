package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// WatchRun returns the events of a run as they are recorded, and last the ended run. When the connection
// is lost it continues with another server after the last event: no event is missing or repeated. After
// the first answer it waits for a server until the context ends.
func WatchRun(ctx context.Context, c *Client, req *servov1.WatchRunRequest) iter.Seq2[*servov1.WatchRunResponse, error] {
	return func(yield func(*servov1.WatchRunResponse, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // a reader that leaves early ends the stream
		w := watch{client: c, req: proto.CloneOf(req), yield: yield}
		for failures := 1; ; failures++ {
			err := w.once(ctx)
			if w.over {
				return
			}
			if w.moved {
				failures, w.moved = 1, false
			}
			if !Is(err, Unavailable) || ctx.Err() != nil || (!w.answered && failures >= maxAttempts) {
				yield(nil, err)
				return
			}
			c.log.WarnContext(ctx, "lost the server while watching a run", "run", req.GetRun(), "error", err)
			if !pause(ctx, delay(failures, err)) {
				yield(nil, problemOf(contextError(ctx)))
				return
			}
		}
	}
}

// watch is one reader's way through the streams of a run.
type watch struct {
	client *Client
	req    *servov1.WatchRunRequest
	yield  func(*servov1.WatchRunResponse, error) bool

	answered bool // a server has sent something, ever
	moved    bool // since the last loss
	over     bool // the end was given, or the reader has left
}

// once reads one stream until it ends in one way or another.
func (w *watch) once(ctx context.Context) error {
	began := time.Now()
	stream, err := w.client.Runs().WatchRun(ctx, w.req)
	if err != nil {
		return err
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			w.answered = w.answered || time.Since(began) > connectTimeout // it was silent for lack of news
		}
		if errors.Is(err, io.EOF) {
			return &Problem{Code: Unavailable, Message: "the server ended the stream before the run"}
		}
		if err != nil {
			return err
		}
		w.answered, w.moved = true, true
		if event := message.GetEvent(); event != nil {
			w.req.After = event.GetId()
		}
		if !w.yield(message, nil) || message.GetEnd() != nil {
			w.over = true
			return nil
		}
	}
}

// contextError is what a call under a context that is over would return.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		err = context.DeadlineExceeded // it would be over before the pause is
	}
	return status.FromContextError(err).Err()
}
