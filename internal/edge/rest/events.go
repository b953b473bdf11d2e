package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/edge/problem"
)

// eventsCall is the call whose path is a stream for those who ask for one.
const eventsCall = "servo.v1.RunService.ListRunEvents"

const streamType = "text/event-stream"

// wantsStream reports whether a caller asks for server-sent events by name.
func wantsStream(h http.Header) bool {
	for _, header := range h.Values("Accept") {
		for one := range strings.SplitSeq(header, ",") {
			media, params, err := mime.ParseMediaType(one)
			if err == nil && media == streamType && !refusedByWeight(params["q"]) {
				return true
			}
		}
	}
	return false
}

// refusedByWeight reports whether a weight is 0: "anything but this".
func refusedByWeight(q string) bool {
	weight, err := strconv.ParseFloat(q, 64)
	return err == nil && weight == 0
}

// received is one message of a stream, or its end.
type received struct {
	message *servov1.WatchRunResponse
	err     error
}

// events streams the events of a run as they are recorded. An immediate refusal is an HTTP error; later
// failures are events of the stream.
func (e *Edge) events(w http.ResponseWriter, r *http.Request, params map[string]string) {
	after, err := resumeAfter(r)
	if err != nil {
		problem.Write(w, r, err)
		return
	}
	if _, err := readBody(w, r, &route{}, params); err != nil {
		problem.Write(w, r, err)
		return
	}
	stream, err := e.runs.WatchRun(r.Context(), &servov1.WatchRunRequest{Tenant: params["tenant"], Run: params["run"], After: after})
	if err != nil {
		problem.Write(w, r, err)
		return
	}
	incoming, head := make(chan received), make(chan metadata.MD, 1)
	go func() {
		if md, err := stream.Header(); err == nil {
			head <- md
		}
		for {
			message, err := stream.Recv()
			select {
			case incoming <- received{message, err}:
			case <-r.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	first, opened := e.first(r, incoming)
	if !opened {
		return
	}
	select {
	case md := <-head:
		forward(w.Header(), md)
	default: // a stream without a limit has none until something happens
	}
	if first != nil && first.err != nil && !errors.Is(first.err, io.EOF) {
		problem.Write(w, r, first.err)
		return
	}
	out := newSSE(w)
	if out.open() != nil || stateOf(r).original.Method == http.MethodHead {
		return
	}
	if first != nil && !out.receive(*first) {
		return
	}
	e.forward(r, out, incoming)
}

// first waits a short time for the first message, because a run without new events has a stream too. It
// returns false if the caller has left.
func (e *Edge) first(r *http.Request, incoming <-chan received) (*received, bool) {
	timer := time.NewTimer(e.peek)
	defer timer.Stop()
	select {
	case first := <-incoming:
		return &first, true
	case <-timer.C:
		return nil, true
	case <-r.Context().Done():
		return nil, false
	}
}

// forward sends messages until the stream ends or the caller leaves.
func (e *Edge) forward(r *http.Request, out *sse, incoming <-chan received) {
	alive := time.NewTicker(e.keepAlive)
	defer alive.Stop()
	for {
		select {
		case next := <-incoming:
			if !out.receive(next) {
				return
			}
		case <-alive.C:
			if out.send(": still here\n\n") != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// resumeAfter returns the id after which a stream continues. The header of a reconnecting browser is
// newer than the id in its URL.
func resumeAfter(r *http.Request) (string, error) {
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return "", err
	}
	for name, values := range query {
		if name != "after" {
			return "", fault.New(fault.InvalidArgument, "there is no such query parameter"+suggest.DidYouMean(name, []string{"after"}),
				fault.Field(shorten(name)), fault.Remedy("a stream has one: after"))
		}
		if len(values) > 1 {
			return "", fault.New(fault.InvalidArgument, "is set more than once", fault.Field(name), fault.Remedy("send it once"))
		}
	}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		return query.Get("after"), nil
	}
	if !utf8.ValidString(last) {
		return "", fault.New(fault.InvalidArgument, "is not valid UTF-8", fault.Field("Last-Event-ID"), fault.Remedy("send the id of an event of this run"))
	}
	return last, nil
}

// sse writes server-sent events.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func newSSE(w http.ResponseWriter) *sse { return &sse{w, http.NewResponseController(w)} }

// open sends the head. The time limits of the server are for answers that end; from here on
// each write has its own.
func (s *sse) open() error {
	header := s.w.Header()
	header.Set("Content-Type", streamType)
	header.Set("X-Accel-Buffering", "no") // a proxy that collects would hold back the events
	_ = s.control.SetReadDeadline(time.Time{})
	s.w.WriteHeader(http.StatusOK)
	return s.send("retry: 1000\n\n")
}

// receive sends a message. It returns false at the end of the stream.
func (s *sse) receive(next received) bool {
	switch {
	case errors.Is(next.err, io.EOF):
		return false
	case next.err != nil:
		_, doc := problem.Document(problem.Status(next.err))
		if data, err := json.Marshal(doc); err == nil {
			_ = s.send(fmt.Sprintf("event: problem\ndata: %s\n\n", data)) // the end in any case
		}
		return false
	}
	switch m := next.message.GetMessage().(type) {
	case *servov1.WatchRunResponse_Event:
		return s.event(m.Event.GetId(), m.Event.GetType(), m.Event) == nil
	case *servov1.WatchRunResponse_End:
		_ = s.event("", "end", m.End) // nothing comes after it
		return false
	default:
		return true
	}
}

// event sends an event. The end has no id, so that a client that reconnects after it receives the end
// again.
func (s *sse) event(id, kind string, message proto.Message) error {
	data, err := toJSON().Marshal(message)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if id != "" {
		line.WriteString("id: " + oneLine(id) + "\n")
	}
	line.WriteString("event: " + oneLine(kind) + "\ndata: ")
	if err := json.Compact(&line, data); err != nil {
		return err
	}
	line.WriteString("\n\n")
	return s.send(line.String())
}

func oneLine(text string) string {
	return strings.NewReplacer("\n", "", "\r", "", "\x00", "").Replace(text)
}

func (s *sse) send(text string) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeLimit)) // not every writer has one
	if _, err := io.WriteString(s.w, text); err != nil {
		return err
	}
	return s.control.Flush()
}
