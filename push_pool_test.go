package servo_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/push"
)

// pushPool is a dispatcher for tests: it signs envelopes, and receives the reports of workers at the
// URLs that came along.
type pushPool struct {
	t      *testing.T
	keys   push.Keyring
	server *httptest.Server // of the callbacks
	worker *httptest.Server

	mu       sync.Mutex
	attempts map[string]*pushed
	changed  chan struct{}
	before   func(action push.Action) int // a status to refuse with, once it is not 0
	renew    bool
}

// pushed is what was reported of an attempt.
type pushed struct {
	callback push.Callback
	envelope []byte
	started  int
	beats    int
	progress []*servov1.Progress
	log      string
	cursor   string
	fanned   []*servov1.FanOutTask
	complete *servov1.Complete
	fail     *servov1.Fail
	yield    *servov1.Yield
	tokens   []int64 // of the URLs that reports came to
	cancel   bool
	lost     bool
	results  []*servov1.UpstreamTask
}

func newPushPool(t *testing.T, register func(w *servo.Worker), options ...func(*servo.WorkerOptions)) (*pushPool, *servo.PushHandler) {
	t.Helper()
	key, err := push.NewKey(rand.Reader, time.Now().Add(-time.Hour))
	require.NoError(t, err)
	p := &pushPool{t: t, keys: push.Keyring{key}, attempts: map[string]*pushed{}, changed: make(chan struct{})}
	p.server = httptest.NewServer(http.HandlerFunc(p.callback))
	t.Cleanup(p.server.Close)

	// A short lease beats often, so that tests need not wait.
	o := servo.WorkerOptions{ID: "p1", Concurrency: 4, Lease: time.Second, Grace: time.Minute}
	for _, change := range options {
		change(&o)
	}
	w := servo.NewWorker(o)
	register(w)
	h, err := servo.NewPushHandler(w, servo.PushOptions{Keys: []string{key.Worker("gpu").Text()}})
	require.NoError(t, err)
	p.worker = httptest.NewServer(h)
	t.Cleanup(p.worker.Close)
	t.Cleanup(func() { require.NoError(t, h.Shutdown(context.Background())) })
	return p, h
}

// sign makes an envelope and remembers its attempt.
func (p *pushPool) sign(asset string, changes ...func(*push.Envelope)) *pushed {
	p.t.Helper()
	m := id.NewMinter(time.Now())
	a := &pushed{callback: push.Callback{Tenant: id.New[id.Tenant](m), Run: id.New[id.Run](m), Task: id.New[id.Task](m), Attempt: 1, Token: 7}}
	urls, err := push.SignCallbacks(p.server.URL, a.callback, p.keys[0], time.Now().Add(push.CallbackLifetime))
	require.NoError(p.t, err)
	e := push.Envelope{Pool: "gpu", Tenant: "acme", Run: a.callback.Run, Task: a.callback.Task, Attempt: 1, Asset: asset, Callbacks: urls}
	for _, change := range changes {
		change(&e)
	}
	a.envelope, err = push.Sign(e, p.keys[0], time.Now(), time.Minute, rand.Reader)
	require.NoError(p.t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempts[a.callback.Task.String()] = a
	return a
}

// post sends bytes to the worker.
func (p *pushPool) post(body []byte) (int, string) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, p.worker.URL, bytes.NewReader(body))
	require.NoError(p.t, err)
	response, err := p.worker.Client().Do(request)
	require.NoError(p.t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return response.StatusCode, string(answer)
}

func (p *pushPool) push(asset string, changes ...func(*push.Envelope)) *pushed {
	p.t.Helper()
	a := p.sign(asset, changes...)
	status, answer := p.post(a.envelope)
	require.Equal(p.t, http.StatusAccepted, status, answer)
	return a
}

// wait waits until something is so.
func (p *pushPool) wait(is func() bool) {
	p.t.Helper()
	deadline := time.After(time.Minute)
	for {
		p.mu.Lock()
		so, changed := is(), p.changed
		p.mu.Unlock()
		if so {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			require.FailNow(p.t, "it has not come about within a minute")
		}
	}
}

func (p *pushPool) ended(a *pushed) *pushed {
	p.t.Helper()
	p.wait(func() bool { return a.complete != nil || a.fail != nil || a.yield != nil })
	return a
}

func (p *pushPool) do(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// callback is the server's side.
func (p *pushPool) callback(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer func() {
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
	}()
	c, err := push.VerifyCallback(r.Method, r.URL, p.keys, time.Now())
	a := p.attempts[c.Task.String()]
	if err != nil || a == nil || a.lost || c.Token != a.callback.Token {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if p.before != nil {
		if status := p.before(c.Action); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	answer, err := p.act(a, c.Callback, body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"code": "INVALID_ARGUMENT", "message": err.Error()})
		return
	}
	_, _ = w.Write(answer)
}

func (p *pushPool) act(a *pushed, c push.Callback, body []byte) ([]byte, error) {
	switch c.Action {
	case push.ActionReport:
		var request servov1.ReportRequest
		if err := protojson.Unmarshal(body, &request); err != nil {
			return nil, err
		}
		a.tokens = append(a.tokens, c.Token)
		response := &servov1.ReportResponse{}
		for _, item := range request.GetItems() {
			response.Answers = append(response.Answers, a.receive(item))
		}
		return protojson.Marshal(response)
	case push.ActionHeartbeat:
		a.beats++
		reply := push.HeartbeatReply{Held: true, ShouldCancel: a.cancel}
		if p.renew {
			p.renew = false
			a.callback.Token++ // the old URLs are good for nothing any more
			urls, err := push.SignCallbacks(p.server.URL, a.callback, p.keys[0], time.Now().Add(push.CallbackLifetime))
			if err != nil {
				return nil, err
			}
			reply.Callbacks = &urls
		}
		return json.Marshal(reply)
	case push.ActionUpstream:
		var asked struct {
			Task      string `json:"task"`
			PageToken string `json:"page_token"`
		}
		if err := json.Unmarshal(body, &asked); err != nil {
			return nil, err
		}
		if asked.Task != "" {
			return protojson.Marshal(&servov1.UpstreamTask{Task: asked.Task, Result: structpb.NewStringValue("large")})
		}
		page := &servov1.ListUpstreamTasksResponse{Tasks: a.results[:1], NextPageToken: "2"}
		if asked.PageToken != "" {
			page = &servov1.ListUpstreamTasksResponse{Tasks: a.results[1:]}
		}
		return protojson.Marshal(page)
	case push.ActionStatus, push.ActionCursor, push.ActionFanOut:
	}
	return nil, errors.New("unexpected call")
}

func (a *pushed) receive(item *servov1.ReportItem) *servov1.ReportAnswer {
	switch action := item.GetAction().(type) {
	case *servov1.ReportItem_Start:
		a.started++
	case *servov1.ReportItem_Progress:
		a.progress = append(a.progress, action.Progress)
	case *servov1.ReportItem_Log:
		a.log += action.Log.GetText()
	case *servov1.ReportItem_Advance:
		a.cursor = action.Advance.GetNext()
	case *servov1.ReportItem_FanOut:
		a.fanned = action.FanOut.GetTasks()
		return &servov1.ReportAnswer{Added: []string{"t1", "t2"}}
	case *servov1.ReportItem_Complete:
		a.complete = action.Complete
	case *servov1.ReportItem_Fail:
		a.fail = action.Fail
	case *servov1.ReportItem_Yield:
		a.yield = action.Yield
	}
	return &servov1.ReportAnswer{}
}
